"""Comparison of methods over training seeds.

`compare`, the page and the study all use this module, so that the same scores always get the same test, p-value, interval and
sentence.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any, Literal

from scipy import stats

from delta_rlvr.evaluate.bootstrap import FEW_QUESTIONS, LEVEL, Interval
from delta_rlvr.evaluate.significance import (
    SIGNIFICANCE,
    EffectSize,
    detectable_difference,
    detectable_in_spreads,
    effect_size,
    holm_of_known,
    mann_whitney,
    sign_flip_test,
)
from delta_rlvr.score_units import POINTS, ScoreUnit
from delta_rlvr.words import counted, listed, rate_text

SeedScores = Mapping[Any, float]
"""Scores by training seed, or by task and seed."""

INTERVAL_SEEDS = 5
"""With fewer seeds (or pairs) no difference has an interval, in `compare`, on the page and in a study: Student's interval of two or
three numbers is as wide as the scale. `compare` and the page show all differences in its place."""

Test = Literal["paired", "unpaired"]
"""Sign flips of the differences by seed, or Mann-Whitney U over all seeds of both methods."""
_TEST_NAMES: dict[Test, str] = {"paired": "sign flips, paired by seed", "unpaired": "Mann-Whitney U, unpaired"}


@dataclass(frozen=True)
class SeedComparison:
    """The scores of one method, and its difference to the baseline."""

    method: str
    seeds: int
    mean: float
    sd: float | None
    """The standard deviation over seeds; None for one seed."""
    pairs: int = 0
    """The number of seeds in common with the baseline; 0 for the baseline itself."""
    difference: Interval | None = None
    """Mean difference to the baseline. With two or more pairs: paired by seed, with Student's interval. Otherwise: over all seeds,
    with Welch's interval. Without an interval, as below `INTERVAL_SEEDS`, both ends are the mean."""
    p_paired: float | None = None
    """Two-sided sign-flip test over the pairs."""
    p_mann_whitney: float | None = None
    """Two-sided, unpaired test over all seeds of both methods."""
    p_holm: float | None = None
    """`p_paired` after Holm's correction; see `adjust`."""
    p_mann_whitney_holm: float | None = None
    """`p_mann_whitney` after Holm over the same family. p of n pairs is at least 2^(1-n); few seeds against many can be lower."""
    effect: EffectSize | None = None
    detectable: float | None = None
    """The smallest true difference that this many pairs would show in four of five studies."""

    def as_dict(self) -> dict[str, Any]:
        """Return the row as files have it: the ends of an interval that there is not are null."""
        values = asdict(self)
        if self.difference is not None and not self.difference.low < self.difference.high:
            values["difference"] |= {"low": None, "high": None}
        return values


def compare_seeds(scores: Mapping[str, SeedScores], baseline: str) -> list[SeedComparison]:
    """Compare each method with the baseline. P-values are uncorrected: `adjust` corrects a family."""
    if baseline not in scores:
        raise ValueError(f"baseline {baseline!r} is not among {', '.join(scores)}")
    return [_compare(method, scores[method], scores[baseline], method == baseline) for method in scores]


def adjust(family: Sequence[SeedComparison]) -> list[SeedComparison]:
    """Apply Holm's correction over a family of comparisons. (A primary comparison that was declared before is not part of it.)"""
    paired = holm_of_known([row.p_paired for row in family])
    unpaired = holm_of_known([row.p_mann_whitney for row in family])
    return [
        replace(row, p_holm=p, p_mann_whitney_holm=other)
        for row, p, other in zip(family, paired, unpaired, strict=True)
    ]


def _compare(method: str, own: SeedScores, base: SeedScores, alone: bool) -> SeedComparison:
    values, base_values = list(own.values()), list(base.values())
    sd = statistics.stdev(values) if len(values) > 1 else None
    row = SeedComparison(method, len(values), statistics.fmean(values), sd)
    if alone:
        return row
    shared = sorted(own.keys() & base.keys())
    row = replace(row, pairs=len(shared))
    if len(values) > 1 and len(base_values) > 1:
        p = mann_whitney(values, base_values, alternative="two-sided").p
        row = replace(row, p_mann_whitney=p, effect=effect_size(values, base_values))
    if len(shared) < 2:
        return replace(row, difference=_unpaired_difference(values, base_values, len(shared)))
    first, second = [own[seed] for seed in shared], [base[seed] for seed in shared]
    differences = [a - b for a, b in zip(first, second, strict=True)]
    return replace(
        row,
        difference=mean_over_seeds(differences),
        p_paired=sign_flip_test(first, second).p,
        detectable=detectable_difference(differences),
    )


