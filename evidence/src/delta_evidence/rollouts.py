"""Rollout batches of policies that run side by side: sampled, judged, and scored by the pass that credit reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_evidence.judging import Asked, Judge, Judged
from delta_evidence.phases import Phases
from delta_evidence.shots import line_ends
from delta_evidence.stack.memory import with_fewer_rows
from delta_evidence.stack.policy import StackedPolicy
from delta_evidence.stack.sampling import StackedSampler
from delta_rlvr.evaluate.local_sampler import end_tokens
from delta_rlvr.models.prompts import encode_prompt
from delta_rlvr.objectives import group_advantages
from delta_rlvr.tasks import Problem, Task


@dataclass(frozen=True)
class Rollouts:
    """One policy's rollout batch: responses to the same prompt side by side."""

    problems: list[Problem]
    """What each response answers."""
    texts: list[str]
    """The responses, decoded, without special tokens."""
    prompt_ids: Int[Tensor, "batch prompt"]
    prompt_mask: Bool[Tensor, "batch prompt"]
    """Padding stands on the left."""
    completion_ids: Int[Tensor, "batch time"]
    mask: Bool[Tensor, "batch time"]
    """Valid response tokens, the end token included."""
    hidden: Float[Tensor, "batch time width"]
    """The LM head's input where each token was predicted."""
    logps: Float[Tensor, "batch time"]
    """Old log-probs."""
    entropy: Float[Tensor, "batch time"]
    correct: Float[Tensor, " batch"]
    """The verdicts."""
    rewards: Float[Tensor, " batch"]
    """What training sees: the verdicts, some of them flipped where noise was asked for."""
    advantages: Float[Tensor, " batch"]
    groups: Int[Tensor, " batch"]
    decisive: Bool[Tensor, "batch time"] | None
    """The tokens that decided, where the task knows and somebody asked."""
    measured: Float[Tensor, "batch time"] | None = None
    """Measured credit, where somebody measured it; 0 elsewhere."""
    temperature: float = 1.0
    """Of sampling, and of the log-probs and the entropy."""


@dataclass(frozen=True)
class Batch:
    """What one policy is asked in one rollout batch."""

    task: Task
    problems: Sequence[Problem]
    """One a prompt; each is answered `group` times."""
    seed: int
    """Of the samples and of the noise: the same seed gives two policies the same random numbers."""
    max_tokens: int
    """Longest response."""
    reward_noise: float = 0.0
    """Share of the verdicts that is flipped."""
    decisive: bool = False
    """Whether the decisive tokens are wanted."""


class Answers(NamedTuple):
    """What the policies of a stack were asked, and what they said."""

    prompts: Int[Tensor, "run prompts prompt"]
    prompt_mask: Bool[Tensor, "run prompts prompt"]
    ids: Int[Tensor, "run batch time"]
    mask: Bool[Tensor, "run batch time"]
    verdicts: Iterator[Judged]
    """In the making: they are waited for where they are read."""


