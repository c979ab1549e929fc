"""The transformers backend: a model in this process, and `evaluate_policy`, which training calls for its held-out scores."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch

from delta_rlvr.bounds import typed
from delta_rlvr.evaluate.drawing import UniformStreams, draw_tokens
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.records import Completion, Grade, Outcome, Questions, SampleRequest
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.runner import Progress, run_evaluation
from delta_rlvr.evaluate.settings import HELDOUT, EvaluationSettings, SampleKey
from delta_rlvr.models.finite import NotFinite
from delta_rlvr.models.prompts import encode_prompt
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.registry import grade_problem


@dataclass
class LocalSampler:
    """Samples from a transformers causal language model.

    Requests are cut into batches in their order. After a restart, a batch with missing samples is sampled as a whole, so that samples
    are equal to the last bit on the same machine.
    """

    model: Any
    tokenizer: Any
    settings: EvaluationSettings
    batch_size: int = 16

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise EvaluationError(f"batch_size = {self.batch_size} must be at least 1")
        self._ends = end_tokens(self.model, self.tokenizer)
        self._accepts = set(inspect.signature(self.model.forward).parameters)

    def describe(self) -> dict[str, Any]:
        parameter = next(self.model.parameters())
        return {
            "kind": "transformers",
            "batch_size": self.batch_size,
            "dtype": str(parameter.dtype).removeprefix("torch."),
            "device": parameter.device.type,
            "weights": weights_digest(self.model),
            "end_tokens": sorted(self._ends),
        }

    def sample(self, requests: Sequence[SampleRequest], wanted: Set[SampleKey]) -> Iterator[Sequence[Outcome]]:
        for start in range(0, len(requests), self.batch_size):
            batch = requests[start : start + self.batch_size]
            if any(request.key in wanted for request in batch):
                completions = self.complete(batch)
                outcomes = zip(batch, completions, strict=True)
                yield [outcome for outcome in outcomes if outcome[0].key in wanted]

    def complete(self, batch: Sequence[SampleRequest]) -> list[Completion]:
        """Return the completions of one batch. The model's train or eval mode is restored."""
        prompts = [self._encode(request) for request in batch]
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                responses, finishes = self._generate(prompts, [request.seed for request in batch])
        finally:
            self.model.train(was_training)
        return list(map(self._completion, responses, finishes))

    def _encode(self, request: SampleRequest) -> list[int]:
        assert not isinstance(request.prompt, tuple)  # only servers take token ids
        try:
            ids = encode_prompt(self.tokenizer, request.prompt)
        except ValueError as error:
            raise EvaluationError(f"{request.key}: {error}") from error
        if not ids:
            raise EvaluationError(f"{request.key}: the prompt has no tokens")
        context = getattr(self.model.config, "max_position_embeddings", None)
        if context is not None and len(ids) + self.settings.max_tokens > context:
            raise EvaluationError(
                f"{request.key}: a prompt of {len(ids)} tokens and max_tokens = {self.settings.max_tokens} do not fit the model's "
                f"context of {context}; lower max_tokens to {max(context - len(ids), 1)} or less"
            )
        return ids

    def _generate(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> tuple[list[list[int]], list[str]]:
        settings, device = self.settings, next(self.model.parameters()).device
        streams = UniformStreams(seeds)
        longest = max(map(len, prompts))
        # Left padding with any token: it is masked, and positions count from the first real token.
        tokens = torch.tensor([[0] * (longest - len(p)) + list(p) for p in prompts], device=device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device)
        positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
        rows = list(range(len(prompts)))  # which sample each row of the tensors is
        active = set(rows)
        responses: list[list[int]] = [[] for _ in prompts]
        finishes = ["length"] * len(prompts)
        cache = None
        for _ in range(settings.max_tokens):
            output = self._forward(tokens, mask, positions, cache)
            cache = output.past_key_values
            uniforms = torch.from_numpy(streams.next()[rows]).to(device)
            logits = output.logits[:, -1].float()
            if logits.isnan().any():
                raise NotFinite("the policy's probabilities are")
            drawn = draw_tokens(logits, uniforms, temperature=settings.temperature, top_p=settings.top_p)
            for row, token in zip(rows, drawn.tolist(), strict=True):
                if row not in active:
                    continue
                if token not in self._ends:
                    responses[row].append(token)
                    if not (settings.stop and self._meets_stop(responses[row])):
                        continue
                finishes[row] = "stop"
                active.discard(row)
            if not active:
                break
            tokens, positions = drawn[:, None], positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=-1)
            if len(active) <= len(rows) // 2:
                # Finished rows cost time and memory: drop them when they are half of the batch.
                kept = [place for place, row in enumerate(rows) if row in active]
                chosen = torch.tensor(kept, device=device)
                cache.batch_select_indices(chosen)
                tokens, positions, mask = tokens[chosen], positions[chosen], mask[chosen]
                rows = [rows[place] for place in kept]
        return responses, finishes

    def _forward(self, tokens: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any) -> Any:
        arguments = {"position_ids": positions, "logits_to_keep": 1}
        return self.model(
            input_ids=tokens,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            **{name: value for name, value in arguments.items() if name in self._accepts},
        )

    def _meets_stop(self, response: Sequence[int]) -> bool:
        # A stop text has at most as many tokens as bytes, and may begin within the token before.
        reach = max(len(stop.encode()) for stop in self.settings.stop) + 1
        tail = self.tokenizer.decode(response[-reach:], skip_special_tokens=True)
        return any(stop in tail for stop in self.settings.stop)

    def _completion(self, response: Sequence[int], finish: str) -> Completion:
        text = self.tokenizer.decode(response, skip_special_tokens=True)
        cut = min((text.find(stop) for stop in self.settings.stop if stop in text), default=len(text))
        return Completion(text[:cut], finish, len(response))


