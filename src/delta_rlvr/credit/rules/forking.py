"""DAPO + forking tokens (Appendix J): train where the old policy was uncertain."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.pieces import kept_weights, quantiles
from delta_rlvr.credit.rule import TokenRule, register, setting


@register("dapo-ft", about="DAPO on the 20 % most uncertain tokens", paper="App. J, Table 1")
@dataclass(frozen=True)
class ForkingTokens(TokenRule):
    """Only tokens where the old policy was uncertain (DAPO + forking tokens)."""

    quantile: float = setting(0.8, "[0, 1)")
    """Tokens whose entropy is at least this quantile over all valid tokens of the batch are kept, ties included."""

    needs = ("entropy",)
    mean_one = True
    sees_slices = True

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        threshold = quantiles(batch.reducer.gather(batch.entropy), (self.quantile,))[0]
        return kept_weights(batch, batch.entropy >= threshold)
