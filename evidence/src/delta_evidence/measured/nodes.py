"""A response cut into nodes: positions whose value is one and the same, as only certain tokens stand between them.

Position t of a response of T tokens stands after its first t tokens and has the value V_t = P(reward | prompt, first t tokens).
Token t (from 0) leads from position t to position t + 1; its credit is V_{t+1} - V_t. With p the probability of that token,
V_t = p V_{t+1} + (1 - p) V_other, so that

    credit = (1 - p) (V_{t+1} - V_other),    |credit| <= 1 - p        for rewards between 0 and 1.

So positions between which the sum of 1 - p is at most a tolerance have one value up to that tolerance, and share their samples. V_T is
the reward itself: the last node needs no samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int

STRIDE = 8
"""Nodes between two segment ends of the pilot."""
MOVED = 0.15
"""A segment of the pilot whose ends differ by this much is looked into."""
LEAST_MOVE = 0.05
"""What a token's value is taken to move by, at least, when samples are shared out: a pilot may overlook a move."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of one response, first to last. The last one holds the end of the response."""

    of: Int[np.ndarray, " position"]
    """The node of each position, from 0 to T."""
    at: Int[np.ndarray, " node"]
    """Where the node is sampled: at its last position, which is cheapest and is where the next token begins."""
    drift: Float[np.ndarray, " node"]
    """Sum of 1 - p of the tokens within the node: its first value is no further from its last."""

    @property
    def unknown(self) -> int:
        """Nodes whose value is not known beforehand."""
        return len(self.at) - 1

    @property
    def splits(self) -> Bool[np.ndarray, " token"]:
        """Tokens that lead from one node to the next; the others have no credit to speak of."""
        return np.diff(self.of) > 0


def cut(surprise: Float[np.ndarray, " token"], tolerance: float) -> Nodes:
    """From the end to the start, so that the end, whose value is known, takes in as much as it can. `surprise` is 1 - p."""
    splits = np.zeros(len(surprise), dtype=bool)
    within = 0.0
    for token in reversed(range(len(surprise))):
        within += surprise[token]
        if within > tolerance:
            splits[token] = True
            within = 0.0
    of = np.concatenate([[0], np.cumsum(splits)])
    count = of[-1] + 1
    inside = ~splits
    drift = np.bincount(of[:-1][inside], weights=surprise[inside], minlength=count)
    at = np.searchsorted(of, np.arange(count), side="right") - 1
    return Nodes(of, at, drift)


def pilot_next(values: Mapping[int, float]) -> list[int]:
    """The middles of the segments in which the value moves; none once it is known where. `values` has the last node's too."""
    ordered = sorted(values)
    return [
        (first + last) // 2
        for first, last in pairwise(ordered)
        if last - first > 1 and abs(values[last] - values[first]) >= MOVED
    ]


def importance(
    nodes: Nodes, surprise: Float[np.ndarray, " token"], values: Mapping[int, float]
) -> Float[np.ndarray, " unknown"]:
    """What each node's share of the samples is proportional to.

    The sum over tokens of w Var(credit) is smallest, for a given number of samples, where a node's number is proportional to
    sqrt(V (1 - V)) times the square root of the w of the two tokens that it stands between (Neyman's allocation). w is the bound
    1 - p times how far the pilot saw the value move: tokens that may matter are to be known best.
    """
    places = sorted(values)
    smooth = np.interp(np.arange(len(nodes.at)), places, [values[place] for place in places])
    wanted = surprise[nodes.splits] * (LEAST_MOVE + np.abs(np.diff(smooth)))
    beside = np.concatenate([[0.0], wanted])[:-1] + wanted
    spread = np.clip(smooth[:-1], 0.05, 0.95)  # a pilot of a few samples that all agree knows no better
    return np.sqrt(spread * (1 - spread) * beside)


def share_out(shares: Sequence[Float[np.ndarray, " unknown"]], pairs: int) -> list[Int[np.ndarray, " unknown"]]:
    """So many pairs of chunks over the nodes of all responses, at least one each."""
    total = sum(float(share.sum()) for share in shares) or 1.0  # no share at all: one each
    return [np.maximum(1, np.rint(pairs * share / total)).astype(np.int64) for share in shares]
