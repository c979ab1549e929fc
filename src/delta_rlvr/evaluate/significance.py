"""Tests of "is A better than B?", and how large a difference the data could have shown.

Two kinds of evidence, never to be mixed up:
- paired by question (`sign_flip_test`, `mean_interval` of the differences): would the difference hold on other questions of
  the kind?
- repeated evaluations (`mann_whitney`, the paper's test): is the difference on THESE questions more than
  the noise of sampling? It says nothing about other questions, nor about training again with another seed.
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
"""Differences with a smaller p-value are called more than chance."""

# The exact distribution is kept on a lattice of at most this many sums; 16 samples per question on 3,000
# questions need a hundred thousand.
_LATTICE_LIMIT = 5_000_000
# Means of 50 batches of 128 verdicts are multiples of 1/6400; numbers without a unit are not within 1e-12 of such a fraction.
_LARGEST_DENOMINATOR = 1 << 16
_ENUMERATION_LIMIT = 44  # two halves of 2^22 sums
# The exact distribution of a rank sum with ties is counted in a table of at most this many cells: up to 68 values on each side.
_RANK_SUM_LIMIT = 1_000_000
_DRAWS = 100_000
_POWER = 0.8


@dataclass(frozen=True)
class TestResult:
    """The outcome of one test of a difference A - B."""

    __test__ = False  # pytest would take the name for a test class

    p: float
    alternative: Alternative
    method: str
    """How the p-value was computed, in words."""
    statistic: float
    """Mean difference for the paired test, U of A for Mann-Whitney."""


def sign_flip_test(a: Sequence[float], b: Sequence[float], *, seed: int = 0) -> TestResult:
    """Paired permutation test by question, two-sided: under "no difference", A's and B's scores of a question could be swapped.

    Exact over all 2^n swaps where the differences lie on a lattice (counts of right samples do: a convolution over the possible sums)
    or where at most 44 of them differ from 0 (all sums of one half against all of the other). Otherwise 100,000 seeded random swaps,
    with the observed one counted in.
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

    Exact, ties included: over all ways to deal the pooled values to the two sides. Only samples with ties that are too large to
    count (more than 68 against 68) get the normal approximation, corrected for ties and continuity. The two-sided p is twice
    the smaller tail.
    """
    if alternative not in get_args(Alternative):
        raise ValueError(f'alternative = {alternative!r} must be "two-sided", "greater" or "less"')
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    for name, values in (("a", first), ("b", second)):
        if len(values) < 2:
            raise ValueError(f"{name} has {len(values)} evaluations: repeated evaluations are needed, at least 2")
        if not np.isfinite(values).all():
            raise ValueError(f"{name}[{int(np.argmin(np.isfinite(values)))}] is not a finite number")
    # Means of the same scores in another order differ in their last digit: those are ties.
    pooled = np.concatenate([first, second])
    pooled = np.round(pooled / (np.abs(pooled).max() or 1.0), 12)
    first, second = pooled[: len(first)], pooled[len(first) :]
    ties = len(np.unique(pooled)) < len(pooled)
    few = min(len(first), len(second))
    # Of the table of (values dealt to the smaller side, twice their rank sum).
    cells = (few + 1) * (few * (2 * len(pooled) - few + 1) + 1)
    # Also without ties: scipy's sum there has another last digit on another processor.
    if cells <= _RANK_SUM_LIMIT:
        u, p = _exact_with_ties(pooled, len(first), alternative)
        return TestResult(p, alternative, "exact, ties included" if ties else "exact", u)
    how = "asymptotic" if ties else "exact"
    outcome = stats.mannwhitneyu(first, second, alternative=alternative, method=how)
    method = "normal approximation, corrected for ties and continuity" if ties else "exact"
    return TestResult(float(outcome.pvalue), alternative, method, float(outcome.statistic))


@dataclass(frozen=True)
class EffectSize:
    """How often an evaluation of A beats one of B."""

    superiority: float
    """Vargha-Delaney A: P(A > B) + P(A = B) / 2; one half means no difference."""
    cliffs_delta: float
    """P(A > B) - P(A < B), between -1 and 1."""


def effect_size(a: Sequence[float], b: Sequence[float]) -> EffectSize:
    """Vargha-Delaney A and Cliff's delta of the values of A against those of B."""
    if not len(a) or not len(b):
        raise ValueError("an effect size needs at least one value on each side")
    wins, ties, losses = _duels(np.asarray(a, np.float64), np.asarray(b, np.float64))
    return EffectSize(auroc(a, b), (wins - losses) / (wins + ties + losses))


