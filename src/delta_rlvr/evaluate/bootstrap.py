"""Confidence intervals by resampling questions: the scores to expect on other questions of the same kind.

BCa intervals of a mean (`scipy.stats.bootstrap`). With several benchmarks, questions are drawn within each one, so every resample has
as many questions of each as the data. Samples of a question are not resampled: their noise is part of the spread between questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

RESAMPLES = 10_000
LEVEL = 0.95
NO_INTERVAL = "no interval"
FEW_QUESTIONS = 20
"""With fewer questions a score and its interval are rough."""
# Resampled scores in memory at once, about 64 MB for any number of questions.
_BATCH_ENTRIES = 8_000_000


@dataclass(frozen=True)
class Interval:
    """A mean over questions and its bootstrap interval."""

    mean: float
    low: float
    high: float
    level: float
    resamples: int
    note: str | None = None
    """A sentence about an interval that cannot be relied on."""


def interval_text(low: float | None, high: float | None, shown: Callable[[float], str], between: str = " to ") -> str:
    """Return both ends as `shown` writes them, or "no interval" if they are equal because nothing varied."""
    if low is None or high is None or not low < high:
        return NO_INTERVAL
    return shown(low) + between + shown(high)


def mean_interval(strata: Sequence[Sequence[float]], *, seed: int) -> Interval:
    """Return the BCa interval of the mean over all questions. `strata`: the question scores of each benchmark."""
    if not strata or any(len(group) == 0 for group in strata):
        raise ValueError("an interval needs at least one question in every benchmark")
    groups = [np.asarray(group, dtype=np.float64) for group in strata]
    for number, group in enumerate(groups):
        if not np.isfinite(group).all():
            question = int(np.argmin(np.isfinite(group)))
            raise ValueError(f"strata[{number}]: question {question} has a score that is not a finite number")
    size = sum(len(group) for group in groups)
    mean = sum(float(group.sum()) for group in groups) / size
    varied = [group for group in groups if np.ptp(group) > 0]
    if not varied:
        where = "every question" if len(groups) == 1 else "within each benchmark every question"
        note = f"{where} scored the same: resampling them cannot show any spread, so this is no interval"
        return Interval(mean, mean, mean, LEVEL, RESAMPLES, note)
    # A benchmark whose questions all scored the same adds a constant to every resample.
    constant = sum(float(group.sum()) for group in groups if np.ptp(group) == 0)

    def statistic(*drawn: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        return (constant + sum(part.sum(axis=axis) for part in drawn)) / size

    interval = stats.bootstrap(
        varied,
        statistic,
        n_resamples=RESAMPLES,
        batch=max(1, _BATCH_ENTRIES // size),
        vectorized=True,
        confidence_level=LEVEL,
        method="BCa",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    rough = f"only {size} questions: the interval itself is rough" if size < FEW_QUESTIONS else None
    return Interval(mean, float(interval.low), float(interval.high), LEVEL, RESAMPLES, rough)
