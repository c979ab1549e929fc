"""Seed statistics against scipy and numbers worked out by hand, and the sentences that `compare`, page and study share."""

import numpy as np
import pytest
from scipy import stats

from delta_evidence.learning.table import paired_sentence
from delta_rlvr.evaluate.seeds import (
    adjust,
    compare_seeds,
    few_problems,
    gap_text,
    mean_text,
    p_text,
    p_words,
    seed_table,
    seeds_needed,
    student_interval,
)
from rounding import EXACT

DAPO = [0.50, 0.52, 0.47, 0.55, 0.51, 0.49]
DELTA = [0.56, 0.57, 0.55, 0.58, 0.57, 0.53]  # above by 6, 5, 8, 3, 6, 4 points: 32 in all, 5 1/3 on average
GRPO = [0.49, 0.53, 0.48, 0.54, 0.52, 0.48]


def by_seed(first_seed=0, **scores):
    return {method: dict(enumerate(values, first_seed)) for method, values in scores.items()}


def test_rows_by_hand_and_by_scipy():
    compared = seed_table(by_seed(dapo=DAPO, delta=DELTA, grpo=GRPO))
    dapo, delta, grpo = compared.rows
    assert compared.test == "paired"
    assert dapo.mean == pytest.approx(3.04 / 6, rel=EXACT)
    assert dapo.sd == pytest.approx(np.std(DAPO, ddof=1), rel=EXACT)
    assert dapo.difference is None
    assert delta.difference.mean == pytest.approx(0.32 / 6, rel=EXACT)
    # Six differences of one sign: of 64 ways to flip them 2 are as extreme. Twice that for two comparisons (Holm).
    assert compared.p(delta) == 2 / 64
    assert compared.p_adjusted(delta) == 4 / 64
    # Differences -1, 1, 1, -1, 1, -1 points add up to 0: every flip is as extreme.
    assert compared.p(grpo) == compared.p_adjusted(grpo) == 1.0
    everything = stats.PermutationMethod(n_resamples=np.inf)
    for row, values in ((delta, DELTA), (grpo, GRPO)):
        flips = stats.permutation_test(
            (np.array(values) - np.array(DAPO),), np.mean, permutation_type="samples", n_resamples=np.inf
        )
        assert row.p_paired == pytest.approx(flips.pvalue, rel=EXACT)
        expected = stats.mannwhitneyu(values, DAPO, alternative="two-sided", method=everything)
        assert row.p_mann_whitney == pytest.approx(expected.pvalue, rel=EXACT)


def test_the_seeds_decide_the_test_not_the_scores():
    assert seed_table(by_seed(dapo=DAPO, delta=DELTA)).test == "paired"
    # Some seeds of the baseline are missing: over all seeds, unpaired; the difference is that of the pairs there are.
    fewer = seed_table(by_seed(dapo=DAPO, delta=DELTA[:5]))
    assert fewer.test == "unpaired"
    assert fewer.rows[1].pairs == 5
    assert fewer.p(fewer.rows[1]) == fewer.rows[1].p_mann_whitney
    # No seed in common.
    others = seed_table(by_seed(dapo=DAPO) | by_seed(100, delta=DELTA))
    (row,) = others.rows[1:]
    assert (others.test, row.pairs, row.p_paired) == ("unpaired", 0, None)
    assert row.difference.mean == pytest.approx(0.32 / 6, rel=EXACT)
    # Welch by hand: variances over n, degrees of freedom by Welch and Satterthwaite.
    errors = [np.var(values, ddof=1) / 6 for values in (DELTA, DAPO)]
    freedom = sum(errors) ** 2 / sum(error**2 / 5 for error in errors)
    reach = stats.t.ppf(0.975, freedom) * np.sqrt(sum(errors))
    assert row.difference.high == pytest.approx(0.32 / 6 + reach, rel=1e-9)  # scipy inverts Student's t to ten digits


