"""Tests of significance against scipy, brute force and numbers worked out by hand."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from delta_rlvr.evaluate.bootstrap import mean_interval
from delta_rlvr.evaluate.significance import (
    EffectSize,
    auroc,
    detectable_difference,
    effect_size,
    holm,
    mann_whitney,
    sign_flip_test,
)
from rounding import EXACT

ALTERNATIVES = ["two-sided", "greater", "less"]


def _brute_sign_flip(differences):
    observed = sum(differences)
    hits = 0
    for signs in product((1, -1), repeat=len(differences)):
        total = sum(sign * value for sign, value in zip(signs, differences, strict=True))
        hits += abs(total) >= abs(observed) - 1e-9
    return hits / 2 ** len(differences)


@pytest.mark.parametrize("seed", range(6))
def test_sign_flips_equal_brute_force(seed):
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 9, (2, 10)) / 8  # on a lattice; numbers without a unit are enumerated
    for (a, b), method in ((counts, "convolution"), (generator.normal(0.3, 1.0, (2, 2 * seed + 1)), "enumerated")):
        outcome = sign_flip_test(a, b)
        assert method in outcome.method
        assert abs(outcome.p - _brute_sign_flip(list(a - b))) <= 1e-12


def test_sign_flips_by_hand():
    # Five questions, A better in each by the same amount: 2 of 32 flips reach the size of the sum.
    a, b = [1.0] * 5, [0.0] * 5
    assert sign_flip_test(a, b).p == 2 / 32
    assert sign_flip_test(a, a).p == 1.0
    # Equal questions change nothing: only the five that differ can be flipped.
    assert sign_flip_test(a + [0.5] * 40, b + [0.5] * 40).p == 2 / 32


def test_the_exact_path_serves_large_data():
    # 400 questions, 16 samples: a tail far below what random flips could show, against the normal
    # approximation.
    generator = np.random.default_rng(0)
    b = generator.binomial(16, 0.3, 400) / 16
    a = generator.binomial(16, 0.33, 400) / 16
    outcome = sign_flip_test(a, b)
    differences = a - b
    z = differences.sum() / np.sqrt((differences**2).sum())
    assert "convolution" in outcome.method
    # Far out in the tail the approximation is rough.
    assert outcome.p == pytest.approx(2 * stats.norm.sf(z), rel=0.1)


def test_random_flips_are_seeded_and_close():
    # Differences with no common unit, too many to enumerate: a normal limit tells the right answer.
    generator = np.random.default_rng(1)
    a, b = generator.random(60) + 0.1, generator.random(60)
    first, second = sign_flip_test(a, b, seed=4), sign_flip_test(a, b, seed=4)
    assert first == second
    assert "random sign flips" in first.method
    z = (a - b).sum() / np.sqrt(((a - b) ** 2).sum())
    assert first.p == pytest.approx(2 * stats.norm.sf(z), abs=0.01)  # an approximation, and 100,000 draws


def test_paired_tests_refuse_unequal_questions():
    with pytest.raises(ValueError, match="same questions"):
        sign_flip_test([1, 0], [1])
    with pytest.raises(ValueError, match="question 1"):
        sign_flip_test([1, float("nan")], [1, 0])


def _brute_mann_whitney(a, b, alternative):
    """Every way to deal the pooled values: the share whose U is at least as extreme; two-sided is twice the smaller tail."""
    pooled = [*a, *b]

    def u_of(chosen):
        others = [j for j in range(len(pooled)) if j not in chosen]
        pairs = [(pooled[i], pooled[j]) for i in chosen for j in others]
        return sum((x > y) + (x == y) / 2 for x, y in pairs)

    seen = u_of(range(len(a)))
    all_ways = [u_of(chosen) for chosen in combinations(range(len(pooled)), len(a))]
    greater = sum(u >= seen for u in all_ways) / len(all_ways)
    less = sum(u <= seen for u in all_ways) / len(all_ways)
    return {"greater": greater, "less": less, "two-sided": min(1.0, 2 * min(greater, less))}[alternative]


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@pytest.mark.parametrize("levels", [2, 3, 5, 1000])  # few levels: many ties
@pytest.mark.parametrize("sizes", [(2, 2), (3, 4), (4, 3), (5, 5), (2, 7), (6, 3)])
def test_mann_whitney_equals_brute_force(alternative, levels, sizes):
    generator = np.random.default_rng(levels)
    for _ in range(4):
        a, b = (generator.integers(0, levels, size) / levels for size in sizes)
        outcome = mann_whitney(a, b, alternative=alternative)
        assert outcome.method.startswith("exact")
        assert outcome.statistic == sum((x > y) + (x == y) / 2 for x in a for y in b)
        assert abs(outcome.p - _brute_mann_whitney(a, b, alternative)) <= 1e-12


def test_mann_whitney_with_ties_by_hand():
    # 35 ways to choose three of 0 0 0 1 1 1 2. Rank sums as high as that of {1, 1, 2} have the 2 and two of the three 1s: 3 ways.
    # The normal approximation says 0.043.
    assert mann_whitney([1, 1, 2], [0, 0, 0, 1]).p == 3 / 35
    expected = stats.mannwhitneyu([1, 1, 2], [0, 0, 0, 1], alternative="greater", method="asymptotic").pvalue
    assert expected == pytest.approx(0.0429, abs=1e-4)  # the digits above


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_mann_whitney_equals_scipy(alternative):
    generator = np.random.default_rng(2)
    apart, base = generator.random(12) + 0.2, generator.random(16)
    expected = stats.mannwhitneyu(apart, base, alternative=alternative, method="exact").pvalue
    assert mann_whitney(apart, base, alternative=alternative).p == expected
    tied, other = generator.integers(0, 4, 6), generator.integers(0, 4, 5)
    everything = stats.PermutationMethod(n_resamples=np.inf)
    expected = stats.mannwhitneyu(tied, other, alternative=alternative, method=everything).pvalue
    assert abs(mann_whitney(tied, other, alternative=alternative).p - expected) <= 1e-12


def test_many_values_with_ties_agree_with_the_normal_approximation():
    generator = np.random.default_rng(4)
    a, b = generator.integers(2, 40, 60), generator.integers(0, 38, 60)
    outcome = mann_whitney(a, b)
    assert outcome.method == "exact, ties included"
    normal = stats.mannwhitneyu(a, b, alternative="greater", method="asymptotic").pvalue
    assert outcome.p == pytest.approx(normal, rel=0.05)  # in this tail the approximation is a few per cent off
    # Beyond the size of the table the approximation is what there is.
    many = mann_whitney(generator.integers(2, 40, 400), generator.integers(0, 38, 400))
    assert many.method.startswith("normal approximation")


def test_values_that_differ_in_the_last_digit_are_ties():
    # 0.1 + 0.2 and 0.3 are one score, added in two orders.
    assert 0.1 + 0.2 > 0.3
    a, b = [0.1 + 0.2, 0.5, 0.7], [0.3, 0.1, 0.2]
    assert mann_whitney(a, b) == mann_whitney([0.3, 0.5, 0.7], b)


def test_mann_whitney_edges():
    assert mann_whitney([1, 1, 1], [1, 1, 1]).p == 1.0
    assert mann_whitney([0, 0], [0, 0], alternative="two-sided").p == 1.0
    # 16 against 16, fully apart: one of C(32, 16) orders.
    assert mann_whitney(range(16, 32), range(16)).p == pytest.approx(1 / 601080390, rel=1e-9)
    with pytest.raises(ValueError, match="at least 2"):
        mann_whitney([1.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="'larger' must be"):
        mann_whitney([1.0, 2.0], [0.0, 1.0], alternative="larger")


def test_effect_sizes_by_hand_and_by_counting_pairs():
    # (3,1) against (2,1): 3>2, 3>1, 1<2, 1=1 -> A = (2 + .5) / 4, delta = (2 - 1) / 4.
    assert effect_size([3, 1], [2, 1]) == EffectSize(0.625, 0.25)
    assert auroc([1, 1], [1]) == 0.5
    assert np.isnan(auroc([], [1]))
    generator = np.random.default_rng(6)
    a, b = generator.integers(0, 9, 40), generator.integers(1, 10, 50)
    delta = np.sign(a[:, None] - b[None]).mean()
    size = effect_size(a, b)
    assert size.superiority == auroc(a, b) == pytest.approx((delta + 1) / 2, rel=EXACT)
    assert size.cliffs_delta == pytest.approx(delta, rel=EXACT)
    assert size.superiority == pytest.approx(stats.mannwhitneyu(a, b).statistic / 2000, rel=EXACT)


def test_holm_by_hand_and_by_closure():
    # Sorted .01 .02 .04: 3 x .01 = .03; max(.03, 2 x .02) = .04; max(.04, 1 x .04) = .04.
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04], abs=1e-15)
    # The closure principle: adjusted p = the largest Bonferroni p over all families that contain the
    # hypothesis.
    p_values = [0.3, 0.001, 0.02, 0.011, 0.9]
    for index, adjusted in enumerate(holm(p_values)):
        families = [family for size in range(1, 6) for family in combinations(range(5), size) if index in family]
        closed = max(min(1.0, len(family) * min(p_values[i] for i in family)) for family in families)
        assert abs(adjusted - closed) <= 1e-12
    with pytest.raises(ValueError, match=r"p_values\[1\]"):
        holm([0.1, 1.2])


def test_interval_equals_scipy_and_is_seeded():
    scores = np.random.default_rng(0).binomial(16, 0.3, 30) / 16
    interval = mean_interval([scores], seed=5)
    expected = stats.bootstrap(
        (scores,), np.mean, n_resamples=10_000, method="BCa", random_state=np.random.default_rng(5)
    ).confidence_interval
    assert abs(interval.low - expected.low) <= 1e-12
    assert abs(interval.high - expected.high) <= 1e-12
    assert interval == mean_interval([scores], seed=5)
    assert interval != mean_interval([scores], seed=6)


def test_strata_keep_the_difference_between_benchmarks_out():
    # Two benchmarks, easy and hard, with little spread inside: pooled resampling would mix them.
    easy, hard = [0.9, 1.0] * 10, [0.0, 0.1] * 10
    stratified, pooled = mean_interval([easy, hard], seed=0), mean_interval([easy + hard], seed=0)
    assert stratified.mean == pytest.approx(0.5)
    assert stratified.high - stratified.low < (pooled.high - pooled.low) / 4


def test_interval_says_when_it_is_none():
    interval = mean_interval([[0.0] * 30], seed=0)
    assert (interval.low, interval.high) == (0.0, 0.0)
    assert "no interval" in interval.note
    constant_and_varied = mean_interval([[1.0] * 10, [0.0, 1.0] * 10], seed=0)
    assert constant_and_varied.mean == pytest.approx(2 / 3)
    assert constant_and_varied.low > 1 / 3
    assert "rough" in mean_interval([[0.0, 1.0, 1.0]], seed=0).note
    with pytest.raises(ValueError, match=r"strata\[0\]: question 1"):
        mean_interval([[0.0, float("inf")]], seed=0)
    with pytest.raises(ValueError, match="at least one question"):
        mean_interval([[]], seed=0)


@pytest.mark.parametrize("pairs", [4, 12, 200])
def test_detectable_difference_by_simulation(pairs):
    # At the difference it names, Student's paired test finds it in about 80 % of the data sets.
    assert detectable_difference([0.1]) is None
    true = detectable_difference(np.array([-1.0, 1.0] * (pairs // 2))) / np.sqrt(pairs / (pairs - 1))
    drawn = np.random.default_rng(9).normal(true, 1.0, (4000, pairs))
    found = stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.02)  # three standard errors of 4,000 draws


def test_enumeration_serves_forty_seeds():
    gaps = np.random.default_rng(2).random(40) + 0.1
    assert sign_flip_test(gaps, np.zeros(40)).p == 2 / 2**40
