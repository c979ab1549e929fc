"""GTPO (arXiv 2508.04349): right responses earn more where the policy was uncertain, wrong ones lose more where it was certain.

At position t of a group's responses the reward is shared out among those of a side that are still running (Eq. 3, Eq. 5):

    right: alpha1 + alpha2 d_t H_it / sum_k H_kt          wrong: -(alpha1 + alpha2 d_t (1 / H_it) / sum_k (1 / H_kt))

with d_t the number of such responses. (Another paper of the same name, arXiv 2508.03772, is another method.)

Where this differs from the paper:
- Eq. 6 normalises these rewards by side; over which tokens, we could not read. Over a side's own tokens, as in the public ports, alpha1
  and alpha2 cancel, and half of the tokens of right responses are pushed down. We take the shaped reward as a multiplier of A instead,
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
    """Part that is shared out by entropy."""
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
        # Those that stand at the same position of the same side of the same group.
        peers = (batch.group_number[batch.row] * 3 + batch.side + 1) << 32 | batch.position
        running = batch.sums_by(peers, batch.ones())  # d_t, h_t
        shares = running * worth / batch.sums_by(peers, worth)
        weights = (self.alpha1 + self.alpha2 * shares) / (self.alpha1 + self.alpha2)  # Eq. 3, Eq. 5
        return torch.where(batch.side != 0, weights, 1.0)