def test_one_seed_has_no_spread_and_no_test():
    for scores in (by_seed(dapo=[0.5], delta=[0.6]), by_seed(dapo=[0.5]) | by_seed(7, delta=[0.6])):
        first, second = adjust(compare_seeds(scores, "dapo"))
        assert first.sd is None
        assert second.difference.mean == pytest.approx(0.1, rel=EXACT)
        assert second.p_paired is second.p_mann_whitney is second.p_holm is None
        assert gap_text(second.difference) == "+10.0"
        assert mean_text(second) == "60.0"
    with pytest.raises(ValueError, match="baseline 'dapo' is not among delta"):
        compare_seeds({"delta": {0: 0.5}}, "dapo")


# The smallest p that n seeds can give is 2 / 2^n, times the number of comparisons: 5 seeds 1/16, 6 seeds 1/32, 7 seeds 1/64.
@pytest.mark.parametrize(
    ("methods", "seeds", "words"),
    [
        (2, 1, "With 1 seed and 1 comparison the test (sign flips, paired by seed) cannot come below p = 1,"),
        (2, 5, "cannot come below p = 0.0625, whatever the difference."),
        (2, 5, "5 seeds, at least 6 needed."),
        (
            3,
            6,
            "2 comparisons the test (sign flips, paired by seed) cannot come below p = 0.0625 after Holm's correction,",
        ),
        (3, 6, "6 seeds, at least 7 needed."),
    ],
)
def test_too_few_seeds(methods, seeds, words):
    scores = {f"method{n}": [0.5 + n / 10 + s / 1000 for s in range(seeds)] for n in range(methods)}
    assert words in seed_table(by_seed(**scores)).sentence


def test_too_few_seeds_without_pairs():
    # 2 against 3: one of C(5, 2) = 10 orders, two-sided 1/5. Four of each: 2/70.
    compared = seed_table(by_seed(dapo=[0.5, 0.6, 0.7]) | by_seed(9, delta=[0.8, 0.9]))
    assert "With 2 to 3 seeds and 1 comparison the test (Mann-Whitney U, unpaired)" in compared.sentence
    assert "2 to 3 seeds, at least 4 needed." in compared.sentence
    assert "below p = 0.2, whatever the difference." in compared.sentence


def test_few_pairs_show_their_differences_and_no_interval():
    """Of 2 to 4 pairs the bootstrap's interval lies within the pairs themselves: it misses the true mean far too often."""
    few = seed_table(by_seed(dapo=DAPO[:4], delta=DELTA[:4]))
    (row,) = few.rows[1:]
    # By hand: 6, 5, 8 and 3 points, 5.5 on average.
    assert few.gap(row) == "+5.5 (+6.0, +5.0, +8.0 and +3.0)"
    assert row.difference.level == 0
    assert few.gap_name == "one number per seed, as an interval needs 5 seeds"
    enough = seed_table(by_seed(dapo=DAPO[:5], delta=DELTA[:5]))
    assert " to " in enough.gap(enough.rows[1])
    assert enough.gap_name == "95 % interval"
    mixed = seed_table(by_seed(dapo=DAPO, delta=DELTA, grpo=GRPO[:2]))
    assert mixed.gap(mixed.rows[2]) == "+0.0 (-1.0 and +1.0)"
    assert mixed.gap_name == "95 % interval, or one number per seed, as an interval needs 5 seeds"
    # Without pairs there is nothing to show one by one.
    apart = seed_table(by_seed(dapo=DAPO[:4]) | by_seed(9, delta=DELTA))
    assert apart.gap(apart.rows[1]) == "+5.0"
    assert student_interval(DAPO[:4]) is None


