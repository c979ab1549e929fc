"""STARE: the tail of ten tokens by hand, and the gate."""

from delta_rlvr.credit.rules.stare import SurprisalTail
from support_rules import assert_weights, weights_of

# Seven right tokens, four wrong ones, one without an advantage; the mean entropy is 3/12 = 0.25.
BATCH = {
    "advantages": [1.0, 0.5, -1.0, 0.0],
    "logps": [[-0.1, -3.0, -0.2], [-0.3, -0.4, -2.0, 0.0], [-0.1, -0.2, -0.5, -0.4], [-9.0]],
    "entropy": [[0.0, 1.0, 0.0], [0.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0]],
}
ONES = [[1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1]]


def test_the_tail_by_hand():
    # ceil(0.1 * 7) = 1 right token: log p = -3. Variant O1 leaves wrong ones alone.
    assert_weights(weights_of(SurprisalTail(), **BATCH), [[1, 1.1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1]])
    # ceil(0.25 * 7) = 2 right ones: -3 and -2; ceil(0.25 * 4) = 1 wrong one: -0.5.
    both = SurprisalTail(share=0.25, positive=1.5, negative=0.9)
    assert_weights(weights_of(both, **BATCH), [[1, 1.5, 1], [1, 1, 1.5, 1], [1, 1, 0.9, 1], [1]])


def test_a_whole_share_is_not_rounded_up():
    # 0.1 * 70 is 7.000000000000001 in floating point: 7 tokens, not 8.
    logps = [[-1.0 - 0.01 * place for place in range(70)]]
    (weights,) = weights_of(SurprisalTail(), [1.0], logps=logps, entropy=[[0.0] * 70])
    assert [place for place, weight in enumerate(weights) if weight != 1] == list(range(63, 70))


def test_ties_with_the_last_are_in():
    logps = [[-1.0, -2.0, -1.0, -0.5]]
    weights = weights_of(SurprisalTail(share=0.5), [1.0], logps=logps, entropy=[[0.0] * 4])
    assert_weights(weights, [[1.1, 1.1, 1.1, 1]])


def test_the_gate():
    # The mean entropy is 0.25: at the target the gate is closed (strictly below opens it).
    assert weights_of(SurprisalTail(target_entropy=0.25), **BATCH) == ONES
    assert weights_of(SurprisalTail(target_entropy=0.2500001), **BATCH) != ONES
    assert weights_of(SurprisalTail(target_entropy=0.0), **BATCH) == ONES


def test_a_batch_without_a_side():
    for advantages in ([0.0] * 4, [-1.0] * 4):
        assert weights_of(SurprisalTail(), **BATCH | {"advantages": advantages}) == ONES
