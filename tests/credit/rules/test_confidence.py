"""The plane of confidence: three tokens by hand."""

import math

import pytest

from delta_rlvr.credit.rules.confidence import Confidence, Fading
from support_rules import assert_weights, weights_of

# s = 1 - p is 1/2 and 1 on the right response (A = 1), 1/2 and 0 on the wrong one (A = -2), anything where A = 0.
BATCH = {"advantages": [1.0, -2.0, 0.0], "logps": [[math.log(0.5), -99.0], [math.log(0.5), 0.0], [-1.0]]}
ENTROPY = [[0.5, 1.0], [0.0, 0.0], [1.0]]  # mean 0.5


def test_by_hand():
    # (-, +) with 0.4: 1 and 0.8 on the right, 1 and 0.8 on the wrong side. |A| s: 0.5, 1, 1, 0, so Z = (0.5 + 0.8 + 1) / 2.5 = 0.92.
    expected = [[1 / 0.92, 0.8 / 0.92], [1 / 0.92, 0.8 / 0.92], [1]]
    assert_weights(weights_of(Confidence(), **BATCH), expected)
    # (+, -) with 1: 1 and 1.5, 1 and 1.5; Z = (0.5 + 1.5 + 1) / 2.5 = 1.2.
    expected = [[1 / 1.2, 1.5 / 1.2], [1 / 1.2, 1.5 / 1.2], [1]]
    assert_weights(weights_of(Confidence(right=1.0, wrong=-1.0), **BATCH), expected)
    assert_weights(weights_of(Confidence(right=0.0, wrong=0.0), **BATCH), [[1, 1], [1, 1], [1]])


@pytest.mark.parametrize(("nats", "share"), [(0.5, 1), (0.1, 1), (1.0, 0.5), (2.0, 0.25)])
def test_the_slope_fades_with_the_entropy(nats, share):
    slopes = Confidence(right=-0.4 * share, wrong=0.4 * share)
    faded = weights_of(Fading(nats=nats), **BATCH, entropy=ENTROPY)
    assert_weights(faded, weights_of(slopes, **BATCH))
    certain = [[0.0] * len(row) for row in ENTROPY]
    assert_weights(weights_of(Fading(nats=nats), **BATCH, entropy=certain), [[1, 1], [1, 1], [1]])


def test_a_batch_without_a_gradient():
    """Nobody has an advantage, or the policy is certain of every token."""
    assert weights_of(Confidence(), **BATCH | {"advantages": [0.0] * 3}) == [[1, 1], [1, 1], [1]]
    assert weights_of(Confidence(), [1.0, -1.0], logps=[[0.0, 0.0], [0.0]]) == [[1, 1], [1]]
