"""Pieces that rules share: the range map, normalisation to mean one, selections and quantiles."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.checks import extremes
from delta_rlvr.credit.reduce import wide

_ROUNDING = 1e-6  # scores may exceed 1 by the rounding of float32


def range_weights(
    batch: TokenBatch, score: Float[Tensor, " token"], lambda_min: float, lambda_max: float
) -> Float[Tensor, " token"]:
    """Map scores in [0, 1] into the range, with lambda_min where A = 0, and normalise to mean one (Eq. 8). A flat range gives ones.

    Tokens with A = 0 have no gradient but count for the mean, so that the mean of the others is above one.
    """
    if lambda_min == lambda_max:
        return batch.ones()
    score = torch.where(batch.side != 0, score.to(wide(score.device)), 0.0)
    weights = mean_one(batch, lambda_min + (lambda_max - lambda_min) * score)
    # Checked after the sum over ranks: a rank that raised before it would leave the others waiting.
    low, high = extremes(score)
    if not (low >= 0 and high <= 1 + _ROUNDING):
        raise ValueError(f"range_weights: the scores run from {low:.3g} to {high:.3g}; give scores in [0, 1]")
    return weights


def mean_one(
    batch: TokenBatch, coefficients: Float[Tensor, " token"], *, positive: bool = False
) -> Float[Tensor, " token"]:
    """Return lambda * N / Z, with a mean of one over the batch (Eq. 8). `positive`: the caller knows that no coefficient is 0."""
    total = batch.total(coefficients)
    weights = coefficients * (batch.token_count / total)
    if positive:
        return weights
    # Hard assignment with lambda_min = 0 (or without the range map) may give every token 0: then all weights are one. What cannot be
    # normalised stays as it is, so that its rule is refused with the token that is NaN or negative.
    unfit = torch.where(coefficients == 0, 1.0, coefficients)
    return torch.where((total > 0) & (total < torch.inf), weights, unfit)


def kept_weights(batch: TokenBatch, kept: Bool[Tensor, " token"]) -> Float[Tensor, " token"]:
    """Return the weights of DAPO on the kept tokens only, whose denominator counts only them: N / kept."""
    weights = kept.to(wide(kept.device))
    return weights * (batch.token_count / batch.total(weights).clamp(min=1))


def highest_share(
    batch: TokenBatch, order: Float[Tensor, " token"], share: float, *, seed: int = 0
) -> Bool[Tensor, " token"]:
    """Return which tokens are in the highest share by `order`, among those with A != 0 of all ranks; a seeded draw breaks ties."""
    eligible = batch.side != 0
    # Ranks hold different numbers of tokens: each gathers all of them and makes the same choice.
    everyone = torch.stack([batch.reducer.gather(values[eligible]) for values in (order, batch.draws(seed))])
    keep = int(share * everyone.shape[1] + 0.5)
    by_draw = everyone[1].argsort(descending=True, stable=True)
    ordered = by_draw[everyone[0][by_draw].argsort(descending=True, stable=True)]
    chosen = torch.zeros(everyone.shape[1], dtype=torch.bool, device=order.device)
    chosen[ordered[:keep]] = True
    before = sum(batch.reducer.gather_counts(int(eligible.sum()))[: batch.reducer.rank])
    kept = torch.zeros_like(eligible)
    kept[eligible] = chosen[before : before + int(eligible.sum())]
    return kept


def surprise(logps: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
    """Return 1 - p from log p."""
    return -torch.expm1(logps.clamp(max=0))


def quantiles(values: Float[Tensor, " many"], shares: Sequence[float]) -> Float[Tensor, " share"]:
    """Return linearly interpolated quantiles (torch.quantile refuses more than 16 million values)."""
    ordered = values.sort().values
    places = torch.tensor(shares, dtype=torch.float64) * (len(ordered) - 1)
    below = places.floor().long().to(ordered.device)
    above = places.ceil().long().to(ordered.device)
    return torch.lerp(ordered[below], ordered[above], (places.to(ordered) - below.to(ordered)))