def _unpaired_difference(values: Sequence[float], base: Sequence[float], pairs: int) -> Interval:
    gap = statistics.fmean(values) - statistics.fmean(base)
    if (pairs or min(len(values), len(base))) < INTERVAL_SEEDS:
        return _without_interval(gap)
    if len(set(values)) == len(set(base)) == 1:
        return Interval(gap, gap, gap, LEVEL, 0, "no spread over seeds: no interval")
    welch = stats.ttest_ind(values, base, equal_var=False).confidence_interval(LEVEL)
    note = "no seeds in common: Welch's interval"
    return Interval(gap, float(welch.low), float(welch.high), LEVEL, 0, note)


@dataclass(frozen=True)
class SeedTable:
    """All methods against the first one, with one test and its conclusion."""

    rows: list[SeedComparison]
    """The baseline first; p-values are adjusted over the others."""
    test: Test
    """Paired if every method has the baseline's seeds, otherwise unpaired. It depends on the seeds, not on the scores."""
    few: Mapping[str, Sequence[float]]
    """The differences to the baseline by seed, of the methods with too few pairs for an interval."""
    unit: ScoreUnit
    note: str | None = None
    """A further sentence about the scores."""
    start: float | None = None
    """The score before training, if it is the same in all runs."""
    rate: float | None = None
    """The learning rate, if it is the same in all runs and was not tuned."""
    effects: Mapping[str, str | None] = field(default_factory=dict)
    """A warning by method, where its weights had no effect."""

    def p(self, row: SeedComparison) -> float | None:
        """Return the uncorrected p-value of the test."""
        return row.p_paired if self.test == "paired" else row.p_mann_whitney

    def p_adjusted(self, row: SeedComparison) -> float | None:
        """Return the p-value of the test after Holm's correction."""
        return row.p_holm if self.test == "paired" else row.p_mann_whitney_holm

    @property
    def test_name(self) -> str:
        return _TEST_NAMES[self.test]

    def gap(self, row: SeedComparison) -> str:
        """Return the difference to the baseline in points, with the numbers that `gap_name` describes in brackets."""
        each = listed([self.unit.signed(difference) for difference in self.few.get(row.method, ())])
        return gap_text(row.difference, self.unit) + (f" ({each})" if each else "")

    @property
    def gap_name(self) -> str:
        """The heading of the brackets after a difference."""
        if not self.few:
            return "95 % interval"
        each = f"one number per seed, as an interval needs {INTERVAL_SEEDS} seeds"
        return each if len(self.few) == len(self.rows) - 1 else f"95 % interval, or {each}"

    @property
    def sentence(self) -> str:
        """The verdict, the final scores, and the basis of the test."""
        baseline, *others = self.rows
        what = "" if self.unit.sign else f" a {self.unit.score} of"
        ends = [f"{baseline.method} ends at{what} {self.unit.shown(baseline.mean)}"]
        ends += [f"{row.method} at {self.unit.shown(row.mean)}" for row in others]
        start = None if self.start is None else f"All started at {self.unit.shown(self.start)}."
        return " ".join(filter(None, [self.verdict, f"{', '.join(ends)}.", start, self.basis]))

    @property
    def verdict(self) -> str:
        """Which methods are ahead or behind, or how many seeds would tell; before it, whether all of them broke, and whose weights
        had no effect."""
        without = [f"{row.method}: {warning}." for row in self.rows if (warning := self.effects.get(row.method))]
        return " ".join(filter(None, [self._broken, *without, self._apart]))

    @property
    def _broken(self) -> str | None:
        """A sentence where every method lost clearly: a tenth of the score, and more than seeds differ by."""
        start = self.start
        if start is None or any(row.mean + max(2 * (row.sd or 0), abs(start) / 10) >= start for row in self.rows):
            return None
        lower = (
            f" Try `--learning-rates {','.join(rate_text(self.rate / by) for by in (10, 5, 2))}`." if self.rate else ""
        )
        return (
            f"Every method ended below where it started ({self.unit.shown(start)}): the learning rate is probably too high, so this "
            f"compares how they break, not how they learn.{lower}"
        )

    @property
    def _apart(self) -> str:
        baseline, *others = self.rows
        apart = [row for row in others if is_significant(self.p_adjusted(row))]
        alike = [row for row in others if row not in apart]
        clauses = [
            f"{row.method} is {'ahead of' if row.difference.mean > 0 else 'behind'} {baseline.method} by "
            f"{gap_text(row.difference, self.unit, named=True).lstrip('+-')}, {p_words(self.p_adjusted(row))}"
            for row in apart
            if row.difference
        ]
        if alike:
            names = " or ".join(row.method for row in alike)
            least, most = min(row.seeds for row in self.rows), max(row.seeds for row in self.rows)
            seeds = counted(most, "seed") if least == most else f"{least} to {most} seeds"
            clause = f"cannot tell {names} from {baseline.method}: {seeds}"
            clauses.append(f"{clause}, {needed}" if (needed := self._needed(alike)) else clause)
        text = f"{'; '.join(clauses)}."
        return text if apart else text[:1].upper() + text[1:]

    def _needed(self, alike: Sequence[SeedComparison]) -> str | None:
        """Return how many seeds the clearest of these differences would need, in words."""
        fewest = enough_seeds(len(self.rows) - 1, self.test)
        known = [(seeds_needed(row), row) for row in alike if row.pairs > 2]
        sizes = [(max(seeds, fewest), row) for seeds, row in known if seeds is not None]
        if not sizes:
            too_few = too_few_seeds([row.seeds for row in self.rows], self.test)
            return f"at least {fewest} needed" if too_few else None
        seeds, row = min(sizes, key=lambda one: one[0])
        if seeds > MANY_SEEDS:
            return f"more than {MANY_SEEDS} needed for a difference as small as what was seen"
        seen = "the difference seen" if len(alike) == 1 else f"the clearest difference seen, {row.method}'s"
        about = "roughly" if row.pairs < INTERVAL_SEEDS else "about"
        return f"{about} {seeds} needed for {seen}" if seeds > row.seeds else None

    @property
    def basis(self) -> str:
        """The test, what limits it, and the note."""
        # The verdict says how many seeds are needed.
        too_few = too_few_seeds([row.seeds for row in self.rows], self.test, advise=False)
        test = too_few or f"Test: {self.test_name}, two-sided, at the 5 % level after Holm's correction."
        untested = [row.method for row in self.rows[1:] if self.p(row) is None]
        rest = f"Too few seeds for a test: {', '.join(untested)}." if untested and not too_few else None
        untuned = (
            f"All at one learning rate ({rate_text(self.rate)}), not tuned: at each method's own best rate the order may differ."
            if self.rate
            else None
        )
        return " ".join(filter(None, [test, rest, untuned, self.note]))


