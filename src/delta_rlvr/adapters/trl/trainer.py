"""DelTA and its rivals on TRL's GRPOTrainer. Every internal of TRL's trainer that we rely on is used in this file and
nowhere else (its data sampler, in resume.py).

What happens in a rollout batch, and what we add to it:

    _generate                               we note the tool mask and the time
    _get_per_token_logps_and_entropies      TRL's old-log-prob pass: a hook keeps the hidden states it computes anyway
    _calculate_rewards                      we refuse infinite rewards and note the time
    advantages                              now the coefficients can be solved; they ride as per-token advantages
    _compute_loss                           stock (FIPO's surrogate weighs tokens anew, once the new log-probs are there)

TRL skips the old-log-prob pass where the ratio would be one. We ask for it always: it is the pass that the hidden states come from,
and with it every method does the same work.
"""

from __future__ import annotations

import contextlib
import math
import platform
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import trl
from accelerate.utils import gather_object, is_peft_model
from jaxtyping import Bool, Float, Int
from torch import Tensor
from trl import GRPOTrainer

from delta_rlvr.adapters.trl.capture import Capture
from delta_rlvr.adapters.trl.config import DeltaTrainerConfig
from delta_rlvr.adapters.trl.head import check_head, logit_scale, whole_head
from delta_rlvr.adapters.trl.resume import ExactResume
from delta_rlvr.adapters.trl.rollout_batch import RolloutBatch, vocabulary_sums
from delta_rlvr.adapters.trl.version import VERSION_HELP, check_trl_version
from delta_rlvr.credit import CreditRecord, CreditStream, RowStore, TokenRule
from delta_rlvr.objectives import get_method


