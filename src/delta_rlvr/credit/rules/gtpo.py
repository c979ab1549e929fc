"""GTPO (arXiv 2508.04349): right responses earn more where the policy was uncertain, wrong ones lose more where it was certain.

At each position t, the d_t responses of a group and side that are still running share the reward (Eq. 3, Eq. 5):

    right: alpha1 + alpha2 d_t H_it / sum_k H_kt          wrong: -(alpha1 + alpha2 d_t (1 / H_it) / sum_k (1 / H_kt))

(arXiv 2508.03772 has the same name and is another method.)

Differences from the paper:
- Eq. 6 normalises these rewards by side, over tokens that we could not find out. Over a side's own tokens, as in the public ports,
  alpha1 and alpha2 cancel, and half of the tokens of right responses are pushed down. Here the shaped reward is a factor of A instead,
  (alpha1 + alpha2 d_t share) / (alpha1 + alpha2): its mean is one at every position of a side, and A keeps its sign.
- Groups without an advantage stay without one; under Eq. 6 they would be trained on at full strength.
- `floor` is added to every entropy (the paper: to the sums), so that the mean is one where all entropies are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.checks import require
from delta_rlvr.credit.rule import TokenRule, register, setting


@register(
    "gtpo",
    about="by entropy among the responses at the same position: high if right, low if wrong",
    paper="arXiv 2508.04349",
)
@dataclass(frozen=True)
class EntropyShares(TokenRule):
    """A token's share of its side's entropy (right) or inverse entropy (wrong) at its position."""

    alpha1: float = setting(1.0, "[0, inf)")
    """Part of the reward that every token gets."""
    alpha2: float = setting(0.1, "[0, inf)")
    """Part that is divided by entropy."""
    floor: float = setting(1e-8, "(0, inf)")
    """Added to every entropy."""

    needs = ("entropy", "groups")
    mean_one = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.alpha1 + self.alpha2 > 0, "alpha1=0, alpha2=0: give one of them a positive number")

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        entropy = batch.entropy.clamp(min=0) + self.floor
        worth = torch.where(batch.side < 0, 1 / entropy, entropy)
        # The tokens at the same position of the same side of a group.
        peers = (batch.group_number[batch.row] * 3 + batch.side + 1) << 32 | batch.position
        running = batch.sums_by(peers, batch.ones())  # d_t, h_t
        shares = running * worth / batch.sums_by(peers, worth)
        weights = (self.alpha1 + self.alpha2 * shares) / (self.alpha1 + self.alpha2)  # Eq. 3, Eq. 5
        return torch.where(batch.side != 0, weights, 1.0)
