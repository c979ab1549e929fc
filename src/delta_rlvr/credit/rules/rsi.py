"""RSI-S (arXiv 2606.31575): train only on tokens whose surprise is near its expected value at their position.

    RSI = -log p(y) / H,   kept where low <= RSI <= high

The expectation of -log p is H, so that 1 is typical: tokens below were nearly certain, tokens above are from the tail.

Choices, since we could not read these in the paper:
- The bounds 0.1 and 3 are the defaults of a third-party port and **not known to be the paper's**: tune them.
- The sum over the kept tokens is divided by their number, as in the other selections here: the weight is N / kept.
- Entropies below 1e-6 count as 1e-6 (the ports: 1e-6 added, or a floor of 1e-8), so that certain tokens have an index of 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.checks import require
from delta_rlvr.credit.pieces import kept_weights
from delta_rlvr.credit.rule import TokenRule, register, setting


@register("rsi-s", about="DAPO on tokens whose -log p is within a band around the entropy", paper="arXiv 2606.31575")
@dataclass(frozen=True)
class RelativeSurprisal(TokenRule):
    """Only tokens whose -log p, relative to the entropy, lies in a band."""

    low: float = setting(0.1, "[0, inf]")
    """Tokens below are left out: they were nearly certain. Our choice, not known to be the paper's."""
    high: float = setting(3.0, "[0, inf]")
    """Tokens above are left out: they are from the tail. Our choice, not known to be the paper's."""

    needs = ("logps", "entropy")
    sees_slices = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.low <= self.high, f"low={self.low}, high={self.high}: give low <= high")

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        index = -batch.logps / batch.entropy.clamp(min=1e-6)
        return kept_weights(batch, (index >= self.low) & (index <= self.high))
