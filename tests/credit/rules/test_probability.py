"""Published functions of p, STEER and the optimal token baseline: numbers by hand, and the baseline's loops in float64."""

import math

import pytest

from delta_rlvr.credit.rules.probability import (
    AdvantageReweighting,
    Asymmetric,
    Delightful,
    Directions,
    TokenRegulated,
    WeightedReinforce,
)
from delta_rlvr.credit.rules.steer import EntropyChange
from delta_rlvr.credit.rules.token_baseline import TokenBaseline
from support_rules import assert_weights, random_lists, weights_of, weights_on

HALF, QUARTER = math.log(0.5), math.log(0.25)
# A right response with p = 1/2, 1, 1/4, a wrong one with p = 1/4, 1/2, and one without an advantage.
BATCH = {"advantages": [1.0, -2.0, 0.0], "logps": [[HALF, 0.0, QUARTER], [QUARTER, HALF], [HALF]]}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (AdvantageReweighting(), [[0.85, 1, 0.775], [0.775, 0.85], [1]]),
        (AdvantageReweighting(alpha=1.0), [[0.5, 1, 0.25], [0.25, 0.5], [1]]),
        (Directions(), [[1.1, 1, 1.15], [1.15, 1.1], [1]]),
        # sigmoid(log 2) = 2/3, sigmoid(0) = 1/2, sigmoid(log 4) = 4/5; A = -2: sigmoid(-2 log 4) = 1/17, sigmoid(-2 log 2) = 1/5
        (Delightful(), [[2 / 3, 1 / 2, 4 / 5], [1 / 17, 1 / 5], [1]]),
        (Delightful(eta=2.0), [[2**0.5 / (1 + 2**0.5), 1 / 2, 2 / 3], [1 / 5, 1 / 3], [1]]),
        (WeightedReinforce(), [[0.1, 0.1, 0.1], [1, 1], [1]]),
        # sigmoid(4.5) = 0.98901, sigmoid(9) = 0.99988 and sigmoid(2.25) = 0.90465, less 0.25, times 2, at most 1.4
        (TokenRegulated(), [[1.4, 1.4, 1.309301], [1.309301, 1.4], [1]]),
        # Steepness 2: sigmoid(1) = 0.731059, sigmoid(2) = 0.880797, sigmoid(0.5) = 0.622459
        (TokenRegulated(steepness=2.0, low=0.0), [[0.962117, 1.261594, 0.744919], [0.744919, 0.962117], [1]]),
        # One of three and one of two: the least likely of the right one, the likeliest of the wrong one.
        (Asymmetric(), [[1, 1, 2], [1, 2], [1]]),
        (Asymmetric(share=0.7, boost=3.0), [[3, 1, 3], [1, 3], [1]]),
    ],
)
def test_by_hand(rule, expected):
    assert_weights(weights_of(rule, **BATCH), expected)


def test_of_equals_the_earlier_token_is_boosted():
    weights = weights_of(Asymmetric(share=0.5), [1.0, -1.0], logps=[[-1.0] * 4, [-1.0] * 2])
    assert_weights(weights, [[2, 2, 1, 1], [2, 1]])


def test_steer_by_hand():
    # Omega: 1 (1/2) (log 1/2 + H); p = 1 never moves anything; at log p = -H neither does any other.
    entropy = [[0.0, 3.0, -QUARTER], [0.0, -HALF], [9.0]]
    largest = 2 * 0.75 * -QUARTER
    first = 0.8 ** (0.5 * -HALF / largest)
    assert_weights(weights_of(EntropyChange(), **BATCH, entropy=entropy), [[first, 1, 1], [0.8, 1], [1]])
    # A batch that hardly moves it is not held back in full: the divisor stays at 0.02.
    small = weights_of(EntropyChange(0.5), [0.01], logps=[[HALF]], entropy=[[0.0]])
    assert_weights(small, [[0.5 ** (0.005 * -HALF / 0.02)]])


def test_the_baseline_by_hand():
    # Two certain alternatives of the same chance everywhere: 1 - 2/2 + 1/2 = 1/2 a step, so W = 1/2, 1, ... for every response.
    # A = 2, -1, -1: at the first two positions all three run and B = 0; at the third the first runs with the second: B = 1/2.
    rows = [[HALF] * 3, [HALF] * 4, [HALF] * 2]
    entropy = [[-HALF] * len(row) for row in rows]
    weights = weights_of(TokenBaseline(), [2.0, -1.0, -1.0], logps=rows, entropy=entropy, groups=[4, 4, 4])
    assert_weights(weights, [[1, 1, 0.75], [1, 1, 1.5, 1], [1, 1]])
    # The first response has done nothing yet (p = 1): only the other one's A is in the baseline, -1.
    weights = weights_of(
        TokenBaseline(),
        [1.0, -1.0],
        logps=[[0.0, HALF], [HALF, HALF]],
        entropy=[[0.0, -HALF], [-HALF] * 2],
        groups=[0, 0],
    )
    # B_1 = -1: 1 + 1 = 2 and 0. W_2 = 1/2 and 1: B_2 = (1/2 - 1) / (3/2) = -1/3.
    assert_weights(weights, [[2, 4 / 3], [0, 2 / 3]])


def looped_baseline(batch):
    rows = []
    for i, a in enumerate(batch.advantages):
        row = []
        for t in range(len(batch.logps[i])):
            peers = [k for k, group in enumerate(batch.groups) if group == batch.groups[i] and len(batch.logps[k]) > t]
            energy = []
            for k in peers:
                done = 0.0
                for j in range(t + 1):
                    p = math.exp(batch.logps[k][j])
                    done += 1 - 2 * p + max(math.exp(-batch.entropy[k][j]), p * p)
                energy.append(done)
            mean = sum(batch.advantages[k] * w for k, w in zip(peers, energy, strict=True)) / sum(energy)
            row.append(max(0.0, (a - mean) / a) if a and len(peers) > 1 else 1)
        rows.append(row)
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_the_baseline_against_loops(seed):
    batch = random_lists(seed)
    assert_weights(weights_on(TokenBaseline(), batch), looped_baseline(batch), tolerance=1e-5)
