"""Base classes of rules with weights in a range around one, like DelTA's."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.checks import check_declared, require
from delta_rlvr.credit.pieces import range_weights
from delta_rlvr.credit.rule import TokenRule, setting


@dataclass(frozen=True)
class Ranged(TokenRule):
    """A rule whose coefficients lie in a range."""

    lambda_min: float = setting(0.8, "[0, inf)")
    """The smallest coefficient before normalisation; tokens without an advantage have it."""
    lambda_max: float = setting(1.2, "(0, inf)")
    """The largest coefficient before normalisation."""

    def __post_init__(self) -> None:
        check_declared(self)
        super().__post_init__()
        require(
            self.lambda_min <= self.lambda_max,
            f"lambda_min={self.lambda_min} is above lambda_max={self.lambda_max}: swap them, "
            "or give both the same value for plain DAPO",
        )


@dataclass(frozen=True)
class Scored(Ranged):
    """A rule with its own score in [0, 1] instead of DelTA's alpha."""

    mean_one = True
    sees_slices = True

    def score(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        raise NotImplementedError

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return range_weights(batch, self.score(batch), self.lambda_min, self.lambda_max)
