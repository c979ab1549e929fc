"""Weights that rise or fall with 1 - p, with one slope for right and one for wrong responses: the plane of confidence.

    w = (1 + c (s - 1/2)) / Z,    s = 1 - p,    c = `right` where A > 0, `wrong` where A < 0
    Z = sum |A| s (1 + c (s - 1/2)) / sum |A| s                        over the batch, all ranks

|A| s is about the size of a token's update: with a mean of one over it, all settings take steps of the same size to first order.
Tokens without an advantage get 1. By the signs of (`right`, `wrong`), published methods are in three corners of the plane
(docs/methods.md) and DelTA, on real models, is in the fourth, (-, +).

`fading` multiplies both slopes by min(1, mean entropy / `nats`): DelTA's corner while the policy is uncertain, DAPO once it is certain.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.pieces import surprise
from delta_rlvr.credit.rule import TokenRule, register, setting


@register("confidence", about="weights that rise or fall with 1 - p, by side", paper="beyond")
@dataclass(frozen=True)
class Confidence(TokenRule):
    """Weights that rise or fall with 1 - p, by side."""

    right: float = setting(-0.4, "[-2, 2]")
    """Slope of the weight against 1 - p where A > 0; beyond 2 weights would be negative."""
    wrong: float = setting(0.4, "[-2, 2]")
    """Slope of the weight against 1 - p where A < 0."""

    sees_slices = True

    @property
    def needs(self) -> Collection[str]:
        return ("logps",)

    def share(self, batch: TokenBatch) -> Float[Tensor, ""] | float:
        """Return a factor of both slopes for this batch."""
        return 1.0

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        s = surprise(batch.logps)
        slope = torch.where(batch.side > 0, self.right, self.wrong).to(s) * self.share(batch)
        weights = 1 + slope * (s - 0.5)
        mass = batch.token_advantages.abs() * s
        whole, weighted = batch.total(mass), batch.total(mass * weights)
        # A policy that is certain of every token has no gradient: any scale would do.
        weights = torch.where(weighted > 0, weights * (whole / weighted), 1.0)
        return torch.where(batch.side != 0, weights, 1.0)


@register("fading", about="DelTA's corner while the policy is unsure, DAPO once it is sure", paper="beyond")
@dataclass(frozen=True)
class Fading(Confidence):
    """DelTA's corner of the plane while the policy is unsure, DAPO once it is sure."""

    nats: float = setting(0.5, "(0, inf)")
    """At this mean entropy per token and above, the slopes have their full size."""

    @property
    def needs(self) -> Collection[str]:
        return ("logps", "entropy")

    def share(self, batch: TokenBatch) -> Float[Tensor, ""]:
        return (batch.total(batch.entropy) / max(1, batch.token_count) / self.nats).clamp(0, 1)
