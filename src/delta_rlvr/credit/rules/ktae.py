"""KTAE (arXiv 2505.16826): a token gains by its association with the right responses of its group.

The term k of a token id in a group is added to the advantage, A' = A + k. The paper and the authors' code
(github.com/xiaolizh1/KTAE) disagree. This follows the code: Fisher's two-sided p-value (the paper: the probability of the one table),
a range of +-1 (the paper: +-0.5; `scale`), and a strength that is divided by the sum of its two factors.

Differences from the code:
- Weights cannot be negative: the sum becomes the factor (A + k) / A, cut at 0 where it would change sign. Tokens with A = 0 get 1.
- Fisher's p is exact. In float32 the code misses most tables with p = 1 and gives them F = exp(-2) instead of 0.
- Right and wrong are the signs of the advantage (the code: a reward above 0); responses with A = 0 are on neither side.
- `frequency` is a factor as in the paper (the code: a switch). No token id is left out unless `ignored_token` names one (the code
  always leaves out 151643, the end of text of one tokenizer).
- Counts are over all ranks, so that a group may be split between them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.checks import require
from delta_rlvr.credit.reduce import wide
from delta_rlvr.credit.rule import TokenRule, register, setting

_ID_BITS = 32  # an int64 holds the index of a group or response, and a token id


@register(
    "ktae",
    about="adds to A how strongly a token id goes with the right responses of its group",
    paper="arXiv 2505.16826",
)
@dataclass(frozen=True)
class KeyTokens(TokenRule):
    """Key-token advantage: a token id's association with the right responses of its group is added to A."""

    fisher: float = setting(1.0, "[0, inf)")
    """Factor of Fisher's exact test in the strength (h1)."""
    gain: float = setting(1.0, "[0, inf)")
    """Factor of the information gain in the strength (h2)."""
    frequency: float = setting(1.0, "[0, inf)")
    """Factor of the token's frequency on either side in the direction (h3); 0 leaves only Cohen's h."""
    scale: float = setting(1.0, "[0, inf)")
    """The largest term (the code's `top`; the paper's formula has 0.5)."""
    saturation: float = setting(2.0, "(0, inf)")
    """k1 of BM25: how soon a frequency saturates."""
    length_share: float = setting(0.5, "[0, 1)")
    """b of BM25: how much a side's number of tokens counts."""
    ignored_token: int = -1
    """A token id whose term is 0, such as the end of sequence; -1 for none."""

    needs = ("tokens", "groups")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.fisher + self.gain > 0, "fisher=0, gain=0: give one of them a positive number")

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        # Pairs of a response and a token id, and the number of times that each occurs.
        pair, place, times = (batch.row << _ID_BITS | batch.tokens).unique(return_inverse=True, return_counts=True)
        terms = self._terms(batch, pair >> _ID_BITS, pair & ((1 << _ID_BITS) - 1), times)[place]
        terms = torch.where(batch.tokens == self.ignored_token, 0.0, terms)
        # A' = A + k, as a factor that cannot change the sign of A.
        return torch.where(batch.side != 0, 1 + terms / batch.token_advantages, 1.0).clamp(min=0)

    def _terms(
        self, batch: TokenBatch, row: Int[Tensor, " pair"], token: Int[Tensor, " pair"], times: Int[Tensor, " pair"]
    ) -> Float[Tensor, " pair"]:
        """Return k of each pair's token id in its group."""
        word = batch.group_number[row] << _ID_BITS | token
        k1, share = self.saturation, self.length_share
        mean_tokens = batch.sums_by(batch.group_number, batch.lengths * (batch.advantages != 0)) / 2

        def counts(sign: int) -> tuple[Tensor, Tensor, Tensor]:
            """Count the responses of a side that have the token and all of them; add BM25's score of the token in their joint text."""
            mine = (batch.advantages.sign() == sign).to(wide(row.device))
            tokens = batch.sums_by(batch.group_number, mine * batch.lengths)
            frequency = batch.sums_by(word, mine[row] * times) / tokens.clamp(min=1)[row]  # tf
            half = k1 * (1 - share + share * tokens / mean_tokens.clamp(min=1))[row]  # K
            score = (k1 + 1) * frequency / (frequency + half)
            return batch.sums_by(word, mine[row]), batch.sums_by(batch.group_number, mine)[row], score

        a, right, high = counts(1)
        b, wrong, low = counts(-1)
        tables, which = torch.stack([a, right, b, wrong], 1).long().unique(dim=0, return_inverse=True)
        evidence = a.new_tensor([_evidence(*table) for table in tables.tolist()]).view(-1, 3)
        fisher, gain, cohen = evidence[which].unbind(1)
        direction = cohen + self.frequency * (high / (low + 1e-5) - low / (high + 1e-5))  # D
        strength = (self.fisher * fisher + self.gain * gain) / (self.fisher + self.gain)  # h1 F + h2 IG, over h1 + h2
        return self.scale * torch.tanh(strength * direction / 2)  # 2 (sigmoid(strength D) - 1/2)


@cache
def _evidence(a: int, right: int, b: int, wrong: int) -> tuple[float, float, float]:
    """Return F, the information gain and Cohen's h of a token that `a` right and `b` wrong responses have."""
    if not right or not wrong:
        return 0.0, 0.0, 0.0
    having, total = a + b, right + wrong

    def ways(k: int) -> int:
        """Return the number of tables with these margins in which k right responses have the token."""
        return math.comb(right, k) * math.comb(wrong, having - k)

    # Two-sided: all tables that are at most as likely as this one, in exact integers.
    tables = map(ways, range(max(0, having - wrong), min(right, having) + 1))
    unlikely, every = sum(count for count in tables if count <= ways(a)), math.comb(total, having)
    fisher = 0.0 if unlikely == every else math.exp(-2 * (unlikely / every))
    left = total - having
    gain = _entropy(right, wrong) - (having * _entropy(a, b) + left * _entropy(right - a, wrong - b)) / total
    cohen = math.asin(math.sqrt(a / right)) - math.asin(math.sqrt(b / wrong))
    return fisher, max(0.0, gain), cohen


def _entropy(one: int, other: int) -> float:
    """Return the entropy of two outcomes with these counts, in bits."""
    shares = [count / (one + other) for count in (one, other) if count]
    return -sum(share * math.log2(share) for share in shares)
