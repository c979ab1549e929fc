"""Significance tests of a difference between A and B, and the smallest difference that the data can show.

The two tests answer different questions:
- paired by question (`sign_flip_test`, `mean_interval` of the differences): would the difference hold on other questions of the same
  kind?
- repeated evaluations (`mann_whitney`, the paper's test): is the difference on THESE questions more than sampling noise? It says
  nothing about other questions or another training seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

Alternative = Literal["two-sided", "greater", "less"]
SIGNIFICANCE = 0.05
"""The significance level: differences with a smaller p-value are called more than chance."""

# The most sums for the exact distribution on a lattice; 16 samples per question on 3,000 questions need a hundred thousand.
_LATTICE_LIMIT = 5_000_000
# Means of 50 batches of 128 verdicts are multiples of 1/6400; other numbers are not within 1e-12 of such a fraction.
_LARGEST_DENOMINATOR = 1 << 16
_ENUMERATION_LIMIT = 44  # two halves of 2^22 sums
# The most cells of the table that counts the exact distribution of a rank sum: up to 68 values on each side.
_RANK_SUM_LIMIT = 1_000_000
_DRAWS = 100_000
_POWER = 0.8


@dataclass(frozen=True)
class TestResult:
    """The result of one test of a difference A - B."""

    __test__ = False  # not a test class of pytest

    p: float
    alternative: Alternative
    method: str
    """How the p-value was computed, in words."""
    statistic: float
    """The mean difference for the paired test, U of A for Mann-Whitney."""


def sign_flip_test(a: Sequence[float], b: Sequence[float], *, seed: int = 0) -> TestResult:
    """Two-sided paired permutation test by question: without a difference, A's and B's scores of a question can be swapped.

    Exact over all 2^n swaps if the differences lie on a lattice, as counts of right samples do (by convolution over the possible
    sums), or if at most 44 differ from 0 (by enumerating the sums of two halves). Otherwise 100,000 seeded random swaps, plus the
    observed one.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise ValueError(
            f"a paired test needs the same questions on both sides: got {len(first)} and {len(second)} scores"
        )
    differences = first - second
    if not np.isfinite(differences).all():
        raise ValueError(f"question {int(np.argmin(np.isfinite(differences)))} has a score that is not finite")
    observed = math.fsum(differences)
    mean = observed / len(differences)
    moved = differences[differences != 0]
    if not len(moved):
        return TestResult(1.0, "two-sided", "exact: no question differs", mean)
    steps = _as_lattice(moved)
    if steps is not None:
        return TestResult(_lattice_p(steps), "two-sided", "exact: all sign flips, by convolution", mean)
    if len(moved) <= _ENUMERATION_LIMIT:
        p = _enumerated_p(moved, observed)
        return TestResult(p, "two-sided", "exact: all sign flips, enumerated", mean)
    generator = np.random.default_rng(seed)
    hits = 0
    block = max(1, 4_000_000 // len(moved))
    for start in range(0, _DRAWS, block):
        signs = generator.choice(np.array([-1.0, 1.0]), (min(block, _DRAWS - start), len(moved)))
        hits += int((np.abs(signs @ moved) >= abs(observed) - _slack(observed)).sum())
    method = f"{_DRAWS} random sign flips, seed {seed}"
    return TestResult((hits + 1) / (_DRAWS + 1), "two-sided", method, mean)


def mann_whitney(a: Sequence[float], b: Sequence[float], *, alternative: Alternative = "greater") -> TestResult:
    """Mann-Whitney U test of two independent samples, such as repeated evaluations.

    Exact, ties included, over all ways to split the pooled values into the two sides. Large samples with ties (more than 68 against
    68) get the normal approximation, corrected for ties and continuity. The two-sided p is twice the smaller tail.
    """
    if alternative not in get_args(Alternative):
        raise ValueError(f'alternative = {alternative!r} must be "two-sided", "greater" or "less"')
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    for name, values in (("a", first), ("b", second)):
        if len(values) < 2:
            raise ValueError(f"{name} has {len(values)} evaluations: the test needs at least 2 repeated evaluations")
        if not np.isfinite(values).all():
            raise ValueError(f"{name}[{int(np.argmin(np.isfinite(values)))}] is not a finite number")
    # Means of the same scores in another order may differ in the last digit: those are ties.
    pooled = np.concatenate([first, second])
    pooled = np.round(pooled / (np.abs(pooled).max() or 1.0), 12)
    first, second = pooled[: len(first)], pooled[len(first) :]
    ties = len(np.unique(pooled)) < len(pooled)
    few = min(len(first), len(second))
    # The table has a cell for each (number of values on the smaller side, twice their rank sum).
    cells = (few + 1) * (few * (2 * len(pooled) - few + 1) + 1)
    # Without ties too: the last digit of scipy's sum depends on the processor.
    if cells <= _RANK_SUM_LIMIT:
        u, p = _exact_with_ties(pooled, len(first), alternative)
        return TestResult(p, alternative, "exact, ties included" if ties else "exact", u)
    how = "asymptotic" if ties else "exact"
    outcome = stats.mannwhitneyu(first, second, alternative=alternative, method=how)
    method = "normal approximation, corrected for ties and continuity" if ties else "exact"
    return TestResult(float(outcome.pvalue), alternative, method, float(outcome.statistic))


@dataclass(frozen=True)
class EffectSize:
    """How often an evaluation of A is better than one of B."""

    superiority: float
    """Vargha-Delaney A: P(A > B) + P(A = B) / 2; 1/2 means no difference."""
    cliffs_delta: float
    """P(A > B) - P(A < B), between -1 and 1."""


def effect_size(a: Sequence[float], b: Sequence[float]) -> EffectSize:
    """Return Vargha-Delaney A and Cliff's delta of the values of A against those of B."""
    if not len(a) or not len(b):
        raise ValueError("an effect size needs at least one value on each side")
    wins, ties, losses = _duels(np.asarray(a, np.float64), np.asarray(b, np.float64))
    return EffectSize(auroc(a, b), (wins - losses) / (wins + ties + losses))


def auroc(positive: ArrayLike, negative: ArrayLike) -> float:
    """Return the area under the ROC curve, P(positive > negative) + P(equal) / 2; NaN if one side is empty."""
    wins, ties, losses = _duels(np.asarray(positive, np.float64), np.asarray(negative, np.float64))
    pairs = wins + ties + losses
    return (2 * wins + ties) / (2 * pairs) if pairs else math.nan


def _duels(first: NDArray[np.float64], second: NDArray[np.float64]) -> tuple[int, int, int]:
    """Return in how many of all pairs the first value is larger, equal and smaller."""
    ordered = np.sort(second)
    below = int(np.searchsorted(ordered, first, side="left").sum())
    not_above = int(np.searchsorted(ordered, first, side="right").sum())
    return below, not_above - below, len(first) * len(second) - not_above


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjustment, whose p-values share one threshold for the whole family."""
    for number, p in enumerate(p_values):
        if not 0 <= p <= 1:
            raise ValueError(f"p_values[{number}] = {p} is not between 0 and 1")
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, number in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[number]))
        adjusted[number] = running
    return adjusted


def holm_of_known(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's adjustment of the p-values that are not None."""
    adjusted = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(adjusted) for p in p_values]


