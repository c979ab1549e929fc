"""STEER (arXiv 2510.10150): tokens that would change the entropy most count less.

    Omega = A (1 - p) (log p + H)                       the predicted change of the entropy, up to a factor (Eq. 8)
    weight = exp(-k |Omega|),   k = -log(lambda_min) / max(largest |Omega|, 0.02)        between lambda_min and 1

The weight is exponential and symmetric, as in the authors' code (github.com/zz-haooo/STEER). Differences: p is the old policy's (the
code: the current one's), and the largest |Omega| is over the whole rollout batch and all ranks (the code: over the micro-batch).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.pieces import surprise
from delta_rlvr.credit.rule import TokenRule, register, setting

_LEAST = 0.02  # the authors' lower bound of the largest change


@register("steer", about="tokens that move the entropy most count less", paper="arXiv 2510.10150")
@dataclass(frozen=True)
class EntropyChange(TokenRule):
    """Tokens that would change the policy's entropy most count less."""

    lambda_min: float = setting(0.8, "(0, 1]")
    """Weight of the token that would change it most (the authors' code: 0.8; a later version of the paper reportedly has 0.7)."""

    needs = ("logps", "entropy")
    sees_slices = True

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        change = batch.token_advantages * surprise(batch.logps) * (batch.logps.clamp(max=0) + batch.entropy)
        mine = change.abs().max() if len(change) else change.new_zeros(())
        largest = batch.reducer.gather(mine.view(1)).max()
        return torch.exp(math.log(self.lambda_min) * change.abs() / largest.clamp(min=_LEAST))
