"""From a captured rollout batch to its token weights and its record for observers. Nothing here depends on TRL's trainer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from accelerate.accelerator import Accelerator
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.adapters.trl.capture import Capture
from delta_rlvr.adapters.trl.rollout_batch import RolloutBatch, vocabulary_sums
from delta_rlvr.credit import CreditRecord, CreditStream, RowStore, TokenRule, kernels
from delta_rlvr.credit.rules.delta import EMPTY_SIDE
from delta_rlvr.objectives import Method, get_method


@dataclass(frozen=True)
class BatchFacts:
    """This rank's share of a rollout batch before it has weights, its responses in the order of their generation."""

    step: int
    """The first optimizer step that uses it, from 1."""
    round_number: int
    """A number that no other rollout batch has."""
    closely: bool
    """Whether observers also want entropies and the weights of other methods."""
    rows: list[dict[str, Any]]
    """The data set's row of each response."""
    prompt_ids: Int[Tensor, "batch prompt"]
    prompt_mask: Int[Tensor, "batch prompt"]
    numbers: Int[Tensor, " batch"]
    """The index of each response in the batch over all ranks."""
    groups: Int[Tensor, " batch"]
    """The index of each response's prompt."""
    rewards: Float[Tensor, " batch"]
    alike: Bool[Tensor, " batch"]
    """Whether all rewards of the response's group are equal, over all ranks."""
    sampler_logps: Float[Tensor, "batch time"] | None = None
    """The sampler's log-probs, if they replace those of the pass."""


class Weigher:
    """Solves for the weights of rollout batches, one at a time."""

    def __init__(self, method: Method, shown: tuple[str, ...], store: RowStore, accelerator: Accelerator):
        self.method = method
        self.store = store
        self._accelerator = accelerator
        self._others = {name: get_method(name).rule for name in shown if name != method.name}

    @property
    def needs_head(self) -> bool:
        return "head" in self.method.rule.needs

    def warm_up(self, width: int, dtype: torch.dtype) -> None:
        """Compile the kernels of a solve, so that no step has to."""
        if self.method.rule.stores is not None:
            ranks = self._accelerator.num_processes > 1
            kernels.warm_up(width, dtype, self._accelerator.device, ranks=ranks)

    def stream(
        self, *, closely: bool, head: Callable[[], Float[Tensor, "vocab width"]], temperature: float
    ) -> CreditStream:
        """Return the stream that collects a rollout batch. `head` is called only if the rule needs the head."""
        device = self._accelerator.device
        keeps = self.method.rule
        if keeps.stores is None and closely:  # hidden states are then kept only for the weights of other methods
            storing = [rule for rule in self._others.values() if rule.stores and "head" not in rule.needs]
            keeps = next(iter(storing), keeps)
        return CreditStream(
            keeps,
            head=head().to(device) if self.needs_head else None,
            temperature=temperature,
            store=self.store,
            process_group=dist.group.WORLD if self._accelerator.num_processes > 1 else None,
            device=device,
        )

    def weigh(self, capture: Capture, rollout: BatchFacts, advantages: Float[Tensor, " batch"]) -> CreditRecord:
        """Return the method's weights. Every rank must call this."""
        return self._solve(self.method.rule, capture, rollout, advantages)

    def diagnosed(
        self, capture: Capture, rollout: BatchFacts, advantages: Float[Tensor, " batch"], record: CreditRecord
    ) -> CreditRecord:
        """Return the record with diagnostics, if observers want details. Every rank must call this.

        This is a second solve, so that the seconds of `weigh` are comparable between all steps.
        """
        if not rollout.closely:
            return record
        again = self._again(self.method.rule, capture, rollout, advantages, diagnose=True)
        return replace(record, diagnostics=again.diagnostics)

    def _again(
        self,
        rule: TokenRule,
        capture: Capture,
        rollout: BatchFacts,
        advantages: Float[Tensor, " batch"],
        diagnose: bool = False,
    ) -> CreditRecord:
        """Solve a batch again, without repeating the warning that it has no contrast."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=EMPTY_SIDE.partition("{")[0])
            return self._solve(rule, capture, rollout, advantages, diagnose)

    def _solve(
        self,
        rule: TokenRule,
        capture: Capture,
        rollout: BatchFacts,
        advantages: Float[Tensor, " batch"],
        diagnose: bool = False,
    ) -> CreditRecord:
        logps, entropy = _logps(capture, rollout), capture.entropy
        return capture.stream.solve(
            advantages,
            logps=None if logps is None else logps[capture.mask],
            entropy=None if entropy is None else entropy[capture.mask],
            groups=rollout.groups,
            keys=rollout.numbers,
            round_number=rollout.round_number,
            rule=rule,
            diagnose=diagnose,
        )

    def show(
        self,
        capture: Capture,
        rollout: BatchFacts,
        advantages: Float[Tensor, " batch"],
        record: CreditRecord,
        vocabulary: int,
    ) -> RolloutBatch:
        """Return the batch's record for observers. Every rank must call this."""
        others: dict[str, Float[Tensor, " token"]] = {}
        if rollout.closely:
            others = {
                name: self._again(rule, capture, rollout, advantages).weights
                for name, rule in self._others.items()
                if capture.stream.reads(rule)
            }
        sums = vocabulary_sums(record, capture.tokens[capture.mask], vocabulary)
        if self._accelerator.num_processes > 1:
            sums = self._accelerator.reduce(sums, reduction="sum")
        return RolloutBatch(
            step=rollout.step,
            rows=rollout.rows,
            prompt_ids=rollout.prompt_ids,
            prompt_mask=rollout.prompt_mask,
            groups=rollout.groups,
            completion_ids=capture.tokens,
            mask=capture.mask,
            rewards=rollout.rewards,
            advantages=advantages,
            logps=_logps(capture, rollout),
            entropy=capture.entropy,
            record=record,
            others=others,
            vocabulary=sums,
        )


def _logps(capture: Capture, rollout: BatchFacts) -> Float[Tensor, "batch time"] | None:
    return capture.logps if rollout.sampler_logps is None else rollout.sampler_logps