def detectable_difference(differences: Sequence[float]) -> float | None:
    """Return the smallest true mean difference that a two-sided paired test at the 5 % level finds with power 0.8.

    Computed with the noncentral t distribution from the spread of the differences. None for fewer than two questions."""
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2:
        return None
    return detectable_in_spreads(len(values)) * float(values.std(ddof=1))


def detectable_in_spreads(pairs: int) -> float:
    """Return the detectable difference of this many pairs, in standard deviations of their differences."""
    freedom = pairs - 1
    beyond = stats.t.ppf(1 - SIGNIFICANCE / 2, freedom)
    # The other tail is negligible at this power. The bounds of the root come from Student's quantiles.
    shift = optimize.brentq(lambda size: stats.nct.sf(beyond, freedom, size) - _POWER, 0.5, 2 * beyond + 4)
    return float(shift) / math.sqrt(pairs)


def _exact_with_ties(pooled: NDArray[np.float64], first: int, alternative: Alternative) -> tuple[float, float]:
    """Return (U, p) of the first values over all ways to choose as many of the pooled values.

    Equal values share their mean rank. Ways are counted one distinct value after another; counts below 2^53 are exact.
    """
    total = len(pooled)
    few = min(first, total - first)
    twice = np.rint(2 * stats.rankdata(pooled)).astype(np.int64)
    seen = int(twice[:first].sum())
    # Count for the smaller side. The other side has the remaining ranks, so its tails are swapped.
    seen_few = seen if few == first else int(twice.sum()) - seen
    ways = np.zeros((few + 1, few * (2 * total - few + 1) + 1))
    ways[0, 0] = 1.0
    for rank, size in zip(*np.unique(twice, return_counts=True), strict=True):
        before = ways.copy()
        for dealt in range(1, min(int(size), few) + 1):
            shift = dealt * int(rank)
            ways[dealt:, shift:] += math.comb(int(size), dealt) * before[:-dealt, : ways.shape[1] - shift]
    tails = {"greater": math.fsum(ways[few, seen_few:]), "less": math.fsum(ways[few, : seen_few + 1])}
    if few != first:
        tails = {"greater": tails["less"], "less": tails["greater"]}
    tails["two-sided"] = 2 * min(tails.values())
    u = (seen - first * (first + 1)) / 2
    return u, min(1.0, tails[alternative] / math.comb(total, few))


