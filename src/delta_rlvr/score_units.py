"""Formats of scores: a share in per cent, or a plain mean reward."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ScoreUnit:
    """The format of a score."""

    scale: float = 100
    name: str = "points"
    """The unit of differences."""
    digits: int = 1
    """Digits after the decimal point."""
    sign: str = " %"
    """The unit after a score."""
    score: str = "accuracy"
    """The name of the score."""

    @property
    def difference(self) -> str:
        """What a column of differences is called."""
        return f"difference, {self.name}" if self.sign else "difference"

    @property
    def finer(self) -> ScoreUnit:
        """The same format with at least two digits, as scores are published."""
        return replace(self, digits=max(2, self.digits))

    def plain(self, value: float) -> str:
        return f"{self._scaled(value):.{self.digits}f}"

    def signed(self, value: float) -> str:
        return f"{self._scaled(value):+.{self.digits}f}"

    def shown(self, value: float) -> str:
        return self.plain(value) + self.sign

    def _scaled(self, value: float) -> float:
        """Round off the error of sums: 3.75 looks the same however it was added up, and -0 becomes 0."""
        return round(self.scale * value, 9) + 0.0


POINTS = ScoreUnit()
"""Shares in per cent, with differences in points."""
REWARD = ScoreUnit(1, "of reward", 3, "", "mean reward")
"""Plain rewards: custom ones need not lie between 0 and 1, so that per cent would mislead."""
EVAL_REWARD = replace(REWARD, score="TRL eval_reward")
"""TRL's own evaluation of a script: all its rewards, weighted and added up, on its eval_dataset."""


def score_unit(own_reward: object) -> ScoreUnit:
    """Return the format of a held-out score: the share of right answers, or the mean of a custom reward."""
    return REWARD if own_reward else POINTS
