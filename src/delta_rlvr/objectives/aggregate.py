"""Averages of token losses."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from delta_rlvr.objectives.surrogates import LossInputs, Surrogate

Aggregation: TypeAlias = Literal["token_mean", "sequence_mean"]


def policy_loss(
    inputs: LossInputs,
    surrogate: Surrogate,
    aggregation: Aggregation = "token_mean",
    *,
    denominator: float | Tensor | None = None,
) -> Float[Tensor, ""]:
    """Return the loss of a (mini-)batch: the average of surrogate times weight.

    With lambda-bar as weights and the token mean this is Eq. 8. `denominator` replaces the mini-batch's number of tokens (or
    responses): pass the rollout batch's number, divided by that of mini-batches, so that accumulation does not depend on their sizes.
    """
    losses = surrogate(inputs)
    if inputs.weights is not None:
        losses = losses * inputs.weights
    average = token_mean if aggregation == "token_mean" else sequence_mean
    return average(losses, inputs.mask, denominator)


def token_mean(
    losses: Float[Tensor, "batch time"], mask: Bool[Tensor, "batch time"], denominator: float | Tensor | None = None
) -> Float[Tensor, ""]:
    """Return the mean over all valid tokens (DAPO)."""
    total = torch.where(mask, losses, 0.0).sum()
    return total / (mask.sum().clamp(min=1) if denominator is None else denominator)


def sequence_mean(
    losses: Float[Tensor, "batch time"], mask: Bool[Tensor, "batch time"], denominator: float | Tensor | None = None
) -> Float[Tensor, ""]:
    """Return the mean over responses of their token means (GRPO, SAPO)."""
    lengths = mask.sum(-1)
    means = torch.where(mask, losses, 0.0).sum(-1) / lengths.clamp(min=1)
    return means.sum() / ((lengths > 0).sum().clamp(min=1) if denominator is None else denominator)
