"""The entropy advantage (arXiv 2506.14758): uncertain tokens get a bonus that cannot change the sign of their advantage.

    A' = A + min(alpha H, |A| / kappa)

As a multiplier it lies in [1, 1 + 1/kappa] for right responses and in [1 - 1/kappa, 1] for wrong ones: uncertain tokens count more
where they led to a right answer and less where they led to a wrong one.

Differences from the paper:
- H is the old policy's, fixed for the rollout batch (the paper: the current policy's; at the first update they are equal).
- The size of alpha is relative to A: the default is for advantages divided by their group's standard deviation, as in GRPO.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.rule import TokenRule, register, setting


@register("entropy-advantage", about="adds a bounded multiple of the entropy to A", paper="arXiv 2506.14758")
@dataclass(frozen=True)
class EntropyAdvantage(TokenRule):
    """The entropy of the old policy, times alpha and at most |A| / kappa, is added to A."""

    alpha: float = setting(0.4, "[0, inf)")
    """Factor of the entropy (the paper: 0.4 with GRPO, 0.1 with PPO)."""
    kappa: float = setting(2.0, "[1, inf)")
    """The bonus is at most |A| / kappa, so that A keeps its sign."""

    needs = ("entropy",)
    sees_slices = True

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        advantages = batch.token_advantages
        bonus = torch.minimum(self.alpha * batch.entropy.clamp(min=0), advantages.abs() / self.kappa)
        return torch.where(batch.side != 0, 1 + bonus / advantages, 1.0)