def auroc(positive: ArrayLike, negative: ArrayLike) -> float:
    """P(positive > negative) + P(equal) / 2, the area under the ROC curve; NaN where one of the two is empty."""
    wins, ties, losses = _duels(np.asarray(positive, np.float64), np.asarray(negative, np.float64))
    pairs = wins + ties + losses
    return (2 * wins + ties) / (2 * pairs) if pairs else math.nan


def _duels(first: NDArray[np.float64], second: NDArray[np.float64]) -> tuple[int, int, int]:
    """Of all pairs (one value of each): in how many the first value is larger, equal, smaller."""
    ordered = np.sort(second)
    below = int(np.searchsorted(ordered, first, side="left").sum())
    not_above = int(np.searchsorted(ordered, first, side="right").sum())
    return below, not_above - below, len(first) * len(second) - not_above


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: p-values that may be compared with one threshold for the whole family."""
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
    """The same over the tests that could be made; None for the others."""
    adjusted = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(adjusted) for p in p_values]


def detectable_difference(differences: Sequence[float]) -> float | None:
    """The smallest true mean difference that a two-sided paired test at the 5 % level would find in four of five cases, by the
    noncentral t distribution, from the spread of the differences seen. None below two questions."""
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2:
        return None
    return detectable_in_spreads(len(values)) * float(values.std(ddof=1))


def detectable_in_spreads(pairs: int) -> float:
    """The same for so many pairs, in standard deviations of their differences."""
    freedom = pairs - 1
    beyond = stats.t.ppf(1 - SIGNIFICANCE / 2, freedom)
    # The other tail has next to nothing at this power. Student's quantiles lie on both sides of the answer.
    shift = optimize.brentq(lambda size: stats.nct.sf(beyond, freedom, size) - _POWER, 0.5, 2 * beyond + 4)
    return float(shift) / math.sqrt(pairs)


def _exact_with_ties(pooled: NDArray[np.float64], first: int, alternative: Alternative) -> tuple[float, float]:
    """(U of the first values, p) over all ways to choose as many of the pooled values.

    Values that are equal share their mean rank. Ways are counted one distinct value after another; counts below 2^53 are exact.
    """
    total = len(pooled)
    few = min(first, total - first)
    twice = np.rint(2 * stats.rankdata(pooled)).astype(np.int64)
    seen = int(twice[:first].sum())
    # Deal to the smaller side: the other has the rest of the ranks, so its tails change places.
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
    """The differences as integer multiples of a common unit, or None where there is no small one."""
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
    """P over all sign flips that the sum is at least as extreme as the one seen. Only sums of positive
    terms, so even a tiny p-value has nearly full precision."""
    sizes = np.abs(steps)
    reach = int(sizes.sum())
    chance = np.zeros(2 * reach + 1)
    chance[reach] = 1.0
    low = high = reach
    for size in np.sort(sizes):  # small ones first: the occupied window grows slowly
        window = chance[low : high + 1] / 2
        chance[low : high + 1] = 0
        chance[low - size : high + 1 - size] += window
        chance[low + size : high + 1 + size] += window
        low, high = low - int(size), high + int(size)
    sums = np.arange(-reach, reach + 1)
    return min(1.0, math.fsum(chance[np.abs(sums) >= abs(int(steps.sum()))]))


def _enumerated_p(moved: NDArray[np.float64], observed: float) -> float:
    """The same over all sums of one half of the differences with all of the other."""
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
    # Every sum has its opposite: both tails are as large.
    beyond = len(second) - np.searchsorted(second, least - first, side="left")
    return 2 * int(beyond.sum()) / (len(first) * len(second))


def _slack(observed: float) -> float:
    # Sums of the same floats in another order differ in their last digits: those are ties, not wins.
    return 1e-9 * max(1.0, abs(observed))