@dataclass
class Collector:
    """Makes rollout batches with one set of policies, tokenizer and sampler."""

    policy: StackedPolicy
    sampler: StackedSampler
    tokenizer: Any
    judge: Judge
    rows_at_once: int
    """Rows (over all policies) that go through the old-log-prob pass together; fewer once the device ran out of memory."""
    phases: Phases

    @torch.no_grad()
    def collect(
        self, batches: Sequence[Batch], *, group: int, number: int = 0, temperature: float = 1.0, ragged: bool = False
    ) -> list[Rollouts]:
        """One rollout batch a policy. `number` tells the batches of a run apart. `ragged` leaves padding out of the old-log-prob
        pass: the same up to rounding, and quicker for long prompts that begin alike."""
        if len({len(batch.problems) for batch in batches}) != 1:
            raise ValueError("every policy must be asked the same number of prompts: they run side by side")
        with self.phases("sampling"):
            shape = max(batch.max_tokens for batch in batches), len(batches[0].problems) * group
            uniforms = [torch.from_numpy(draws(batch.seed, number, shape).T) for batch in batches]
            # Judged while the device makes the old log-probs.
            prompts, prompt_mask, ids, mask, verdicts = self.answer(
                batches, torch.stack(uniforms), copies=group, temperature=temperature
            )
        with self.phases("old log-probs"):
            hidden, logps, entropy = self.score(prompts, prompt_mask, ids, group, temperature, mask if ragged else None)
        with self.phases("judging"):
            judged = list(verdicts)
        tensors = {
            "prompt_ids": prompts.repeat_interleave(group, dim=1),
            "prompt_mask": prompt_mask.repeat_interleave(group, dim=1),
            "completion_ids": ids,
            "mask": mask,
            "hidden": hidden,
            "logps": logps,
            "entropy": entropy,
        }
        return [
            _rollouts(batch, verdict, group, number, temperature, {name: part[place] for name, part in tensors.items()})
            for place, (batch, verdict) in enumerate(zip(batches, judged, strict=True))
        ]

    def alone(self, run: int) -> Collector:
        """The same for one of the policies as it is at the time of each call."""
        policy = self.policy.alone(run)
        return replace(self, policy=policy, sampler=self.sampler.another(policy))

    def encode(
        self, questions: Sequence[Sequence[Problem]]
    ) -> tuple[Int[Tensor, "run prompts prompt"], Bool[Tensor, "run prompts prompt"]]:
        """Each policy's prompts, left-padded to one length, and which of their tokens are real."""
        # Runs of one seed are asked the same: every prompt is encoded once.
        known = {id(p): p for asked in questions for p in asked}
        ids_of = {key: encode_prompt(self.tokenizer, p.prompt) for key, p in known.items()}
        every = left_padded([ids_of[id(p)] for asked in questions for p in asked], self.tokenizer)
        ids, real = (part.unflatten(0, (len(questions), -1)).to(self.policy.device) for part in every)
        return ids, real

    def answer(
        self, batches: Sequence[Batch], uniforms: Float[Tensor, "run batch time"], *, copies: int, temperature: float
    ) -> Answers:
        """Responses, each policy's cut at its own limit (tasks with different limits may stand in one stack), and their verdicts."""
        prompts, prompt_mask = self.encode([batch.problems for batch in batches])
        ids, mask = self.sampler.sample(
            prompts, prompt_mask, uniforms.to(prompts.device), temperature=temperature, copies=copies
        )
        limits = torch.tensor([batch.max_tokens for batch in batches], device=ids.device)
        mask = mask & (torch.arange(ids.shape[2], device=ids.device) < limits[:, None])[:, None]
        ids = ids.masked_fill(~mask, self.tokenizer.pad_token_id)
        asked = [
            Asked(
                batch.task,
                batch.problems,
                copies,
                [row[:length] for row, length in zip(rows, lengths, strict=True)],
                batch.decisive,
            )
            for batch, rows, lengths in zip(batches, ids.tolist(), mask.sum(2).tolist(), strict=True)
        ]
        return Answers(prompts, prompt_mask, ids, mask, self.judge(asked))

    @torch.no_grad()
    def score(
        self,
        prompts: Int[Tensor, "run prompts prompt"],
        prompt_mask: Bool[Tensor, "run prompts prompt"],
        ids: Int[Tensor, "run batch time"],
        group: int,
        temperature: float,
        mask: Bool[Tensor, "run batch time"] | None = None,
    ) -> tuple[Float[Tensor, "run batch time width"], Float[Tensor, "run batch time"], Float[Tensor, "run batch time"]]:
        """The old-log-prob pass, a few prompts with their responses at a time: hidden states, log-probs, entropy. With `mask` only
        valid tokens are worked on."""

        def by_pieces(rows_at_once: int) -> tuple[Tensor, ...]:
            pieces = []
            for rows in row_pieces(ids.shape[1], ids.shape[0], rows_at_once, whole=group):
                asked = slice(rows.start // group, rows.stop // group)
                valid = None if mask is None else mask[:, rows]
                hidden = self.policy.response_hidden(
                    prompts[:, asked], prompt_mask[:, asked], ids[:, rows], copies=group, mask=valid
                )
                logps, entropy = self.policy.token_logps(hidden, ids[:, rows], temperature, entropy=True, mask=valid)
                assert entropy is not None
                pieces.append((hidden, logps, entropy))
            return tuple(torch.cat(parts, dim=1) for parts in zip(*pieces, strict=True))

        (hidden, logps, entropy), self.rows_at_once = with_fewer_rows(
            by_pieces, min(self.rows_at_once, ids[..., 0].numel()), len(ids) * group, self.phases.tell
        )
        return hidden, logps, entropy


def make_collector(
    model: Any,
    tokenizer: Any,
    *,
    runs: int,
    one_line: bool,
    judge: Judge,
    device: str | torch.device = "cpu",
    compute_dtype: torch.dtype = torch.float32,
    rows_at_once: int = 1024,
    phases: Phases | None = None,
) -> Collector:
    """Copies of a model, ready to be sampled from. `one_line`: a response ends with its line."""
    ends = end_tokens(model, tokenizer) | (line_ends(tokenizer) if one_line else set())
    policy = StackedPolicy.from_model(model, runs, compute_dtype=compute_dtype, device=device)
    sampler = StackedSampler(policy, ends=ends, pad=tokenizer.pad_token_id)
    return Collector(policy, sampler, tokenizer, judge, rows_at_once, phases or Phases())


def left_padded(
    rows: Sequence[list[int]], tokenizer: Any
) -> tuple[Int[Tensor, "batch time"], Bool[Tensor, "batch time"]]:
    """Tokens with padding on the left, and which of them are real."""
    longest = max(map(len, rows))
    ids = [[tokenizer.pad_token_id] * (longest - len(row)) + row for row in rows]
    padding = torch.tensor([longest - len(row) for row in rows])
    return torch.tensor(ids), torch.arange(longest) >= padding[:, None]


def row_pieces(rows: int, runs: int, rows_at_once: int, whole: int = 1) -> list[slice]:
    """Slices of the batch axis, each of whole groups, such that all policies together have at most about `rows_at_once` rows in one."""
    step = max(1, rows_at_once // (runs * whole)) * whole
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def draws(seed: int, number: int, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """Uniform numbers that depend on the seed and the number of the batch alone."""
    # NumPy writes a list of numbers as 32-bit words, zeros at the end left out: [seed + (256 << 32), 0] and [seed, 256] are one
    # stream. So from batch 256 on the number stands apart, as a spawn key; the streams of earlier batches are those of kept outcomes.
    source = np.random.SeedSequence([seed, number])
    if number >= 256:
        source = np.random.SeedSequence(seed, spawn_key=(number,))
    return np.random.Generator(np.random.Philox(source)).random(shape)


def flip(correct: Float[Tensor, " batch"], noise: float, seed: int, number: int) -> Float[Tensor, " batch"]:
    """Verdicts of which a share `noise` is wrong. Draws of their own, so that noise does not move the samples."""
    if not 0 <= noise <= 1:
        raise ValueError(f"reward_noise={noise}: give a share between 0 and 1")
    drawn = torch.from_numpy(draws(seed + (1 << 40), number, (len(correct),)))
    return torch.where(drawn.to(correct.device) < noise, 1 - correct, correct)


def _rollouts(
    batch: Batch, verdict: Judged, group: int, number: int, temperature: float, tensors: dict[str, Tensor]
) -> Rollouts:
    device = tensors["mask"].device
    correct = torch.tensor(verdict.correct, device=device)
    rewards = flip(correct, batch.reward_noise, batch.seed, number)
    decisive = None
    if verdict.decisive is not None:
        decisive = torch.zeros_like(tensors["mask"])
        decisive[tensors["mask"]] = torch.tensor(
            [flag for flags in verdict.decisive for flag in flags], dtype=torch.bool, device=device
        )
    prompts = len(batch.problems)
    return Rollouts(
        problems=[problem for problem in batch.problems for _ in range(group)],
        texts=verdict.texts,
        correct=correct,
        rewards=rewards,
        advantages=group_advantages(rewards, group),
        groups=torch.arange(prompts, device=device).repeat_interleave(group),
        decisive=decisive,
        temperature=temperature,
        **tensors,
    )