@typed
def evaluate_policy(
    model: Any,
    tokenizer: Any,
    problems: Sequence[Problem],
    samples: int = 4,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_tokens: int = 128,
    seed: int = 0,
    *,
    grade: Grade | None = None,
    batch_size: int = 64,
    progress: Progress | None = None,
    name: str = HELDOUT,
    label: str = "in memory",
) -> EvaluationResult:
    """Sample and grade `problems` with a transformers model and its tokenizer.

    `result.summary()` is what `run.json` keeps; `compare_results` compares two results of the same problems. With the same seed two
    states of a model get the same random numbers, which makes their difference less noisy. The chat template is applied to messages
    only. `grade`: a task's grader (default: each problem's grader).
    """
    for what, one in (("model", model), ("tokenizer", tokenizer)):
        if not callable(one):
            raise EvaluationError(f"{what}={one!r:.60}: give the {what} that `load_policy` returns")
    settings = EvaluationSettings(
        samples=samples, max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed
    )
    description = {"title": name, "source": {"problems": "in memory"}}
    questions = Questions(name, tuple(problems), description, grade or grade_problem)
    sampler = LocalSampler(model, tokenizer, settings, batch_size=batch_size)
    return run_evaluation([questions], sampler, settings, model={"name": label}, progress=progress)


def weights_digest(model: Any) -> str:
    """Return a hash of a few hundred numbers of every parameter, which tells states of a model apart. Not a checksum."""
    summed = hashlib.sha256()
    for name, parameter in model.named_parameters():
        flat = parameter.detach().reshape(-1)
        chosen = flat[:: max(1, flat.numel() // 256)][:512]
        summed.update(f"{name} {tuple(parameter.shape)}".encode())
        summed.update(chosen.float().cpu().numpy().tobytes())
    return summed.hexdigest()[:16]


def end_tokens(model: Any, tokenizer: Any) -> set[int]:
    ends: set[int] = set()
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    for token in (configured, getattr(tokenizer, "eos_token_id", None)):
        if token is not None:
            ends.update(token if isinstance(token, (list, tuple)) else [token])
    return ends
