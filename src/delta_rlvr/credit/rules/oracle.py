"""Perfect credit on tasks that know their decisive tokens: the most that any token weight in the same range could know."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.pieces import check_range, range_weights
from delta_rlvr.credit.rule import TokenRule, register


@register("oracle", about="perfect credit in DelTA's range", paper="beyond")
@register("oracle-wide", about="perfect credit in [0.5, 1.5]", paper="beyond", lambda_min=0.5, lambda_max=1.5)
@register("oracle-only", about="the decisive tokens alone", paper="beyond", lambda_min=0.0, lambda_max=1.0)
@dataclass(frozen=True)
class Oracle(TokenRule):
    """lambda_max on the decisive tokens of responses with an advantage, lambda_min elsewhere, then mean one."""

    lambda_min: float = 0.8
    """Weight of the other tokens before normalisation."""
    lambda_max: float = 1.2
    """Weight of the decisive tokens before normalisation."""

    needs = ("decisive",)
    mean_one = True
    sees_slices = True

    def __post_init__(self) -> None:
        check_range(self.lambda_min, self.lambda_max)

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return range_weights(batch, batch.decisive.float(), self.lambda_min, self.lambda_max)