class DeltaTrainer(GRPOTrainer):
    """A drop-in for `GRPOTrainer` that weighs tokens by `args.method`."""

    args: DeltaTrainerConfig

    def __init__(self, *args: Any, **kwargs: Any):
        check_trl_version()
        config = kwargs.get("args") or (args[2] if len(args) > 2 else None)
        if not isinstance(config, DeltaTrainerConfig):
            raise TypeError(
                f"args: DeltaTrainer needs a DeltaTrainerConfig, not {type(config).__name__}; "
                "it takes every option of GRPOConfig"
            )
        super().__init__(*args, **kwargs)
        if self.rollout_func is not None:
            self.rollout_func = _refusing_empty(self.rollout_func)
        self.method = config.resolved_method
        self.seconds: dict[str, float] = defaultdict(float)
        """Seconds by phase since somebody last cleared it."""
        self.observers: list[Callable[[RolloutBatch], None]] = []
        """Called with every training rollout batch, on every rank."""
        self.looks_closely: Callable[[int], bool] = lambda step: False
        """For which steps observers also want entropies and the weights of `args.shown_methods`."""
        self._store = RowStore(
            device_bytes=_bytes(config.store_device_gb),
            host_bytes=_bytes(config.store_host_gb),
            ranks_on_node=gather_object([platform.node()]).count(platform.node()),
        )
        self._capture: Capture | None = None
        self._tool_masks: list[list[int]] | None = None
        self._rewards: Tensor | None = None
        self._loss_inputs: dict[str, Any] | None = None
        self._check_head()
        self.add_callback(ExactResume(self))

    # ------------------------------------------------------------------ the rollout batch

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        assert self.model is not None
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        self._capture = capture = Capture()
        with self._old_logps_always():
            output = super()._generate_and_score_completions(inputs)
        if self._capture is not None or "old_per_token_logps" not in output:
            raise RuntimeError(f"TRL {trl.__version__} ran no old-log-prob pass: {VERSION_HELP}")
        advantages = output["advantages"]
        with self._timed("credit"):
            record = self._weigh(capture, output, inputs)
        if record is not None:
            self._report(record, capture, output, inputs, advantages)
        self._store.clear()
        return output

    def _weigh(
        self, capture: Capture, output: dict[str, Any], inputs: list[dict[str, Any]]
    ) -> CreditRecord | None:
        """Solve for the coefficients and multiply them into the advantages."""
        if int(output["num_items_in_batch"]) == 0:
            warnings.warn(
                "no completion of this batch has a token to learn from (all were cut at max_completion_length and "
                "masked, or empty): it adds nothing to the gradient. Raise max_completion_length",
                stacklevel=2,
            )
            return None
        mask, advantages = capture.mask, output["advantages"]
        record = self._solve(self.method.rule, capture, output, advantages, diagnose=self._closely)
        if not self.method.rule.constant:
            # Every clip is homogeneous in A, so weighing the advantage is weighing the loss (Eq. 8).
            output["advantages"] = advantages[:, None] * record.padded(record.weights, mask).to(
                advantages.dtype
            )
        return record

    def _solve(
        self,
        rule: TokenRule,
        capture: Capture,
        output: dict[str, Any],
        advantages: Float[Tensor, " batch"],
        diagnose: bool = False,
    ) -> CreditRecord:
        return capture.stream.solve(
            advantages,
            logps=output["old_per_token_logps"][capture.mask],
            entropy=None if capture.entropy is None else capture.entropy[capture.mask],
            groups=self._groups(len(advantages)),
            round_number=self._round_number,
            config=rule,
            diagnose=diagnose,
        )

    def _other_weights(
        self, capture: Capture, output: dict[str, Any], advantages: Float[Tensor, " batch"]
    ) -> dict[str, Float[Tensor, " token"]]:
        """What other methods would have weighed the same tokens with, where it can be read from the rows that were stored."""
        rules = {name: get_method(name).rule for name in self.args.shown_methods if name != self.method.name}
        return {
            name: self._solve(rule, capture, output, advantages).weights
            for name, rule in rules.items()
            if capture.stream.reads(rule)
        }

    @property
    def _closely(self) -> bool:
        """Whether an observer wants to look closely at this batch."""
        return self.looks_closely(self.state.global_step + 1)

    @property
    def passes_per_batch(self) -> int:
        """Forward and backward passes over one rollout batch; then TRL generates the next."""
        assert self.args.steps_per_generation is not None
        return self.args.steps_per_generation * self.num_iterations

    @property
    def ends_batch(self) -> bool:
        """Whether the pass that just ended was the last one over its rollout batch."""
        return self._step % self.passes_per_batch == 0

    @property
    def planned_steps(self) -> int:
        """Optimizer steps of the whole training, where only epochs are given too."""
        *_, steps = self.set_initial_training_values(self.args, self.get_train_dataloader())
        return steps

    def load_weights(self, checkpoint: Path) -> None:
        """The weights of a checkpoint, without training on: for a run that was stopped after its last step."""
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError(f"all steps have been taken: the weights are in {checkpoint}")
        self._load_from_checkpoint(str(checkpoint))

    @property
    def _round_number(self) -> int:
        """A number for this rollout batch that no other has, and that a resumed run finds again (TRL's own counter starts over)."""
        accumulation = self.args.gradient_accumulation_steps
        return self.state.global_step * accumulation + self._step % accumulation

    def _stream(self) -> CreditStream:
        rules = [self.method.rule]
        if self._closely:  # hidden states may be kept for the others' weights alone
            rules += [get_method(name).rule for name in self.args.shown_methods]
        storing = [rule for rule in rules if rule.stores is not None and "head" not in rule.needs]
        return CreditStream(
            rules[0] if rules[0].stores is not None else next(iter(storing), rules[0]),
            head=self._head().to(self.accelerator.device) if self._needs_head else None,
            temperature=self.temperature / self._logit_scale,
            store=self._store,
            process_group=dist.group.WORLD if self.accelerator.num_processes > 1 else None,
            device=self.accelerator.device,
        )

    def _groups(self, count: int) -> Int[Tensor, " batch"]:
        """Which prompt a row of this rank answers: TRL lays the copies of a prompt side by side over all ranks."""
        first = self.accelerator.process_index * count
        assert self.num_generations is not None
        return torch.arange(first, first + count, device=self.accelerator.device) // self.num_generations

    def _report(
        self,
        record: CreditRecord,
        capture: Capture,
        output: dict[str, Any],
        inputs: list[dict[str, Any]],
        advantages: Tensor,
    ) -> None:
        """Metrics for TRL's trackers, and the batch for the observers."""
        metrics = self._metrics["train"]
        for name, value in record.summary().items():
            if not self.method.rule.constant or name == "zero_advantage":
                metrics[f"credit/{name}"].append(value)
        if capture.stream.needs_hidden:
            metrics["credit/store_bytes"].append(float(record.store_bytes))
        if not self.observers:
            return
        assert self._rewards is not None
        batch = RolloutBatch(
            step=self.state.global_step + 1,
            rows=inputs,
            groups=self._groups(len(inputs)),
            completion_ids=output["completion_ids"],
            mask=capture.mask,
            rewards=self._rewards,
            advantages=advantages,
            logps=output["old_per_token_logps"],
            entropy=capture.entropy,
            record=record,
            others=self._other_weights(capture, output, advantages) if self._closely else {},
            vocabulary=self._vocabulary_sums(record, output["completion_ids"][capture.mask]),
        )
        for observe in self.observers:
            observe(batch)

    def _vocabulary_sums(self, record: CreditRecord, ids: Int[Tensor, " token"]) -> Float[Tensor, "4 vocab"]:
        size = max(len(self._tokenizer), self._causal_model().get_input_embeddings().num_embeddings)
        sums = vocabulary_sums(record, ids, size)
        return self.accelerator.reduce(sums, reduction="sum") if self.accelerator.num_processes > 1 else sums

    # ------------------------------------------------------------------ TRL's steps, overridden

    def _generate(self, prompts: list[Any]) -> Any:
        with self._timed("generate"):
            generated = super()._generate(prompts)
        self._tool_masks = generated[2]
        return generated

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        capture = self._capture
        if capture is not None and model is self.model:
            # The first pass of a rollout batch is the old policy's; under PEFT the reference pass comes on the same model after it.
            self._capture = None
            # Only now, because a whole head must not lie about while completions are generated.
            capture.stream = self._stream()
            capture.mask = self._valid_tokens(attention_mask[:, -logits_to_keep:])
            capture.tokens = input_ids[:, -logits_to_keep:]
            wanted = "entropy" in self.method.rule.needs or self._closely
            kwargs["compute_entropy"] = kwargs.get("compute_entropy", False) or wanted
            with self._timed("logps"), capture.hook(self._backbone()):
                result = super()._get_per_token_logps_and_entropies(
                    model, input_ids, attention_mask, logits_to_keep, *args, **kwargs
                )
            capture.entropy = result[1]
            return result
        result = super()._get_per_token_logps_and_entropies(
            model, input_ids, attention_mask, logits_to_keep, *args, **kwargs
        )
        if self._loss_inputs is not None:
            self._reweigh(result[0], self._loss_inputs)
        return result

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        if not self.method.surrogate.reweighs:
            return super()._compute_loss(model, inputs)
        # The buffered batch must keep its advantages for the next pass over it.
        self._loss_inputs = inputs = dict(inputs)
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self._loss_inputs = None

    def _reweigh(self, logps: Tensor, inputs: dict[str, Any]) -> None:
        """Scale the advantages by the surrogate's weights at the current policy, between TRL's forward and its loss."""
        old = inputs.get("old_per_token_logps")
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        advantages = inputs["advantages"][:, None].expand_as(logps)
        log_ratio = torch.zeros_like(logps) if old is None else logps.detach() - old
        weights = self.method.surrogate.reweigh(log_ratio, advantages, mask.bool())
        inputs["advantages"] = advantages * weights.to(advantages.dtype)

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> Tensor:
        with self._timed("reward"):
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        infinite = rewards.isinf().nonzero()
        if len(infinite):
            row, column = infinite[0].tolist()
            raise ValueError(
                f"rewards: {self.reward_func_names[column]!r} gave {rewards[row, column].item()} for response {row} of the "
                "batch; give a finite number, or None for a response that cannot be scored"
            )
        first = self.accelerator.process_index * len(prompts)
        weighted = (rewards * self.reward_weights.to(rewards.device)).nansum(dim=1)
        weighted[rewards.isnan().all(dim=1)] = (
            torch.nan
        )  # nobody could score it: not the same as a reward of 0
        self._rewards = weighted[first : first + len(prompts)]
        return rewards

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        before = sum(self.seconds[phase] for phase in ("generate", "logps", "reward", "credit"))
        start = time.perf_counter()
        result = super().training_step(*args, **kwargs)
        rollout = sum(self.seconds[phase] for phase in ("generate", "logps", "reward", "credit")) - before
        self.seconds["update"] += time.perf_counter() - start - rollout
        return result

    # ------------------------------------------------------------------ what we need to know of the model

    def _valid_tokens(self, completion_mask: Tensor) -> Bool[Tensor, "batch time"]:
        """Completion tokens that count: not padding (nor masked truncation), not a tool's output."""
        mask = completion_mask.bool()
        if self._tool_masks is None:
            return mask
        for row, tool_mask in enumerate(self._tool_masks):
            written = torch.tensor(tool_mask, dtype=torch.bool, device=mask.device)
            mask[row, : len(written)] &= written
        return mask

    def _causal_model(self) -> Any:
        model = self.accelerator.unwrap_model(self.model)
        return model.get_base_model() if is_peft_model(model) else model

    def _backbone(self) -> Any:
        """The module whose output is the LM head's input."""
        return self._causal_model().base_model

    @property
    def _needs_head(self) -> bool:
        return "head" in self.method.rule.needs

    def _check_head(self) -> None:
        """Refuse at the start what the head proxies cannot follow."""
        model = self._causal_model()
        self._logit_scale = logit_scale(model.config.get_text_config())
        if self._needs_head:
            check_head(model, self.method.name)

    def _head(self) -> Float[Tensor, "vocab width"]:
        """The LM head's weight, whole: gathered where it is sharded, and only for the proxies that need it."""
        sharded = self.is_fsdp_enabled and self.accelerator.num_processes > 1
        return whole_head(self._causal_model(), fsdp_root=self.model_wrapped if sharded else None)

    @contextlib.contextmanager
    def _old_logps_always(self) -> Iterator[None]:
        """TRL runs its old-log-prob pass unless a whole number of generations fits an optimizer step; here none does."""
        real = self.num_iterations
        self.num_iterations = self.args.gradient_accumulation_steps + 1
        try:
            yield
        finally:
            self.num_iterations = real

    @contextlib.contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self.model is not None and self.model.training:  # an evaluation in between is not part of a step
            self.seconds[phase] += time.perf_counter() - start


def _refusing_empty(rollout_func: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """TRL fails on a completion without a token, and does not say on which."""

    def checked(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        output = rollout_func(prompts, trainer)
        for number, tokens in enumerate(output.get("completion_ids", [])):
            if not len(tokens):
                raise ValueError(
                    f"rollout_func gave no token for response {number}: give at least the end-of-sequence token"
                )
        return output

    return checked


def _bytes(gigabytes: float | None) -> int | None:
    return None if gigabytes is None else math.floor(gigabytes * 1e9)
