"""From what a pass showed of a rollout batch to its token weights, and to what observers see. Nothing here knows TRL's trainer."""

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
    """What is known of a rollout batch of this rank before its weights are, in the order in which the responses were generated."""

    step: int
    """The optimizer step that it is first used in, from 1."""
    round_number: int
    """A number that no other rollout batch has."""
    closely: bool
    """Whether observers want entropies and other methods' weights too."""
    rows: list[dict[str, Any]]
    """The data set's row of each response."""
    prompt_ids: Int[Tensor, "batch prompt"]
    prompt_mask: Int[Tensor, "batch prompt"]
    numbers: Int[Tensor, " batch"]
    """The number of each response in the batch over all ranks."""
    groups: Int[Tensor, " batch"]
    """The number of the prompt that it answers."""
    rewards: Float[Tensor, " batch"]
    alike: Bool[Tensor, " batch"]
    """Whether all rewards of its group, over all ranks, are equal."""
    sampler_logps: Float[Tensor, "batch time"] | None = None
    """The sampler's log-probs, where the rule is to read those and not the pass's."""


class Weigher:
    """Solves for the weights of rollout batches, one at a time: a store, the rules that read it, and the ranks that share a batch."""

    def __init__(self, method: Method, shown: tuple[str, ...], store: RowStore, accelerator: Accelerator):
        self.method = method
        self.store = store
        self._accelerator = accelerator
        self._others = {name: get_method(name).rule for name in shown if name != method.name}

    @property
    def needs_head(self) -> bool:
        return "head" in self.method.rule.needs

    def warm_up(self, width: int, dtype: torch.dtype) -> None:
        """Compile what a solve will run, so that no step waits for it."""
        if self.method.rule.stores is not None:
            ranks = self._accelerator.num_processes > 1
            kernels.warm_up(width, dtype, self._accelerator.device, ranks=ranks)

    def stream(
        self, *, closely: bool, head: Callable[[], Float[Tensor, "vocab width"]], temperature: float
    ) -> CreditStream:
        """What a rollout batch is captured into. `head` is asked only where the rule needs it."""
        device = self._accelerator.device
        keeps = self.method.rule
        if keeps.stores is None and closely:  # hidden states are then kept for the others' weights alone
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
        """The method's weights. Every rank must call this."""
        return self._solve(self.method.rule, capture, rollout, advantages)

    def diagnosed(
        self, capture: Capture, rollout: BatchFacts, advantages: Float[Tensor, " batch"], record: CreditRecord
    ) -> CreditRecord:
        """The record with its diagnostics, where somebody looks closely. Every rank must call this.

        The weights are solved for once more, so that the seconds of `weigh` mean the same whether or not anyone looks.
        """
        if not rollout.closely:
            return record
        looked = self._again(self.method.rule, capture, rollout, advantages, diagnose=True)
        return replace(record, diagnostics=looked.diagnostics)

    def _again(
        self,
        rule: TokenRule,
        capture: Capture,
        rollout: BatchFacts,
        advantages: Float[Tensor, " batch"],
        diagnose: bool = False,
    ) -> CreditRecord:
        """A further solve of a batch: that it is without a contrast was said at the first one."""
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
        """The batch as observers see it. Every rank must call this."""
        others: dict[str, Float[Tensor, " token"]] = {}
        if rollout.closely:
            # Those that can be read from the rows that were stored.
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
