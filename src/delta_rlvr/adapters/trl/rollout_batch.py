"""What observers of a training get to see of each rollout batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.credit import CreditRecord


@dataclass(frozen=True)
class RolloutBatch:
    """One generation batch of this rank, as observers (the run folder, a notebook) get to see it."""

    step: int
    """The optimizer step that it is first used in, from 1."""
    rows: list[dict[str, Any]]
    """The data set's row of each response."""
    prompt_ids: Int[Tensor, "batch prompt"]
    """The prompt of each response as the policy read it, padded on the left."""
    prompt_mask: Int[Tensor, "batch prompt"]
    groups: Int[Tensor, " batch"]
    """Number of the prompt in the whole batch."""
    completion_ids: Int[Tensor, "batch time"]
    mask: Bool[Tensor, "batch time"]
    """Valid response tokens: no padding, no tool output, no masked truncation."""
    rewards: Float[Tensor, " batch"]
    advantages: Float[Tensor, " batch"]
    """TRL's; exactly 0 in a group whose rewards are equal."""
    logps: Float[Tensor, "batch time"] | None
    """Old log-probs (the sampler's with `logps_from="sampler"`); None where no pass was needed for the weights."""
    entropy: Float[Tensor, "batch time"] | None
    """Entropy of the old policy where each token was sampled; None where nobody asked for it."""
    record: CreditRecord
    others: dict[str, Float[Tensor, " token"]]
    """Other methods' weights on the same tokens, at steps that are looked at closely."""
    vocabulary: Float[Tensor, "4 vocab"]
    """Over all ranks and per vocabulary entry: count and coefficient sum on the positive side, the same on the negative."""


def vocabulary_sums(record: CreditRecord, ids: Int[Tensor, " token"], size: int) -> Float[Tensor, "4 vocab"]:
    """Per vocabulary entry: count and coefficient sum on the positive side, the same on the negative. `ids`: the record's tokens."""
    sums = torch.zeros(4, size, dtype=torch.float64, device=ids.device)
    for row, sign in ((0, 1), (2, -1)):
        chosen = record.side == sign
        sums[row].index_add_(0, ids[chosen], torch.ones_like(record.weights[chosen], dtype=torch.float64))
        sums[row + 1].index_add_(0, ids[chosen], record.weights[chosen].double())
    return sums
