"""Tuning the learning rate of each method before a comparison: the best of a grid, on seeds that the comparison does not use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from delta_rlvr.words import listed, rate_text


@dataclass(frozen=True)
class TunedRate:
    """The scores of a method at each learning rate."""

    method: str
    scores: Mapping[float, Sequence[float]]
    """Held-out scores after training by rate, one per seed."""

    @property
    def rate(self) -> float:
        """The rate with the best mean score; the lowest of equal ones."""
        return max(sorted(self.scores), key=lambda rate: fmean(self.scores[rate]))

    @property
    def edge(self) -> str | None:
        """Which end of the grid the best rate is, "lowest" or "highest"; None inside the grid."""
        if self.rate == min(self.scores):
            return "lowest"
        return "highest" if self.rate == max(self.scores) else None

    def as_dict(self) -> dict[str, object]:
        scores = {rate_text(rate): list(values) for rate, values in self.scores.items()}
        return {"learning_rate": self.rate, "scores": scores, "edge": self.edge}


def check_rates(rates: Sequence[float]) -> list[float]:
    """Return the grid in ascending order; refuse fewer than two different positive rates."""
    for rate in rates:
        number = isinstance(rate, (int, float)) and not isinstance(rate, bool)
        if not number or not 0 < rate < math.inf:
            raise ValueError(f"learning_rates: {rate!r} is not a positive number")
    if len(set(rates)) != len(rates) or len(rates) < 2:
        raise ValueError(f"learning_rates={list(rates)}: give two or more different ones, as in 5e-6,1e-5,2e-5")
    return sorted(map(float, rates))


def tuned_sentence(tuned: Sequence[TunedRate], seeds: Sequence[int], score: str) -> str:
    """Return a sentence about the tuned rates, their grid and seeds, and whether both were enough."""
    grid = ", ".join(rate_text(rate) for rate in sorted(tuned[0].scores))
    rates = ", ".join(f"{one.method} {rate_text(one.rate)}" for one in tuned)
    on = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    words = (
        f"Learning rate of each method, the best of {grid} by {score} on {on}: {rates}. The comparison has other seeds and the same "
        "held-out problems."
    )
    if len(seeds) == 1:
        words += " Chosen on 1 seed: `--tuning-seeds 3` is safer."
    for edge in ("lowest", "highest"):
        if names := [one.method for one in tuned if one.edge == edge]:
            whose = "every method" if len(names) == len(tuned) else listed(names)
            words += f" The best rate of {whose} is the {edge} of the grid: widen it."
    return words
