"""avg@k, pass@k, maj@k and the weighted average: hand-worked numbers, brute force, and the paper's own
tables."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_rlvr.evaluate.bootstrap import mean_interval
from delta_rlvr.evaluate.metrics import average_at_k, majority_vote, normalise_answer, pass_at_k


def _average(scores, counts):
    """What a result gives as its average: the mean over all questions of all benchmarks."""
    return mean_interval([[score] * count for score, count in zip(scores, counts, strict=True)], seed=0).mean


@pytest.mark.parametrize(
    ("scores", "counts", "printed"),
    [
        # Table 10: HumanEval+, MBPP+, LiveCodeBench
        ((83.0, 72.1, 33.4), (164, 378, 1055), 47.7),
        ((84.6, 73.2, 35.6), (164, 378, 1055), 49.5),
        # Table 12: GPQA-Diamond, MMLU-Pro
        ((43.43, 63.97), (198, 600), 58.87),
        ((50.00, 66.47), (198, 600), 62.38),
        ((54.55, 70.80), (198, 600), 66.77),
        ((56.67, 72.27), (198, 600), 68.40),
    ],
)
def test_weighted_average_reproduces_tables_10_and_12(scores, counts, printed):
    assert abs(_average(scores, counts) - printed) <= 0.05


def test_average_takes_the_first_k_in_order():
    assert average_at_k([1, 0, 0, 1], 1) == 1.0
    assert average_at_k([1, 0, 0, 1], 3) == 1 / 3
    assert average_at_k([1, 0, 0, 1]) == 0.5
    with pytest.raises(ValueError, match="k = 5"):
        average_at_k([1, 0, 0, 1], 5)
    with pytest.raises(ValueError, match="no samples"):
        average_at_k([])


def test_pass_at_k_by_hand():
    # n = 4, c = 1: of the 6 pairs 3 hold the right one.
    assert pass_at_k([0, 1, 0, 0], 2) == 0.5
    assert pass_at_k([0, 0, 0], 3) == 0.0
    assert pass_at_k([1, 1, 0], 2) == 1.0  # n - c < k: no pair without a right one
    # A value that the textbook product loses: 1 - C(999, 1)/C(1000, 1), and one near 0 with huge binomials.
    assert pass_at_k([1] + [0] * 999, 1) == 0.001
    assert pass_at_k([1] + [0] * 9999, 5000) == 0.5


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=9), st.data())
def test_pass_at_k_equals_brute_force(scores, data):
    k = data.draw(st.integers(1, len(scores)))
    brute = np.mean([any(subset) for subset in combinations(scores, k)])
    assert abs(pass_at_k(scores, k) - brute) <= 1e-12


def test_majority_by_hand():
    assert majority_vote([1, 1, 0], ["7", "7", "8"]) == 1.0
    assert majority_vote([1, 0], ["7", "8"]) == 0.5  # a tie, at its expectation
    assert majority_vote([1, 0, 0], ["7", "8", "9"]) == 1 / 3
    assert majority_vote([0, 0], [None, None]) == 0.0
    assert majority_vote([1, 0, 0], ["7", None, None]) == 1.0  # two samples without an answer do not vote
    # An answer that was judged right once and wrong twice counts with its mean score, beside a tied one that was never right.
    assert majority_vote([1, 0, 0, 0, 0, 0], ["7", "7", "7", "8", "8", "8"]) == 1 / 6
    # Spellings of one number vote together.
    assert majority_vote([0, 1, 1], ["3", "\\frac{1}{2}", " 0.50 "]) == 1.0


def test_votes_and_passes_refuse_partial_scores():
    with pytest.raises(ValueError, match=r"0\.5"):
        pass_at_k([0.5, 1], 1)
    with pytest.raises(ValueError, match="one answer"):
        majority_vote([1, 0], ["7"])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1,000", "1000"),
        ("\\dfrac{2}{4}", "1/2"),
        ("$ 5 $", "5."),
        ("\\left( 3, x \\right)", "(3,x)"),
        ("-\\frac{1}{2}", "-.5"),
    ],
)
def test_one_spelling(left, right):
    assert normalise_answer(left) == normalise_answer(right)


@pytest.mark.parametrize(
    ("left", "right"), [("1,2", "12"), ("a+b", "c+b"), ("3t", "3"), ("0.33", "1/3"), ("(1,2)", "[1,2]")]
)
def test_different_answers_stay_apart(left, right):
    assert normalise_answer(left) != normalise_answer(right)
