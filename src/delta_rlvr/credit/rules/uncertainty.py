"""Scores without any knowledge of the reward: baselines that any credit has to beat."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.pieces import surprise
from delta_rlvr.credit.rule import register
from delta_rlvr.credit.rules.ranged import Scored


@register("surprise", about="tokens count by 1 - p of the sampled one", paper="beyond")
@dataclass(frozen=True)
class Surprise(Scored):
    """Tokens count by how unlikely they were: 1 - p."""

    needs = ("logps",)

    def score(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return surprise(batch.logps)


@register("entropy", about="tokens count by 1 - exp(-entropy)", paper="beyond")
@dataclass(frozen=True)
class Entropy(Scored):
    """Tokens count by how uncertain the old policy was: 1 - exp(-H), one minus the inverse of its perplexity at that position."""

    needs = ("entropy",)

    def score(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return surprise(-batch.entropy)
