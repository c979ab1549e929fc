"""Perfect credit, for tasks that know their decisive tokens: an upper bound for all token weights in the same range."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.rule import register
from delta_rlvr.credit.rules.ranged import Scored


@register("oracle", about="perfect credit in DelTA's range", paper="beyond")
@register("oracle-wide", about="perfect credit in [0.5, 1.5]", paper="beyond", lambda_min=0.5, lambda_max=1.5)
@register("oracle-only", about="only the decisive tokens", paper="beyond", lambda_min=0.0, lambda_max=1.0)
@dataclass(frozen=True)
class Oracle(Scored):
    """lambda_max on the decisive tokens of responses with an advantage, lambda_min elsewhere, normalised to mean one."""

    needs = ("decisive",)

    def score(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return batch.decisive.float()
