"""NTHR (arXiv 2505.18830) and THR (arXiv 2510.03669): how much a token's update moves the right responses of its group.

Both score a token by the inner product of its head gradient with the sum of those of the group's right tokens,

    score = g^T M h,   M = sum over right tokens of weight g h^T,   g = e_y - softmax,

which is <v, M> of the exact head gradient v = g (outer) h. NTHR weighs right tokens by 1, THR by 1 / length of their response.

Differences from the papers, and choices where they are silent:
- NTHR's threshold (under Eq. 8) is beta times the least mean score of a right response. Its own tokens are included, as in Algorithm 1
  and the one public port, though the text says "other correct responses". It may be negative; the paper does not mention that.
- THR takes its threshold "following" NTHR, and we found no formula. Ours is beta times the least mean of |score|, because |THR| is
  compared with it.
- Right and wrong are the signs of the advantage; responses with A = 0 are on neither side. Groups without both sides get the weight 1.
- g is over the whole vocabulary at the sampling temperature (NTHR's authors: over the ids that occur in the group).

Each group needs a vocab x width matrix; groups are solved in blocks that fit in memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.reduce import wide
from delta_rlvr.credit.rule import TokenRule, register, setting
from delta_rlvr.credit.slots import Slots
from delta_rlvr.credit.vectors import HeadVectors, Rows

# The memory limit of a block of matrices M; a block has at least one.
_MATRIX_BYTES = 2 << 30


@dataclass(frozen=True)
class _HiddenReward(TokenRule):
    """Scores of tokens against the right responses of their group."""

    beta: float = setting(1.0, "[0, inf)")
    """Factor of the least mean score of a right response in the threshold."""

    needs = ("hidden", "head", "tokens", "groups")


@register(
    "nthr", about="spares tokens of wrong responses that support the group's right ones", paper="arXiv 2505.18830"
)
@dataclass(frozen=True)
class NegativeTokenHiddenReward(_HiddenReward):
    """Tokens of wrong responses whose suppression would hurt the group's right responses are punished less."""

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        groups = _Groups.of(batch)
        scores = groups.scores((batch.side > 0).to(wide(batch.row.device)))  # Eq. 7
        chosen = (batch.side < 0) & (scores > self.beta * groups.least_mean(scores))
        eta = 2 * (0.5 - groups.right / (groups.right + groups.wrong)).abs()
        return torch.where(chosen, eta[groups.number], 1.0)  # Algorithm 1, lines 8-12


@register("thr", about="keeps tokens with a strong effect on the group's right responses", paper="arXiv 2510.03669")
@dataclass(frozen=True)
class TokenHiddenReward(_HiddenReward):
    """Only tokens with a strong effect on the group's right responses count; those that help them count a little more."""

    exploit: float = setting(0.1, "[-1, 1]")
    """The paper's p: above 0 for exploitation, below 0 for exploration, 0 for only the selection."""

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        groups = _Groups.of(batch)
        scores = groups.scores((batch.side > 0) / batch.lengths.to(wide(batch.row.device))[batch.row])
        reward = batch.side * scores  # THR = (2 r - 1) g^T M h
        kept = scores.abs() > self.beta * groups.least_mean(scores.abs())
        weights = torch.where(kept, 1 + self.exploit * reward.sign(), 0.0)  # 1[|THR| > tau] (1 + sign(THR) p)
        return torch.where(groups.mixed[groups.number] & (batch.side != 0), weights, 1.0)


@dataclass(frozen=True)
class _Groups:
    """The groups of all ranks."""

    batch: TokenBatch
    right: Float[Tensor, " group"]
    """The number of responses with A > 0, over all ranks."""
    wrong: Float[Tensor, " group"]
    """The number of responses with A < 0, over all ranks."""

    @classmethod
    def of(cls, batch: TokenBatch) -> _Groups:
        mine = int(batch.group_number.max()) + 1 if len(batch.group_number) else 0
        count = batch.reducer.maximum(mine)
        right, wrong = (
            batch.reducer.sum(
                torch.bincount(batch.group_number[batch.advantages.sign() == sign], minlength=count).to(
                    wide(batch.row.device)
                )
            )
            for sign in (1, -1)
        )
        return cls(batch, right, wrong)

    @property
    def number(self) -> Int[Tensor, " token"]:
        """The group of each token."""
        return self.batch.group_number[self.batch.row]

    @property
    def mixed(self) -> Bool[Tensor, " group"]:
        """Whether the group has both sides."""
        return (self.right > 0) & (self.wrong > 0)

    def scores(self, weights: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        """Return <v, M> of each token, with M the sum of weight * v over its group and all ranks; 0 in groups without both sides."""
        batch = self.batch
        vectors = HeadVectors(Rows.stored(batch), batch.head, batch.tokens, batch.temperature)
        scores = torch.zeros_like(weights)
        block = max(1, _MATRIX_BYTES // max(1, math.prod(vectors.shape) * 8))
        for groups in self.mixed.nonzero()[:, 0].split(block):
            inside = torch.isin(self.number, groups)
            slots = Slots(torch.searchsorted(groups, self.number).clamp(max=len(groups) - 1), len(groups))
            matrices = weights.new_zeros(len(groups), *vectors.shape)
            vectors.within(inside & (weights > 0)).sums(weights * inside, slots, matrices)
            products = vectors.within(inside).project(batch.reducer.sum(matrices), slots)
            scores = torch.where(inside, products, scores)
        return scores

    def least_mean(self, scores: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        """Return for each token the least mean score of a right response of its group, over all ranks; infinity if there is none."""
        batch = self.batch
        right = batch.advantages > 0
        means = scores.new_zeros(len(right)).index_add_(0, batch.row, scores) / batch.lengths
        least = scores.new_full(self.right.shape, math.inf)
        least.scatter_reduce_(
            0, batch.reducer.gather(batch.group_number[right]), batch.reducer.gather(means[right]), "amin"
        )
        return least[self.number]