MANY_SEEDS = 100
"""The most seeds that a sentence recommends."""


def seeds_needed(row: SeedComparison) -> int | None:
    """Return the pairs of seeds with which the observed difference, with its spread, would be found in four of five comparisons.

    None without a difference or spread; `MANY_SEEDS` + 1 for any larger number."""
    if not row.detectable or row.difference is None or row.difference.mean == 0:
        return None
    spread = row.detectable / detectable_in_spreads(row.pairs)
    wanted = abs(row.difference.mean) / spread
    return next((n for n in range(2, MANY_SEEDS + 1) if detectable_in_spreads(n) <= wanted), MANY_SEEDS + 1)


def enough_seeds(comparisons: int, test: Test = "paired") -> int:
    """Return the fewest seeds with which the test can be significant."""
    return next(n for n in count(2) if comparisons * _floor(n, n, test) < SIGNIFICANCE)


def too_few_seeds(seeds: Sequence[int], test: Test = "paired", *, advise: bool = True) -> str | None:
    """Return a sentence if the test cannot be significant with these numbers of seeds (the baseline's first), for any scores.
    `advise`: it says how many seeds to use."""
    baseline, *others = seeds
    # Holm multiplies the smallest p-value by the number of comparisons.
    least = min(1.0, len(others) * min(_floor(own, baseline, test) for own in others))
    if least < SIGNIFICANCE:
        return None
    enough = enough_seeds(len(others), test)
    fewest, most = min(seeds), max(seeds)
    with_seeds = counted(most, "seed") if fewest == most else f"{fewest} to {most} seeds"
    corrected = " after Holm's correction" if len(others) > 1 else ""
    more = f": use {enough} or more seeds to tell methods apart" if advise else ""
    return (
        f"With {with_seeds} and {counted(len(others), 'comparison')} the test ({_TEST_NAMES[test]}) cannot come below "
        f"p = {least:.3g}{corrected}, whatever the difference{more}."
    )