def _as_lattice(moved: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Return the differences as integer multiples of a common unit, or None if there is no suitable one."""
    ratios = [Fraction(float(value)).limit_denominator(_LARGEST_DENOMINATOR) for value in moved]
    if any(abs(float(ratio) - value) > 1e-12 for ratio, value in zip(ratios, moved, strict=True)):
        return None
    unit = math.lcm(*(ratio.denominator for ratio in ratios))
    steps = [int(ratio * unit) for ratio in ratios]
    if sum(abs(step) for step in steps) > _LATTICE_LIMIT // 2:
        return None
    common = math.gcd(*steps)
    return np.array([step // common for step in steps], dtype=np.int64)


def _lattice_p(steps: NDArray[np.int64]) -> float:
    """Return the probability over all sign flips that the sum is at least as extreme as the observed one.

    All terms are positive, so even a tiny p-value has nearly full precision."""
    sizes = np.abs(steps)
    reach = int(sizes.sum())
    chance = np.zeros(2 * reach + 1)
    chance[reach] = 1.0
    low = high = reach
    for size in np.sort(sizes):  # small ones first, so that the window grows slowly
        window = chance[low : high + 1] / 2
        chance[low : high + 1] = 0
        chance[low - size : high + 1 - size] += window
        chance[low + size : high + 1 + size] += window
        low, high = low - int(size), high + int(size)
    sums = np.arange(-reach, reach + 1)
    return min(1.0, math.fsum(chance[np.abs(sums) >= abs(int(steps.sum()))]))


def _enumerated_p(moved: NDArray[np.float64], observed: float) -> float:
    """Return that probability by enumerating the sums of two halves of the differences."""
    first, second = np.zeros(1), np.zeros(1)
    for place, size in enumerate(np.abs(moved)):
        if place % 2:
            first = np.concatenate([first - size, first + size])
        else:
            second = np.concatenate([second - size, second + size])
    least = abs(observed) - _slack(observed)
    if least <= 0:
        return 1.0
    second.sort()
    # Every sum has its opposite, so both tails are equal.
    beyond = len(second) - np.searchsorted(second, least - first, side="left")
    return 2 * int(beyond.sum()) / (len(first) * len(second))


def _slack(observed: float) -> float:
    # Sums of the same floats in another order differ in their last digits: these are ties.
    return 1e-9 * max(1.0, abs(observed))
