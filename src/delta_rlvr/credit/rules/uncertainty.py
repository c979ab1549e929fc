"""Scores that know nothing of the reward in the place of DelTA's alpha: what any credit has to beat."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.pieces import check_range, range_weights, surprise
from delta_rlvr.credit.rule import TokenRule, register


@dataclass(frozen=True)
class _Uncertainty(TokenRule):
    """A score in [0, 1], mapped as alpha is."""

    lambda_min: float = 0.8
    """Coefficient of a token with score 0, and of tokens without an advantage, before normalisation."""
    lambda_max: float = 1.2
    """Coefficient of a token with score 1 before normalisation."""

    mean_one = True
    sees_slices = True

    def __post_init__(self) -> None:
        check_range(self.lambda_min, self.lambda_max)


@register("surprise", about="tokens count by 1 - p of the sampled one", paper="beyond")
@dataclass(frozen=True)
class Surprise(_Uncertainty):
    """Tokens count by how unlikely they were: 1 - p of the sampled one."""

    needs = ("logps",)

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return range_weights(batch, surprise(batch.logps), self.lambda_min, self.lambda_max)


@register("entropy", about="tokens count by 1 - exp(-entropy)", paper="beyond")
@dataclass(frozen=True)
class Entropy(_Uncertainty):
    """Tokens count by how uncertain the old policy was: 1 - exp(-H), one minus the inverse of its perplexity there."""

    needs = ("entropy",)

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return range_weights(batch, surprise(-batch.entropy), self.lambda_min, self.lambda_max)