def test_below_five_seeds_there_is_no_interval_and_files_say_so():
    """A study printed -91.5 to +107.1 for two pairs; in comparison.json both ends were the mean."""
    for scores in (by_seed(dapo=DAPO[:4], delta=DELTA[:4]), by_seed(dapo=DAPO) | by_seed(9, delta=DELTA[:4])):
        row = compare_seeds(scores, "dapo")[1]
        assert " to " not in gap_text(row.difference)
        assert (row.as_dict()["difference"]["low"], row.as_dict()["difference"]["high"]) == (None, None)
        assert row.as_dict()["difference"]["mean"] == row.difference.mean
    baseline, row = compare_seeds(by_seed(dapo=DAPO[:5], delta=DELTA[:5]), "dapo")
    assert row.as_dict()["difference"]["low"] == row.difference.low < row.difference.mean
    assert baseline.as_dict()["difference"] is None


def test_what_enough_seeds_tell():
    told = seed_table(by_seed(dapo=DAPO, delta=DELTA)).sentence
    assert told.startswith(
        "delta is ahead of dapo by 5.3 points (+3.5 to +7.2), p = 0.031. dapo ends at 50.7 %, delta at 56.0 %. "
        "Test: sign flips, paired by seed, two-sided, at the 5 % level after Holm's correction."
    )
    told = seed_table(by_seed(delta=DELTA, dapo=DAPO)).sentence
    assert told.startswith("dapo is behind delta by 5.3 points (-7.2 to -3.5), p = 0.031.")
    told = seed_table(by_seed(dapo=DAPO, grpo=GRPO)).sentence
    assert told.startswith("Cannot tell grpo from dapo: 6 seeds. ")  # their means are equal
    mixed = seed_table(by_seed(dapo=DAPO, delta=DELTA, grpo=[0.5])).sentence
    assert mixed.startswith(
        "delta is ahead of dapo by 5.3 points (+3.5 to +7.2), p = 0.006; cannot tell grpo from dapo: 1 to 6 seeds."
    )
    assert mixed.endswith("Too few seeds for a test: grpo.")


def test_how_many_seeds_would_tell():
    """Differences of 1, 2 and 3 points have the mean 2 and the spread 1: d = 2. Five pairs find that in 91 % of cases, four in 67 %
    (power of the paired t test: G*Power), and below six pairs sign flips find nothing."""
    base = [0.5, 0.5, 0.5]
    two = seed_table(by_seed(dapo=base, delta=[0.51, 0.52, 0.53]))
    assert seeds_needed(two.rows[1]) == 5
    assert two.verdict == "Cannot tell delta from dapo: 3 seeds, roughly 6 needed for the difference seen."
    # Two pairs have hardly a spread, and an estimate from it would be chance.
    pair = seed_table(by_seed(dapo=base[:2], delta=[0.51, 0.53]))
    assert pair.verdict == "Cannot tell delta from dapo: 2 seeds, at least 6 needed."
    assert "use" not in pair.sentence  # one number in all
    many = seed_table(by_seed(dapo=[0.5] * 5, delta=[0.48, 0.5, 0.51, 0.52, 0.53]))
    assert "5 seeds, about " in many.verdict
    # d = 0.5: 34 pairs, as every table of sample sizes has it.
    half = seed_table(by_seed(dapo=base, delta=[0.495, 0.505, 0.515]))
    assert half.verdict == "Cannot tell delta from dapo: 3 seeds, roughly 34 needed for the difference seen."
    both = seed_table(by_seed(dapo=base, delta=[0.495, 0.505, 0.515], grpo=[0.499, 0.501, 0.5005]))
    assert both.verdict.startswith("Cannot tell delta or grpo from dapo: 3 seeds, roughly 34 needed for the clearest")
    little = seed_table(by_seed(dapo=base, delta=[0.4, 0.6, 0.501]))
    assert "more than 100 needed for a difference as small as what was seen" in little.verdict
    one = seed_table(by_seed(dapo=[0.5], delta=[0.6]))
    assert one.verdict == "Cannot tell delta from dapo: 1 seed, at least 6 needed."


