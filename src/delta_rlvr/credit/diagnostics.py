"""Metrics of what weights do to an update: which side and which tokens they favour, and how concentrated they are."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.pieces import surprise
from delta_rlvr.credit.record import CreditRecord
from delta_rlvr.credit.reduce import Reducer, wide

SATURATED = 0.05
"""An assignment (alpha) within this distance of 0 or 1 counts as saturated."""


def diagnose(
    record: CreditRecord, advantages: Float[Tensor, " batch"], logps: Float[Tensor, " token"] | None
) -> dict[str, float]:
    """Return metrics of the weights of a batch, over all ranks (each of which must call this).

    update_share_positive  share of the right responses in the sum of weight |A| (1 - p), about the size of a token's update
                           (a token with p near 1 has hardly any gradient, whatever its weight)
    update_share_plain     that share with every weight one
    rank_{side}            rank correlation of weight and 1 - p on this side
    saturated              share of assignments (alpha) near 0 or 1, among tokens with an advantage
    weight_gini            Gini coefficient of the weights of tokens with an advantage: 0 if all are equal, near 1 if few have most
    weight_effective_share (sum w)^2 / (n sum w^2) of these weights: equal weights on this share of tokens are as concentrated
    """
    reducer = record.reducer or Reducer()
    weights = reducer.gather(record.weights.to(wide(record.weights.device)))
    side = reducer.gather(record.side)
    report: dict[str, float] = _concentration(weights[side != 0])
    if record.alpha is not None and bool((side != 0).any()):
        alpha = reducer.gather(record.alpha)[side != 0]
        report["saturated"] = ((alpha < SATURATED) | (alpha > 1 - SATURATED)).double().mean().item()
    if logps is None:
        return report
    strength = advantages.abs()[torch.repeat_interleave(record.lengths)].to(logps.dtype)
    uncertain = reducer.gather(surprise(logps))
    plain = reducer.gather(strength) * uncertain
    for name, mass in (("positive", weights * plain), ("plain", plain)):
        total = mass.sum()
        if total > 0:
            report[f"update_share_{name}"] = (mass[side > 0].sum() / total).item()
    for name, sign in (("positive", 1), ("negative", -1)):
        here = side == sign
        if int(here.sum()) > 2 and weights[here].std() > 0 and uncertain[here].std() > 0:
            report[f"rank_{name}"] = rank_correlation(weights[here], uncertain[here])
    return report


def _concentration(weights: Float[Tensor, " many"]) -> dict[str, float]:
    total = weights.sum()
    if not total > 0:
        return {}
    count = len(weights)
    ranks = torch.arange(1, count + 1, dtype=weights.dtype, device=weights.device)
    gini = 2 * (ranks * weights.sort().values).sum() / (count * total) - (count + 1) / count
    return {
        "weight_gini": gini.clamp(min=0).item(),
        "weight_effective_share": (total**2 / (count * (weights**2).sum())).item(),
    }


def rank_correlation(first: Float[Tensor, " many"], second: Float[Tensor, " many"]) -> float:
    """Return Spearman's rank correlation; ties get their mean rank."""
    return torch.corrcoef(torch.stack([_ranks(first), _ranks(second)]))[0, 1].item()


def _ranks(values: Float[Tensor, " many"]) -> Float[Tensor, " many"]:
    _, inverse, counts = values.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts - 1) / 2)[inverse]