def _floor(seeds: int, base_seeds: int, test: Test) -> float:
    """Return the smallest p that these numbers of seeds can give without ties."""
    if min(seeds, base_seeds) < 2:
        return 1.0
    if test == "paired":
        return paired_floor(seeds)
    # All scores of one side above those of the other, in either direction.
    return 2 / math.comb(seeds + base_seeds, seeds)


def paired_floor(pairs: int) -> float:
    """Return the smallest p of this many pairs: all differences have one sign, in either direction."""
    return 2 / 2**pairs


def few_problems(problems: int | None, wanted: int | None) -> str | None:
    """Return a sentence if a held-out score has few problems. `wanted`: the setting `eval_problems`."""
    if problems is None or problems >= FEW_QUESTIONS:
        return None
    more = "add rows to the task's file, or hold out another file (FILE?heldout=OTHER)"
    if problems == wanted:
        more = "raise eval_problems"
    return f"A score of {counted(problems, 'problem')} is rough, and more seeds do not help: {more}."


def seed_table(
    scores: Mapping[str, SeedScores],
    unit: ScoreUnit = POINTS,
    note: str | None = None,
    starts: Iterable[float | None] = (),
    rates: Iterable[float | None] = (),
    effects: Mapping[str, str | None] | None = None,
) -> SeedTable:
    """Compare every method with the first. `note`: a last sentence. `starts`: the score of each run before training. `rates`: the
    learning rate of each run, if it was not tuned. `effects`: a warning by method, where its weights had no effect."""
    start, rate = (each.pop() if len(each) == 1 else None for each in (set(starts), set(rates)))
    baseline, base = next(iter(scores.items()))
    same_seeds = all(own.keys() == base.keys() for own in scores.values())
    rows, few = [], {}
    for row in adjust(compare_seeds(scores, baseline)):
        if row.difference is not None and (row.pairs or min(row.seeds, len(base))) < INTERVAL_SEEDS:
            own = scores[row.method]
            # With one pair the mean is already the difference.
            shared = sorted(own.keys() & base.keys()) if row.pairs > 1 else []
            few[row.method] = [own[seed] - base[seed] for seed in shared]
        rows.append(row)
    return SeedTable(rows, "paired" if same_seeds else "unpaired", few, unit, note, start, rate, effects or {})


def mean_over_seeds(values: Sequence[float]) -> Interval:
    """Return the mean with Student's interval, which keeps its level with a dozen seeds; a bootstrap does not. Below `INTERVAL_SEEDS`
    there is none: both ends are the mean."""
    mean = statistics.fmean(values)
    if len(values) < INTERVAL_SEEDS:
        return _without_interval(mean)
    reach = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * statistics.stdev(values)
    reach /= math.sqrt(len(values))
    return Interval(mean, mean - reach, mean + reach, LEVEL, 0)


def _without_interval(mean: float) -> Interval:
    return Interval(mean, mean, mean, 0.0, 0, f"fewer than {INTERVAL_SEEDS} seeds: no interval")


def student_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return Student's 95 % interval of the mean over seeds; None below `INTERVAL_SEEDS`."""
    interval = mean_over_seeds(values)
    return (interval.low, interval.high) if len(values) >= INTERVAL_SEEDS else None


def is_significant(p: float | None) -> bool:
    """Return whether a p-value is below the 5 % level; None is not."""
    return p is not None and p < SIGNIFICANCE


def mean_text(row: SeedComparison, unit: ScoreUnit = POINTS) -> str:
    """Return mean and standard deviation over seeds for a table."""
    return unit.plain(row.mean) + ("" if row.sd is None else f" ± {unit.plain(row.sd)}")


def gap_text(gap: Interval | None, unit: ScoreUnit = POINTS, *, named: bool = False) -> str:
    """Return the difference to the baseline for a table, with its interval if there is one. `named` adds the unit for a sentence:
    "+5.3 points (+4.0 to +6.7)"."""
    if gap is None:
        return "-"
    interval = f" ({unit.signed(gap.low)} to {unit.signed(gap.high)})" if gap.low < gap.high else ""
    return f"{unit.signed(gap.mean)}{f' {unit.name}' if named else ''}{interval}"


def p_text(p: float | None) -> str:
    """Return a p-value for a table."""
    return "-" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_words(p: float | None) -> str:
    """Return a p-value for a sentence: "p = 0.031"."""
    text = p_text(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"
