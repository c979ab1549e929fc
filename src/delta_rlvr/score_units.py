"""How a score is shown: a share in per cent, or a mean reward as it is."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ScoreUnit:
    """How a score is shown."""

    scale: float = 100
    name: str = "points"
    """Of differences."""
    digits: int = 1
    """Behind the decimal point."""
    sign: str = " %"
    """Behind a score."""
    score: str = "accuracy"
    """What the score is called."""

    @property
    def difference(self) -> str:
        """What a column of differences is called."""
        return f"difference, {self.name}" if self.sign else "difference"

    @property
    def finer(self) -> ScoreUnit:
        """With two digits at least: how a score is published."""
        return replace(self, digits=max(2, self.digits))

    def plain(self, value: float) -> str:
        return f"{self._scaled(value):.{self.digits}f}"

    def signed(self, value: float) -> str:
        return f"{self._scaled(value):+.{self.digits}f}"

    def shown(self, value: float) -> str:
        return self.plain(value) + self.sign

    def _scaled(self, value: float) -> float:
        """Without what sums leave in the last digits: 3.75 points are shown alike, however they were added up, and 0 is not -0."""
        return round(self.scale * value, 9) + 0.0


POINTS = ScoreUnit()
"""Shares in per cent, and their differences in points."""


REWARD = ScoreUnit(1, "of reward", 3, "", "mean reward")
"""Rewards as they are: custom ones need not lie between 0 and 1, so that a per cent sign would mislead."""


def score_unit(own_reward: object) -> ScoreUnit:
    """How a held-out score is shown: as a share of right answers, or as the mean of a custom reward."""
    return REWARD if own_reward else POINTS
