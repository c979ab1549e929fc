"""Tests of "is A better than B?", and how large a difference the data could have shown.

Two kinds of evidence, never to be mixed up:
- paired by question (`sign_flip_test`, `paired_interval`): would the difference hold on other questions of
  the kind?
- repeated evaluations (`mann_whitney`, the paper's test): is the difference on THESE questions more than
  the noise of sampling? It says nothing about other questions, nor about training again with another seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from delta_rlvr.evaluate.bootstrap import LEVEL, RESAMPLES, Interval, mean_interval

Alternative = Literal["two-sided", "greater", "less"]

# The exact distribution is kept on a lattice of at most this many sums; 16 samples a question on 3,000
# questions need a hundred thousand.
_LATTICE_LIMIT = 5_000_000
_ENUMERATION_LIMIT = 20
_DRAWS = 100_000


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


def sign_flip_test(
    a: Sequence[float], b: Sequence[float], *, alternative: Alternative = "two-sided", seed: int = 0
) -> TestResult:
    """Paired permutation test by question: under "no difference", A's and B's scores of a question could be
    swapped.

    Exact over all 2^n swaps where the differences lie on a lattice (counts of right samples do: a
    convolution over the possible sums) or where at most 20 of them differ from 0 (enumeration). Otherwise
    100,000 seeded random swaps, with the observed one counted in.
    """
    differences = _paired(a, b)
    observed = math.fsum(differences)
    mean = observed / len(differences)
    moved = differences[differences != 0]
    if not len(moved):
        return TestResult(1.0, alternative, "exact: no question differs", mean)
    steps = _as_lattice(moved)
    if steps is not None:
        p = _lattice_p(steps, alternative)
        return TestResult(p, alternative, "exact: all sign flips, by convolution", mean)
    if len(moved) <= _ENUMERATION_LIMIT:
        signs = 1 - 2 * ((np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved))) & 1)
        share = _extreme(signs @ moved, observed, alternative).mean()
        return TestResult(float(share), alternative, "exact: all sign flips, enumerated", mean)
    generator = np.random.default_rng(seed)
    hits = 0
    block = max(1, 4_000_000 // len(moved))
    for start in range(0, _DRAWS, block):
        signs = generator.choice(np.array([-1.0, 1.0]), (min(block, _DRAWS - start), len(moved)))
        hits += int(_extreme(signs @ moved, observed, alternative).sum())
    method = f"{_DRAWS} random sign flips, seed {seed}"
    return TestResult((hits + 1) / (_DRAWS + 1), alternative, method, mean)


def paired_interval(
    differences: Sequence[Sequence[float]], *, seed: int, level: float = LEVEL, resamples: int = RESAMPLES
) -> Interval:
    """Paired bootstrap: BCa interval of the mean difference, one sequence of differences by question a
    benchmark."""
    return mean_interval(differences, seed=seed, level=level, resamples=resamples)


def mann_whitney(
    a: Sequence[float], b: Sequence[float], *, alternative: Alternative = "greater"
) -> TestResult:
    """Mann-Whitney U over repeated evaluations (scipy): exact without ties, else normal with tie
    correction."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    for name, values in (("a", first), ("b", second)):
        if len(values) < 2:
            raise ValueError(
                f"{name} has {len(values)} evaluations: repeated evaluations are needed, at least 2"
            )
        if not np.isfinite(values).all():
            raise ValueError(f"{name}[{int(np.argmin(np.isfinite(values)))}] is not a finite number")
    pooled = np.concatenate([first, second])
    ties = len(np.unique(pooled)) < len(pooled)
    if np.ptp(pooled) == 0:
        u = len(first) * len(second) / 2
        return TestResult(1.0, alternative, "all values are equal", u)
    outcome = stats.mannwhitneyu(
        first, second, alternative=alternative, method="asymptotic" if ties else "exact"
    )
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
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if not len(first) or not len(second):
        raise ValueError("an effect size needs at least one value on each side")
    ordered = np.sort(second)
    below = np.searchsorted(ordered, first, side="left").sum()
    not_above = np.searchsorted(ordered, first, side="right").sum()
    pairs = len(first) * len(second)
    above = pairs - int(not_above)
    return EffectSize((int(below) + int(not_above)) / (2 * pairs), (int(below) - above) / pairs)


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


def detectable_difference(
    differences: Sequence[float], *, level: float = 0.05, power: float = 0.8
) -> float | None:
    """The smallest true mean difference that a two-sided paired test at `level` would find with probability
    `power`, by the normal approximation, from the spread of the differences seen. None below two
    questions."""
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2:
        return None
    reach = stats.norm.ppf(1 - level / 2) + stats.norm.ppf(power)
    return float(reach * values.std(ddof=1) / math.sqrt(len(values)))


def _paired(a: Sequence[float], b: Sequence[float]) -> NDArray[np.float64]:
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise ValueError(
            f"a paired test needs the same questions on both sides: got {len(first)} and {len(second)} scores"
        )
    differences = first - second
    if not np.isfinite(differences).all():
        raise ValueError(
            f"question {int(np.argmin(np.isfinite(differences)))} has a score that is not finite"
        )
    return differences


def _as_lattice(moved: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """The differences as integer multiples of a common unit, or None where there is no small one."""
    ratios = [Fraction(float(value)).limit_denominator(4096) for value in moved]
    if any(abs(float(ratio) - value) > 1e-12 for ratio, value in zip(ratios, moved, strict=True)):
        return None
    unit = math.lcm(*(ratio.denominator for ratio in ratios))
    steps = [int(ratio * unit) for ratio in ratios]
    if sum(abs(step) for step in steps) > _LATTICE_LIMIT // 2:
        return None
    common = math.gcd(*steps)
    return np.array([step // common for step in steps], dtype=np.int64)


def _lattice_p(steps: NDArray[np.int64], alternative: Alternative) -> float:
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
    return min(1.0, math.fsum(chance[_extreme(sums, int(steps.sum()), alternative, slack=0)]))


def _extreme(
    sums: NDArray[np.float64] | NDArray[np.int64],
    observed: float,
    alternative: Alternative,
    *,
    slack: float | None = None,
) -> NDArray[np.bool_]:
    # Sums of the same floats in another order differ in their last digits: those are ties, not wins.
    slack = 1e-9 * max(1.0, abs(observed)) if slack is None else slack
    if alternative == "greater":
        return np.asarray(sums >= observed - slack)
    if alternative == "less":
        return np.asarray(sums <= observed + slack)
    if alternative == "two-sided":
        return np.asarray(np.abs(sums) >= abs(observed) - slack)
    raise ValueError(f'alternative = {alternative!r} must be "two-sided", "greater" or "less"')
