"""What a token's loss is multiplied by, beside what verl itself multiplies it by. Tensors only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def multiplied(
    weights: Sequence[Float[Tensor, " time"]] | None, correction: Sequence[Float[Tensor, " time"]] | None
) -> list[Float[Tensor, " time"]]:
    """Token weights times verl's own rollout-correction weights, response by response; either may be missing, not both."""
    if weights is None:
        assert correction is not None
        return list(correction)
    if correction is None:
        return list(weights)
    return [ours * theirs for ours, theirs in zip(weights, correction, strict=True)]


def spread(
    weights: Float[Tensor, "batch time"], mask: Bool[Tensor, "batch time"], tokens: float
) -> tuple[float, float]:
    """Sum over the mask of the weight, and of its distance from one, each over `tokens`: what the loss really used."""
    here = torch.where(mask, weights, 0.0)
    away = torch.where(mask, (weights - 1).abs(), 0.0)
    return float(here.sum() / tokens), float(away.sum() / tokens)
