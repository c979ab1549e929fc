"""The record of a rollout batch for observers of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.credit import CreditRecord


@dataclass(frozen=True)
class RolloutBatch:
    """One generation batch of this rank, for observers such as the run folder or a notebook."""

    step: int
    """The first optimizer step that uses it, from 1."""
    rows: list[dict[str, Any]]
    """The data set's row of each response."""
    prompt_ids: Int[Tensor, "batch prompt"]
    """The prompt of each response in tokens, padded on the left."""
    prompt_mask: Int[Tensor, "batch prompt"]
    groups: Int[Tensor, " batch"]
    """The index of each response's prompt in the whole batch."""
    completion_ids: Int[Tensor, "batch time"]
    mask: Bool[Tensor, "batch time"]
    """Valid response tokens: no padding, no tool output, no masked truncation."""
    rewards: Float[Tensor, " batch"]
    advantages: Float[Tensor, " batch"]
    """TRL's advantages, but exactly 0 in a group whose rewards are equal."""
    logps: Float[Tensor, "batch time"] | None
    """Old log-probs (the sampler's with `logps_from="sampler"`); None if the weights needed no pass."""
    entropy: Float[Tensor, "batch time"] | None
    """Entropy of the old policy at each token's position; None if it was not needed."""
    record: CreditRecord
    others: dict[str, Float[Tensor, " token"]]
    """The weights of other methods for these tokens, at sampled steps."""
    vocabulary: Float[Tensor, "4 vocab"]
    """For each vocabulary entry, over all ranks: count and sum of weights on the positive side, then both on the negative side."""


def vocabulary_sums(record: CreditRecord, ids: Int[Tensor, " token"], size: int) -> Float[Tensor, "4 vocab"]:
    """Return `RolloutBatch.vocabulary` for this rank. `ids` are the record's tokens."""
    sums = torch.zeros(4, size, dtype=torch.float64, device=ids.device)
    for row, sign in ((0, 1), (2, -1)):
        chosen = record.side == sign
        sums[row].index_add_(0, ids[chosen], torch.ones_like(record.weights[chosen], dtype=torch.float64))
        sums[row + 1].index_add_(0, ids[chosen], record.weights[chosen].double())
    return sums