def test_a_comparison_that_stands_alone():
    rows = compare_seeds(by_seed(dapo=DAPO, delta=DELTA, grpo=GRPO), "dapo")
    assert paired_sentence(rows[1], "dapo") == (
        "delta against dapo, 6 pairs: +5.3 points (+3.5 to +7.2), p = 0.031: more than seed-to-seed variation explains."
    )
    assert "p = 1.000: indistinguishable from seed-to-seed variation. A true difference of" in paired_sentence(
        rows[2], "dapo"
    )


def test_texts():
    assert (p_text(None), p_text(0.0004), p_text(0.0312)) == ("-", "< 0.001", "0.031")
    assert (p_words(0.0004), p_words(0.0312)) == ("p < 0.001", "p = 0.031")
    # Student's t with 4 degrees of freedom: 2.7764 * sd / sqrt(5), sd = sqrt(0.001 / 4).
    low, high = student_interval([0.60, 0.61, 0.62, 0.63, 0.64])
    assert high - 0.62 == pytest.approx(2.776445 * (0.001 / 4 / 5) ** 0.5, rel=1e-6)  # the digits of the quantile
    assert low + high == pytest.approx(2 * 0.62, rel=EXACT)


@pytest.mark.parametrize(
    ("starts", "words"), [([0.41, 0.41], "All started at 41.0 %. With"), ([0.41, 0.4], "%. With"), ([None], "%. With")]
)
def test_the_start_that_all_runs_share(starts, words):
    """Two methods of three had lost, and the sentence read as a gain of the third."""
    sentence = seed_table(by_seed(dapo=DAPO[:2], delta=DELTA[:2]), starts=starts).sentence
    assert words in sentence
    assert ("started" in sentence) == ("started" in words)


@pytest.mark.parametrize(
    ("start", "lower", "broken"),
    [
        (0.75, 0.2, True),
        (0.57, 0.0, False),  # above delta's 56.0 %, by less than a tenth
        (0.75, -0.2, False),  # delta gained
        (0.45, 0.3, False),  # dapo gained
    ],
)
def test_methods_that_all_lost_compare_how_they_break(start, lower, broken):
    scores = by_seed(dapo=DAPO, delta=[one - lower for one in DELTA])
    told = seed_table(scores, starts=[start], rates=[2e-5]).sentence
    assert told.startswith(f"Every method ended below where it started ({100 * start:.1f} %)") == broken
    assert ("Try `--learning-rates 2e-6,4e-6,1e-5`." in told) == broken
    assert "All at one learning rate (2e-5), not tuned:" in told
    # Chosen rates, or several: neither sentence names one.
    chosen = seed_table(scores, starts=[start], rates=[None]).sentence
    assert "Try" not in chosen
    assert "tuned" not in chosen
    # Seeds that lie far apart may lie around the start.
    wide = seed_table(by_seed(dapo=[0.1, 0.7], delta=[0.1, 0.7]), starts=[0.5]).verdict
    assert wide.startswith("Cannot tell")


def test_weights_without_effect_are_told_before_who_is_behind():
    """A rule that trained nothing was only "behind dapo"."""
    told = seed_table(by_seed(dapo=DAPO, delta=DELTA, grpo=GRPO), effects={"grpo": "every weight is 0", "dapo": None})
    assert told.verdict.startswith("grpo: every weight is 0. ")
    assert told.verdict.count("weight is 0") == told.sentence.count("weight is 0") == 1


def test_few_problems_are_named_beside_few_seeds():
    """A comparison by three problems advised more seeds, and nothing else."""
    rough = few_problems(3, 40)
    sentence = seed_table(by_seed(dapo=DAPO[:2], delta=DELTA[:2]), note=rough).sentence
    assert sentence.endswith(f"whatever the difference. {rough}")
    assert rough.startswith("A score of 3 problems is rough, and more seeds do not help: add rows to the task's")
    # Where the task has more of them, as many were asked as --eval_problems said.
    assert few_problems(3, 3).endswith("do not help: raise eval_problems.")
    assert few_problems(19, None) is not None
    assert few_problems(20, 20) is few_problems(None, 3) is None
