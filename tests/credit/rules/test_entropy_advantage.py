"""The entropy advantage by hand."""

from delta_rlvr.credit.rules.entropy_advantage import EntropyAdvantage
from support_rules import assert_weights, weights_of


def test_by_hand():
    # alpha H = 0, 0.2, 2 for H = 0, 0.5, 5; at most |A| / 2.
    # A = 2: bonuses 0, 0.2, 1 (the cap), so A' = 2, 2.2, 3. A = -1: 0, 0.2, 0.5, so A' = -1, -0.8, -0.5. A = 0: nothing to multiply.
    entropy = [[0.0, 0.5, 5.0], [0.0, 0.5, 5.0], [5.0]]
    weights = weights_of(EntropyAdvantage(), [2.0, -1.0, 0.0], entropy=entropy)
    assert_weights(weights, [[1, 1.1, 1.5], [1, 0.8, 0.5], [1]])
    # kappa = 1 may bring a negative advantage to 0, and no further.
    weights = weights_of(EntropyAdvantage(kappa=1.0), [2.0, -1.0, 0.0], entropy=entropy)
    assert_weights(weights, [[1, 1.1, 2], [1, 0.8, 0], [1]])


def test_a_tiny_advantage_and_a_rounded_entropy():
    # Entropies may come out slightly below 0; a tiny advantage is capped like any other.
    assert_weights(weights_of(EntropyAdvantage(), [1e-12, -1.0], entropy=[[1.0], [-1e-7]]), [[1.5], [1]])
