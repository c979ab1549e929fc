"""DAPO + forking tokens (Appendix J): train where the old policy was uncertain."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.pieces import kept_weights, quantiles
from delta_rlvr.credit.rule import TokenRule, register


@register("dapo-ft", about="DAPO on the 20 % most uncertain tokens", paper="App. J, Table 1")
@dataclass(frozen=True)
class ForkingTokens(TokenRule):
    """Only tokens where the old policy was uncertain (DAPO + forking tokens)."""

    quantile: float = 0.8
    """Tokens whose entropy is at least this quantile over all valid tokens of the batch are kept, ties included."""

    needs = ("entropy",)
    mean_one = True
    sees_slices = True

    def __post_init__(self) -> None:
        if not 0 <= self.quantile < 1:
            raise ValueError(f"quantile={self.quantile}: give a share from 0 up to (not including) 1")

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        threshold = quantiles(batch.reducer.gather(batch.entropy), (self.quantile,))[0]
        return kept_weights(batch, batch.entropy >= threshold)
