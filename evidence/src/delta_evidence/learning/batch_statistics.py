"""What is kept of a rollout batch of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from delta_evidence.rollouts import Rollouts
from delta_rlvr.objectives import mixed_share

DIAGNOSTICS = (
    "weight_positive_mean",
    "weight_negative_mean",
    "update_share_positive",
    "update_share_plain",
    "rank_positive",
    "rank_negative",
    "saturated",
    "reliability",
    "weight_gini",
    "weight_effective_share",
)
"""Numbers about the weights that outcomes keep (`CreditRecord.summary`, `credit.diagnostics`)."""
DIAGNOSED_EVERY = 5


@dataclass(frozen=True)
class BatchStatistics:
    """What is kept of a rollout batch of one run."""

    number: int
    """From 0."""
    accuracy: float
    """Mean verdict, before any noise: on problems that the run has not seen."""
    reward: float
    """Mean reward, noise included."""
    signal_groups: float
    """Share of groups whose rewards differ."""
    length: float
    """Mean tokens per response."""
    entropy: float
    """Mean over the valid tokens."""
    weight_sd: float
    """Standard deviation of the weights over the tokens with an advantage."""
    losses: tuple[float, ...]
    """Loss of each update."""
    gradient_norms: tuple[float, ...]
    """Before clipping."""
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    """What the weights do to the update (`DIAGNOSTICS`), in every `DIAGNOSED_EVERY`-th batch."""


def batch_statistics(
    number: int,
    rollouts: Rollouts,
    weights: Float[Tensor, "batch time"],
    group: int,
    *,
    losses: tuple[float, ...],
    norms: tuple[float, ...],
    diagnostics: Mapping[str, float],
) -> BatchStatistics:
    """Of one run's batch, with the losses and gradient norms of its updates."""
    sided = rollouts.mask & (rollouts.advantages != 0)[:, None]
    means = {
        "accuracy": rollouts.correct.mean(),
        "reward": rollouts.rewards.mean(),
        "signal_groups": mixed_share(rollouts.rewards, group),
        "length": rollouts.mask.sum(1).float().mean(),
        "entropy": rollouts.entropy[rollouts.mask].mean(),
        "weight_sd": weights[sided].std(correction=0) if sided.any() else weights.new_zeros(()),
    }
    # Stacked: one wait for the device.
    values = dict(zip(means, torch.stack(list(means.values())).tolist(), strict=True))
    return BatchStatistics(number, losses=losses, gradient_norms=norms, diagnostics=diagnostics, **values)
