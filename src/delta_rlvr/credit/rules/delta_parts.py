"""Parts of DelTA's weights, as controls that show where a gain comes from.

DelTA shifts weight between right and wrong responses, tells the tokens of a side apart, and changes the size of the update. Each of
these rules keeps one part of DelTA's weights and averages out the others. The sides are the tokens with A > 0 and with A < 0, over
all ranks; tokens with A = 0 keep their weight.

    side    every token gets the mean weight of its side
    token   each weight over the mean of its side, times the mean over both sides
    scale   every token gets the mean weight over both sides
    mass    every token of a side gets one weight that gives the side DelTA's update mass, the sum of weight |A| (1 - p)

A token's mass, not its weight, is about the size of its update. DelTA may raise a side's mean weight and lower its mass.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.pieces import surprise
from delta_rlvr.credit.record import CreditRecord
from delta_rlvr.credit.reduce import wide
from delta_rlvr.credit.rule import register
from delta_rlvr.credit.rules.ablations import Ablation


@register("delta-side", about="the mean of DelTA's weights on each side", paper="beyond", part="side")
@register("delta-token", about="only DelTA's differences within a side", paper="beyond", part="token")
@register("delta-scale", about="the mean of DelTA's weights where A != 0", paper="beyond", part="scale")
@register("delta-mass", about="one weight per side with the update mass of DelTA's", paper="beyond", part="mass")
@dataclass(frozen=True)
class DeltaPart(Ablation):
    """One part of DelTA's weights."""

    part: Literal["side", "token", "scale", "mass"] = "side"
    """The part that is kept: the means of the sides, the differences within them, the mean over both, or the sides' update masses."""

    @property
    def needs(self) -> Collection[str]:
        return tuple(dict.fromkeys((*super().needs, *(("logps",) if self.part == "mass" else ()))))

    @property
    def mean_one(self) -> bool:
        """All parts but "mass" keep the sum over the tokens with an advantage."""
        return super().mean_one and self.part != "mass"

    def weigh(self, batch: TokenBatch) -> CreditRecord:
        record = super().weigh(batch)
        weights = record.weights.to(wide(record.weights.device))
        kept = torch.where(batch.side != 0, self._part(batch, weights), weights)
        return replace(record, weights=kept.to(record.weights.dtype))

    def _part(self, batch: TokenBatch, weights: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        """Return the part for tokens with an advantage, and anything for the others."""
        ones, side = batch.ones(), batch.side
        if self.part == "mass":
            return _mean(batch, side, weights, batch.token_advantages.abs() * surprise(batch.logps))
        of_side, of_both = _mean(batch, side, weights, ones), _mean(batch, side.abs(), weights, ones)
        if self.part == "token":
            return torch.where(of_side > 0, weights / of_side, 1.0) * of_both
        return of_side if self.part == "side" else of_both


def _mean(
    batch: TokenBatch, key: Tensor, weights: Float[Tensor, " token"], over: Float[Tensor, " token"]
) -> Float[Tensor, " token"]:
    """Return for each token the mean of the weights with its key, weighted by `over`, over all ranks; 1 where `over` is 0."""
    total, norm = batch.sums_by(key, weights * over), batch.sums_by(key, over)
    return torch.where(norm > 0, total / norm, 1.0)
