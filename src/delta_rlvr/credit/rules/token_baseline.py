"""The optimal token baseline (arXiv 2602.07078; `optimal_token_baseline` in verl): a baseline for each position of a group.

    A_t = A - B_t,   B_t = sum_k A_k W_kt / sum_k W_kt          over the group's responses k that still run at t
    W_t = sum_{j <= t} (1 - 2 p_j + sum pi_j^2)                  the squared gradients of the response so far
    weight = max(0, A_t / A)

The paper subtracts the baseline from rewards. A is an affine function of them within a group, so that A - B_t is the same number in A's
unit. With one reward for right and one for wrong responses it never changes sign, and nothing is cut.

Differences from the paper and from verl:
- Engines do not give sum pi^2: we use max(exp(-H), p^2), a lower bound.
- A response that runs alone keeps A (verl: the reward itself, without a baseline).
- A is divided by the group's standard deviation if the run's advantages are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.rule import TokenRule, register


@register(
    "otb", about="the group's baseline at each position weighed by what responses did so far", paper="arXiv 2602.07078"
)
@dataclass(frozen=True)
class TokenBaseline(TokenRule):
    """A less the group's mean A at the same position, weighed by the squared gradients of each response so far."""

    needs = ("logps", "entropy", "groups")

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        p = batch.logps.clamp(max=0).exp()
        steps = 1 - 2 * p + torch.maximum(torch.exp(-batch.entropy.clamp(min=0)), p * p)
        sums = steps.cumsum(0)
        starts = (batch.lengths.cumsum(0) - batch.lengths)[batch.row]
        energy = (sums - (sums - steps)[starts]).clamp(min=0)
        peers = batch.group_number[batch.row] << 32 | batch.position
        running, whole = batch.sums_by(peers, batch.ones()), batch.sums_by(peers, energy)
        baseline = batch.sums_by(peers, batch.token_advantages * energy) / whole
        weights = (1 - baseline / batch.token_advantages).clamp(min=0)
        return torch.where((batch.side != 0) & (running > 1) & (whole > 0), weights, 1.0)
