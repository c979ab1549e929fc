"""The learning rate of each method before methods are compared: the best of a grid, on seeds that the comparison does not use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from delta_rlvr.words import listed, rate_text


@dataclass(frozen=True)
class TunedRate:
    """What a method's runs at each learning rate came to."""

    method: str
    scores: Mapping[float, Sequence[float]]
    """Held-out scores after training by rate, one per seed."""

    @property
    def rate(self) -> float:
        """The best by its mean score; of equals the lowest."""
        return max(sorted(self.scores), key=lambda rate: fmean(self.scores[rate]))

    @property
    def edge(self) -> str | None:
        """Where the best rate is an end of the grid, beyond which nobody looked."""
        if self.rate == min(self.scores):
            return "lowest"
        return "highest" if self.rate == max(self.scores) else None

    def as_dict(self) -> dict[str, object]:
        scores = {rate_text(rate): list(values) for rate, values in self.scores.items()}
        return {"learning_rate": self.rate, "scores": scores, "edge": self.edge}


def check_rates(rates: Sequence[float]) -> list[float]:
    """The grid, in order; refused where it is none."""
    for rate in rates:
        number = isinstance(rate, (int, float)) and not isinstance(rate, bool)
        if not number or not 0 < rate < math.inf:
            raise ValueError(f"learning_rates: {rate!r} is not a positive number")
    if len(set(rates)) != len(rates) or len(rates) < 2:
        raise ValueError(f"learning_rates={list(rates)}: give two or more different ones, as in 5e-6,1e-5,2e-5")
    return sorted(map(float, rates))


def tuned_sentence(tuned: Sequence[TunedRate], seeds: Sequence[int], score: str) -> str:
    """What was tuned, by which score and on what, and whether seeds and grid were enough."""
    grid = ", ".join(rate_text(rate) for rate in sorted(tuned[0].scores))
    rates = ", ".join(f"{one.method} {rate_text(one.rate)}" for one in tuned)
    on = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    words = f"Learning rate of each method, the best of {grid} by {score} on {on}, which the comparison does not use: {rates}."
    if len(seeds) == 1:
        words += " Chosen on 1 seed: `--tuning-seeds 3` is safer."
    for edge in ("lowest", "highest"):
        if names := [one.method for one in tuned if one.edge == edge]:
            whose = "every method" if len(names) == len(tuned) else listed(names)
            words += f" The best rate of {whose} is the {edge} of the grid: widen it."
    return words
