"""GTPO: the shares of four responses by hand, and loops over positions."""

import pytest

from delta_rlvr.credit.rules.gtpo import EntropyShares
from support_rules import assert_weights, random_lists, weights_of, weights_on

FOUR = {
    "entropy": [[2.0, 1.0], [1.0, 1.0, 4.0], [0.5, 2.0], [1.0, 1.0, 1.0, 1.0]],
    "advantages": [1.0, 1.0, -1.0, -1.0],
    "groups": [0, 0, 0, 0],
}


def test_by_hand():
    # Right, t = 1: shares 2/3 and 1/3 of two, so 4/3 and 2/3; t = 2: 1 and 1; t = 3: alone, 1.
    # Wrong, t = 1: inverse entropies 2 and 1, so 4/3 and 2/3; t = 2: 1/2 and 1, so 2/3 and 4/3; then alone, 1.
    # Rewards (1 + 0.1 share): 1.133333, 1.066667, 1.1. As multipliers over 1.1: 1.030303, 0.969697, 1.
    high, low = 1.133333 / 1.1, 1.066667 / 1.1
    weights = weights_of(EntropyShares(), **FOUR)
    assert_weights(weights, [[high, 1], [low, 1, 1], [high, low], [low, high, 1, 1]])


def test_groups_do_not_mix():
    # One right and one wrong response per group: everybody is alone.
    weights = weights_of(EntropyShares(), **FOUR | {"groups": [0, 1, 0, 1]})
    assert_weights(weights, [[1, 1], [1, 1, 1], [1, 1], [1, 1, 1, 1]])


def test_certain_tokens_are_divided_evenly_and_a_certain_error_takes_all():
    # Both at 0: even shares. Wrong at 0 beside 1: 1 / 1e-8 against 1, a share of all but 1e-8 of two: (1 + 0.1 * 2) / 1.1 and 1 / 1.1.
    entropy = [[0.0], [0.0], [0.0], [1.0]]
    weights = weights_of(EntropyShares(), **FOUR | {"entropy": entropy})
    assert_weights(weights, [[1], [1], [1.2 / 1.1], [1 / 1.1]])


def looped(batch, alpha1, alpha2):
    weights = []
    for row, (entropies, advantage) in enumerate(zip(batch.entropy, batch.advantages, strict=True)):
        mine = []
        for t, entropy in enumerate(entropies):
            peers = [
                other[t]
                for number, other in enumerate(batch.entropy)
                if batch.groups[number] == batch.groups[row]
                and len(other) > t
                and batch.advantages[number] * advantage > 0
            ]
            if advantage > 0:
                reward = alpha1 + alpha2 * entropy / sum(peers) * len(peers)
            elif advantage < 0:
                reward = alpha1 + alpha2 * (1 / entropy) / sum(1 / peer for peer in peers) * len(peers)
            else:
                reward = alpha1 + alpha2
            mine.append(reward / (alpha1 + alpha2))
        weights.append(mine)
    return weights


@pytest.mark.parametrize("seed", range(6))
def test_against_loops(seed):
    batch = random_lists(seed)
    for alphas in ((1.0, 0.1), (0.2, 0.8)):
        assert_weights(weights_on(EntropyShares(*alphas), batch), looped(batch, *alphas))


def test_groups_without_an_advantage_keep_the_weight_one():
    weights = weights_of(EntropyShares(), **FOUR | {"advantages": [0.0, 0.0, 0.0, 0.0]})
    assert weights == [[1, 1], [1, 1, 1], [1, 1], [1, 1, 1, 1]]
