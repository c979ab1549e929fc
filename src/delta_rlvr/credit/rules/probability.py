"""Published weights that depend on the sampled token's probability p under the old policy, and on the side.

    advantage-reweighting  alpha p + 1 - alpha                        (arXiv 2505.12929)
    tr-grpo                clip(alpha (sigmoid(steepness p) - mu), low, high)    (arXiv 2511.00066)
    rlvr-directions        1 + c - c p                                (arXiv 2603.22117)
    delightful             sigmoid(A (-log p) / eta)                  (arXiv 2603.14608)
    w-reinforce            `right` where A > 0, 1 where A < 0         (arXiv 2506.01347)
    a3po                   `boost` on the least likely tokens of each right and the likeliest of each wrong response  (arXiv 2512.21625)

Differences from the papers:
- The papers, except those of rlvr-directions and a3po, use the current policy's p at every update (at the first they are equal).
- tr-grpo: form and constants are those of a third-party port, not checked against the paper. The port divides p by 9, so that every
  weight is clipped to 1; we multiply.
- delightful: the paper gates REINFORCE without ratios; here the gate multiplies DAPO's clipped term, with the group's A.
- w-reinforce: in the paper a right response has the advantage 0.1 and a wrong one -1, in every group. Here A is the group's, so that
  groups without both give no signal.
- a3po: the selection is per response, as in the authors' code, which has neither the decay nor its constants. `boost`, `share` and
  `decay` are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.checks import require
from delta_rlvr.credit.rule import TokenRule, register, setting


@register("advantage-reweighting", about="likely tokens count more", paper="arXiv 2505.12929")
@dataclass(frozen=True)
class AdvantageReweighting(TokenRule):
    """Likely tokens count more: alpha p + 1 - alpha."""

    alpha: float = setting(0.3, "[0, 1]")
    """Share of the weight that goes with p (the paper: 0.2 to 0.3)."""

    needs = ("logps",)
    sees_slices = True

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return _with_an_advantage(batch, self.alpha * _probability(batch) + 1 - self.alpha)


@register("tr-grpo", about="likely tokens count more, through a clipped sigmoid", paper="arXiv 2511.00066")
@dataclass(frozen=True)
class TokenRegulated(TokenRule):
    """Likely tokens count more, through a clipped sigmoid."""

    alpha: float = setting(2.0, "(-inf, inf)")
    """Factor of the sigmoid."""
    steepness: float = setting(9.0, "(-inf, inf)")
    """Factor of p inside the sigmoid."""
    mu: float = setting(0.25, "(-inf, inf)")
    """Subtracted from the sigmoid."""
    low: float = setting(1.0, "[0, inf)")
    """Smallest weight."""
    high: float = setting(1.4, "[0, inf)")
    """Largest weight."""

    needs = ("logps",)
    sees_slices = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.low <= self.high, f"low={self.low}, high={self.high}: give low <= high")

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        gate = torch.sigmoid(self.steepness * _probability(batch)) - self.mu
        return _with_an_advantage(batch, (self.alpha * gate).clamp(self.low, self.high))


@register("rlvr-directions", about="unlikely tokens count more", paper="arXiv 2603.22117")
@dataclass(frozen=True)
class Directions(TokenRule):
    """Unlikely tokens count more: 1 + c - c p."""

    c: float = setting(0.2, "[0, inf)")
    """The weight at p = 0 less that at p = 1 (the authors: 0.2 at 7B, 0.1 at 8B)."""

    needs = ("logps",)
    sees_slices = True

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return _with_an_advantage(batch, 1 + self.c - self.c * _probability(batch))


@register(
    "delightful",
    about="unlikely tokens count more if right, less if wrong, by sigmoid(A (-log p))",
    paper="arXiv 2603.14608",
)
@dataclass(frozen=True)
class Delightful(TokenRule):
    """Unlikely tokens count more where A > 0 and less where A < 0: sigmoid(A (-log p) / eta)."""

    eta: float = setting(1.0, "(0, inf)")
    """Temperature; the larger, the nearer every weight is to one half."""

    needs = ("logps",)
    sees_slices = True

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        delight = batch.token_advantages * -batch.logps.clamp(max=0)
        return _with_an_advantage(batch, torch.sigmoid(delight / self.eta))


@register("w-reinforce", about="right responses count a tenth", paper="arXiv 2506.01347")
@dataclass(frozen=True)
class WeightedReinforce(TokenRule):
    """Right responses count less than wrong ones."""

    right: float = setting(0.1, "[0, inf)")
    """Weight of right responses (lambda in the paper)."""

    sees_slices = True

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return torch.where(batch.side > 0, self.right, batch.ones())


@register(
    "a3po", about="unlikely tokens of right and likely tokens of wrong responses count more", paper="arXiv 2512.21625"
)
@dataclass(frozen=True)
class Asymmetric(TokenRule):
    """The least likely tokens of right responses and the likeliest of wrong ones count more; the effect decays from batch to batch."""

    share: float = setting(0.2, "(0, 1]")
    """Share of each response that counts more; at least one token."""
    boost: float = setting(2.0, "[1, inf)")
    """Their weight in the first rollout batch."""
    decay: float = setting(0.005, "[0, inf)")
    """The boost loses this much with every rollout batch, down to 1."""

    needs = ("logps",)

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        # Each response's tokens in the order of their choice; of equal ones the earlier comes first.
        by_chance = (batch.side * batch.logps).argsort(stable=True)
        chosen = by_chance[batch.row[by_chance].argsort(stable=True)]
        place = torch.empty_like(chosen)
        place[chosen] = batch.position
        count = (batch.lengths * self.share + 1e-6).long().clamp(min=1)
        boost = max(1.0, self.boost - self.decay * batch.round_number)
        return torch.where((batch.side != 0) & (place < count[batch.row]), boost, batch.ones())


def _probability(batch: TokenBatch) -> Float[Tensor, " token"]:
    return batch.logps.clamp(max=0).exp()


def _with_an_advantage(batch: TokenBatch, weights: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
    """Return the weights where there is an advantage, and 1 elsewhere."""
    return torch.where(batch.side != 0, weights, 1.0)
