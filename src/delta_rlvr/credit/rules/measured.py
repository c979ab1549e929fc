"""Measured credit as a token weight: VinePPO's values by continuations (arXiv 2410.01679), for each token.

    credit = V(after the token) - V(before it)
    score  = max(0, sign(A) credit)                       in [0, 1], as rewards are
    weight = (lambda_min + (lambda_max - lambda_min) score) N / Z, with lambda_min on tokens without an advantage

Difference from VinePPO: there the credit is the advantage of a whole reasoning step. Here the advantage stays the group's, as in every
method of this package, and the credit weighs the tokens: those of a right response by what they added to the chance of being right,
those of a wrong one by what they took away. Tokens with credit against their response's verdict count like tokens with none. With
lambda_min = 0 weights are proportional to the score; a range above 0 bounds them like DelTA's.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.rule import register, setting
from delta_rlvr.credit.rules.ranged import Scored


@register("measured", about="tokens count by their measured credit", paper="after arXiv 2410.01679")
@register(
    "measured-range",
    about="measured credit in DelTA's range",
    paper="after arXiv 2410.01679",
    lambda_min=0.8,
    lambda_max=1.2,
)
@dataclass(frozen=True)
class Measured(Scored):
    """Tokens count by their measured credit in favour of their response's verdict."""

    lambda_min: float = setting(0.0, "[0, inf)")
    """Weight of tokens without such credit before normalisation."""
    lambda_max: float = setting(1.0, "(0, inf)")
    """Weight of a token that decided everything, before normalisation."""

    needs = ("measured",)

    def score(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return (batch.side * batch.measured).clamp(0, 1)
