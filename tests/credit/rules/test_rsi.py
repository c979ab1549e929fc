"""RSI-S: a band by hand."""

from delta_rlvr.credit.rules.rsi import RelativeSurprisal
from support_rules import assert_weights, weights_of


def test_by_hand():
    # RSI: 0.5 / 1 = 0.5; 0.0625 / 1 = 0.0625 (too low); 4 / 1 = 4 (too high); 0.125 / 1.25 = 0.1 and 1.5 / 0.5 = 3 (the bounds);
    # certain: 0 / 0, an index of 0. Three of six are kept: weight 2. Advantages are not looked at.
    logps = [[-0.5, -0.0625, -4.0], [-1.5, 0.0], [-1.0]]
    entropy = [[1.0, 1.0, 1.0], [0.5, 0.0], [2.0]]
    for advantages in ([1.0, -1.0, 0.0], [0.0, 0.0, 0.0]):
        weights = weights_of(RelativeSurprisal(), advantages, logps=logps, entropy=entropy)
        assert_weights(weights, [[2, 0, 0], [2, 0], [2]])
    # Without a lower bound the certain token stays too: five of six.
    weights = weights_of(RelativeSurprisal(low=0.0), [1.0, -1.0, 0.0], logps=logps, entropy=entropy)
    assert_weights(weights, [[1.2, 1.2, 0], [1.2, 1.2], [1.2]])


def test_nothing_is_in_the_band():
    weights = weights_of(RelativeSurprisal(), [1.0, -1.0], logps=[[0.0, -9.0], [0.0]], entropy=[[0.0, 1.0], [0.0]])
    assert weights == [[0, 0], [0]]
