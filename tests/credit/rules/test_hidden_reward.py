"""NTHR and THR: a vocabulary of two by hand, and pair by pair of tokens in loops."""

import math

import pytest
import torch

from delta_rlvr.credit.rules import hidden_reward
from delta_rlvr.credit.rules.hidden_reward import NegativeTokenHiddenReward, TokenHiddenReward
from support_rules import HEAD, TEMPERATURE, assert_weights, random_lists, weights_of, weights_on

# Two words with logits (ln 3 h, 0). At h = 1 the softmax is (3/4, 1/4), so g = (1, -1)/4 for word 0 and (-3, 3)/4 for word 1;
# at h = -1 it is (1/4, 3/4), so g = (3, -3)/4 for word 0.
TWO_WORDS = {
    "advantages": [1.0, 1.0, -2.0],
    "groups": [7, 7, 7],
    "hidden": [[[1.0], [1.0]], [[1.0]], [[1.0], [1.0], [-1.0]]],
    "tokens": [[0, 1], [1], [0, 1, 0]],
    "head": torch.tensor([[math.log(3)], [0.0]]),
    "temperature": 1.0,
}


def test_nthr_by_hand():
    # M = sum of g h over the right tokens = (1 - 3 - 3)/4 (1, -1) = (-5/4, 5/4). Scores g^T M h: word 0 at h = 1: -5/8; word 1: 15/8;
    # word 0 at h = -1: 15/8. Means of the right responses: (-5/8 + 15/8) / 2 = 5/8, and 15/8. tau = 5/8.
    # Two of three are right: eta = 2 |1/2 - 2/3| = 1/3, on the wrong tokens above tau.
    assert_weights(weights_of(NegativeTokenHiddenReward(), **TWO_WORDS), [[1, 1], [1], [1, 1 / 3, 1 / 3]])
    # tau = 4 * 5/8 is above all of them, tau = 0 not below -5/8.
    assert_weights(weights_of(NegativeTokenHiddenReward(beta=4), **TWO_WORDS), [[1, 1], [1], [1, 1, 1]])
    assert_weights(weights_of(NegativeTokenHiddenReward(beta=0), **TWO_WORDS), [[1, 1], [1], [1, 1 / 3, 1 / 3]])


def test_thr_by_hand():
    # Divided by lengths, M = (1 - 3)/4/2 - 3/4 = -1 along (1, -1). Scores: -1/2, 3/2 and 3/2. Means of |score| of the right responses:
    # 1 and 3/2, so tau = 1. What is kept has score 3/2: THR is positive in right responses and negative in the wrong one.
    assert_weights(weights_of(TokenHiddenReward(), **TWO_WORDS), [[0, 1.1], [1.1], [0, 0.9, 0.9]])
    assert_weights(weights_of(TokenHiddenReward(exploit=-0.2), **TWO_WORDS), [[0, 0.8], [0.8], [0, 1.2, 1.2]])
    # tau = 0 keeps everything; word 0 at h = 1 harms right responses: THR is negative in the right one and positive in the wrong one.
    assert_weights(weights_of(TokenHiddenReward(beta=0), **TWO_WORDS), [[0.9, 1.1], [1.1], [1.1, 0.9, 0.9]])


def gradients(batch):
    """(g, h) of every token of every response, in float64."""
    found = []
    for states, tokens in zip(batch.hidden, batch.tokens, strict=True):
        row = []
        for state, token in zip(states, tokens, strict=True):
            logits = [sum(w * h for w, h in zip(word, state, strict=True)) / TEMPERATURE for word in HEAD.tolist()]
            total = sum(math.exp(logit) for logit in logits)
            row.append(([(word == token) - math.exp(logit) / total for word, logit in enumerate(logits)], state))
        found.append(row)
    return found


def dot(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True))


def looped(batch, beta, p=None):
    """NTHR's weights, or THR's where p is given: alpha and the inner products of hidden states for every pair of tokens."""
    vectors = gradients(batch)
    weights = [[1.0] * len(row) for row in vectors]
    for group in set(batch.groups):
        rows = [row for row, other in enumerate(batch.groups) if other == group and vectors[row]]
        right = [row for row in rows if batch.advantages[row] > 0]
        wrong = [row for row in rows if batch.advantages[row] < 0]
        if not right or not wrong:
            continue
        scores = {}
        for row in rows:
            for place, (g, h) in enumerate(vectors[row]):
                scores[row, place] = sum(
                    dot(g, other_g) * dot(h, other_h) * (1 if p is None else 1 / len(vectors[other]))
                    for other in right
                    for other_g, other_h in vectors[other]
                )
        size = (lambda x: x) if p is None else abs
        tau = beta * min(
            sum(size(scores[row, place]) for place in range(len(vectors[row]))) / len(vectors[row]) for row in right
        )
        for (row, place), score in scores.items():
            if p is None:
                if row in wrong and score > tau:
                    weights[row][place] = 2 * abs(0.5 - len(right) / (len(right) + len(wrong)))
            elif row in right or row in wrong:
                reward = score if row in right else -score
                weights[row][place] = (abs(reward) > tau) * (1 + math.copysign(p, reward))
    return weights


@pytest.mark.parametrize("seed", range(6))
def test_against_loops(seed):
    batch = random_lists(seed)
    for beta in (0.0, 0.3, 1.0):
        assert_weights(weights_on(NegativeTokenHiddenReward(beta), batch), looped(batch, beta))
        assert_weights(weights_on(TokenHiddenReward(beta, 0.25), batch), looped(batch, beta, 0.25))


def test_the_loops_have_something_to_say():
    """Over the seeds above both rules choose some tokens and leave others."""
    spared = [w for seed in range(6) for row in looped(random_lists(seed), 0.3) for w in row]
    assert 0 < sum(w < 1 for w in spared) < len(spared) / 2
    kept = [w for seed in range(6) for row in looped(random_lists(seed), 0.3, 0.25) for w in row]
    assert {0, 0.75, 1, 1.25} == set(kept)


def test_groups_in_blocks_of_one(monkeypatch):
    batch = random_lists(0)
    whole = [weights_on(rule, batch) for rule in (NegativeTokenHiddenReward(), TokenHiddenReward())]
    monkeypatch.setattr(hidden_reward, "_MATRIX_BYTES", 0)
    assert [weights_on(rule, batch) for rule in (NegativeTokenHiddenReward(), TokenHiddenReward())] == whole


def test_groups_without_both_sides_keep_the_weight_one():
    for advantages in ([1.0, 2.0, 0.0], [-1.0, -1.0, -2.0], [0.0, 0.0, 0.0]):
        for rule in (NegativeTokenHiddenReward(0), TokenHiddenReward()):
            assert weights_of(rule, **TWO_WORDS | {"advantages": advantages}) == [[1, 1], [1], [1, 1, 1]]


def test_responses_without_an_advantage_are_on_neither_side():
    more = {
        "advantages": [1.0, 1.0, -2.0, 0.0],
        "groups": [7] * 4,
        "hidden": [*TWO_WORDS["hidden"], [[3.0]]],
        "tokens": [*TWO_WORDS["tokens"], [1]],
    }
    assert_weights(weights_of(NegativeTokenHiddenReward(), **TWO_WORDS | more), [[1, 1], [1], [1, 1 / 3, 1 / 3], [1]])
    assert_weights(weights_of(TokenHiddenReward(), **TWO_WORDS | more), [[0, 1.1], [1.1], [0, 0.9, 0.9], [1]])
