"""Methods compared over training seeds: what another seed would do to the difference, which no single run can tell."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from delta_rlvr.evaluate.bootstrap import Interval, mean_interval
from delta_rlvr.evaluate.significance import (
    EffectSize,
    detectable_difference,
    effect_size,
    holm,
    mann_whitney,
    sign_flip_test,
)

SeedScores = Mapping[int, float]
"""A score by training seed."""


@dataclass(frozen=True)
class SeedComparison:
    """One method, alone and against the baseline on the seeds that both have."""

    method: str
    seeds: int
    mean: float
    sd: float | None
    """Over seeds; None for one seed."""
    pairs: int = 0
    """Seeds that the baseline has too; 0 for the baseline itself."""
    difference: Interval | None = None
    """Mean difference to the baseline, paired by seed, with its bootstrap interval (no interval below two pairs)."""
    p_paired: float | None = None
    """Sign-flip test over the pairs, two-sided."""
    p_mann_whitney: float | None = None
    """Unpaired, two-sided, over all seeds of both."""
    p_holm: float | None = None
    """The paired p-value after Holm; see `adjust`."""
    p_mann_whitney_holm: float | None = None
    """The unpaired one after Holm over the same family. n pairs cannot come below 2^(1-n); few seeds against many can do better."""
    effect: EffectSize | None = None
    detectable: float | None = None
    """The smallest true difference that so many pairs would show in four of five such studies."""


def compare_seeds(scores: Mapping[str, SeedScores], baseline: str) -> list[SeedComparison]:
    """Each method against the baseline, p-values as they are: `adjust` corrects a whole family of them."""
    if baseline not in scores:
        raise ValueError(f"baseline {baseline!r} is not among {', '.join(scores)}")
    return [_compare(method, scores[method], scores[baseline], method == baseline) for method in scores]


def adjust(family: Sequence[SeedComparison]) -> list[SeedComparison]:
    """Holm's correction over all comparisons of a family (a primary comparison, declared before, is not part of it)."""
    tested = [found for found in family if found.p_paired is not None and found.p_mann_whitney is not None]
    paired = iter(holm([found.p_paired or 0.0 for found in tested]))
    unpaired = iter(holm([found.p_mann_whitney or 0.0 for found in tested]))
    return [
        replace(found, p_holm=next(paired), p_mann_whitney_holm=next(unpaired))
        if found.p_paired is not None and found.p_mann_whitney is not None
        else found
        for found in family
    ]


def _compare(method: str, own: SeedScores, base: SeedScores, alone: bool) -> SeedComparison:
    values = list(own.values())
    found = SeedComparison(
        method, len(values), statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
    )
    shared = sorted(own.keys() & base.keys())
    if alone or not shared:
        return found
    first, second = [own[seed] for seed in shared], [base[seed] for seed in shared]
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(shared) < 2:
        gap = differences[0]
        return replace(found, pairs=1, difference=Interval(gap, gap, gap, 0.0, 0, "one seed: no interval"))
    return replace(
        found,
        pairs=len(shared),
        difference=mean_interval([differences], seed=0),
        p_paired=sign_flip_test(first, second).p,
        p_mann_whitney=mann_whitney(values, list(base.values()), alternative="two-sided").p,
        effect=effect_size(values, list(base.values())),
        detectable=detectable_difference(differences),
    )
