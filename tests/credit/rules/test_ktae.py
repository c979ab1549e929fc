"""KTAE: the table of four responses by hand, exact Fisher, and the whole formula as loops."""

import itertools
import math
from fractions import Fraction

import pytest

from delta_rlvr.credit.rules.ktae import KeyTokens, _evidence
from support_rules import assert_weights, random_lists, weights_of, weights_on

FOUR = {"tokens": [[1, 2, 3, 4], [1, 2, 5, 4], [1, 6, 7, 4], [1, 6, 5, 8]], "groups": [0, 0, 0, 0]}


def test_two_right_and_two_wrong_responses_by_hand():
    # Without the frequencies, D is Cohen's part alone. Tables (a, b, c, d), two responses on either side:
    #   token 1 (2 2 0 0): p = 1, gain 0: k = 0. Token 5 (1 1 1 1): the same.
    #   token 2 (2 0 0 2): of C(4,2) = 6 tables two are as unlikely: p = 1/3, F = exp(-2/3) = 0.513417; gain 1 bit;
    #     D = asin 1 - asin 0 = pi/2; k = tanh((0.513417 + 1) / 2 * 1.570796 / 2) = tanh(0.594318) = 0.532994
    #   token 3 (1 0 1 2): p = 1, F = 0; gain = 1 - 3/4 H(1/3) = 1 - 0.75 * 0.918296 = 0.311278;
    #     D = asin sqrt(1/2) = pi/4; k = tanh(0.311278 / 2 * 0.785398 / 2) = tanh(0.061119) = 0.061043
    #   token 4 (2 1 0 1): gain and D the same, k = 0.061043, also in the wrong response that has it
    #   tokens 6, 7, 8 are 2 and 3 with the sides exchanged.
    # A' = A + k with A = 2 and -2, as a multiplier 1 + k / A.
    strong, weak = 0.532994 / 2, 0.061043 / 2
    weights = weights_of(KeyTokens(frequency=0), [2.0, 2.0, -2.0, -2.0], **FOUR)
    expected = [
        [1, 1 + strong, 1 + weak, 1 + weak],
        [1, 1 + strong, 1, 1 + weak],
        [1, 1 + strong, 1 + weak, 1 - weak],
        [1, 1 + strong, 1, 1 + weak],
    ]
    assert_weights(weights, expected)


def test_frequencies_saturate_what_occurs_on_one_side_alone():
    # Tokens 2 and 3 have TF_W = 0: TF_R / 1e-5 is in the thousands and k = 1, as -1 for 6, 7, 8. Token 4 occurs twice in the eight
    # right tokens and once in the eight wrong ones: K = 2, TF_R = 3 (1/4) / (1/4 + 2) = 1/3, TF_W = 3 (1/8) / (1/8 + 2) = 3/17,
    # D = pi/4 + 1.888782 - 0.529396 = 2.144784, k = tanh(0.311278 / 2 * 2.144784 / 2) = 0.165373.
    weights = weights_of(KeyTokens(), [2.0, 2.0, -2.0, -2.0], **FOUR)
    two_sided = 0.165373 / 2
    expected = [
        [1, 1.5, 1.5, 1 + two_sided],
        [1, 1.5, 1, 1 + two_sided],
        [1, 1.5, 1.5, 1 - two_sided],
        [1, 1.5, 1, 1.5],
    ]
    assert_weights(weights, expected, 2e-6)


def test_a_term_that_would_turn_the_advantage_around_stops_at_zero():
    # Token 4 of the third response: A + k = -0.1 + 0.165373 > 0.
    weights = weights_of(KeyTokens(), [2.0, 2.0, -0.1, -2.0], **FOUR)
    assert weights[2][3] == 0
    assert weights[0][3] > 1
    ignored = weights_of(KeyTokens(ignored_token=4), [2.0, 2.0, -0.1, -2.0], **FOUR)
    assert ignored[2][3] == ignored[0][3] == 1


def test_fisher_is_exact():
    # G = 16, 14 right, a = 10, b = 1: in float32 a tie is missed and p is 0.5417. In exact arithmetic p = 1, so that F = 0.
    assert _evidence(10, 14, 1, 2)[0] == 0
    for right, wrong in itertools.product(range(1, 7), repeat=2):
        for a, b in itertools.product(range(right + 1), range(wrong + 1)):
            p = fisher(a, b, right - a, wrong - b)
            assert _evidence(a, right, b, wrong)[0] == pytest.approx(0 if p == 1 else math.exp(-2 * p))


def fisher(a, b, c, d):
    """The two-sided p-value from the factorials of the one table's probability, over all tables with the same margins."""

    def probability(a, b, c, d):
        margins = math.prod(map(math.factorial, (a + b, c + d, a + c, b + d)))
        return Fraction(margins, math.prod(map(math.factorial, (a, b, c, d, a + b + c + d))))

    shifts = [probability(a + s, b - s, c - s, d + s) for s in range(-min(a, d), min(b, c) + 1)]
    return sum(one for one in shifts if one <= probability(a, b, c, d))


def looped(batch, h1=1.0, h2=1.0, h3=1.0, top=1.0, k1=2.0, bm=0.5):
    """The formula token by token, from counts of lists."""
    weights = []
    for tokens, advantage, group in zip(batch.tokens, batch.advantages, batch.groups, strict=True):
        rows = [row for row, other in enumerate(batch.groups) if other == group and batch.tokens[row]]
        right = [batch.tokens[row] for row in rows if batch.advantages[row] > 0]
        wrong = [batch.tokens[row] for row in rows if batch.advantages[row] < 0]
        mine = []
        for token in tokens:
            if advantage == 0 or not right or not wrong:
                mine.append(1.0)
                continue
            a, b = sum(token in row for row in right), sum(token in row for row in wrong)
            c, d = len(right) - a, len(wrong) - b
            p = fisher(a, b, c, d)
            gain = bits(a + c, b + d) - (a + b) / (a + b + c + d) * bits(a, b)
            if c + d:
                gain -= (c + d) / (a + b + c + d) * bits(c, d)
            all_right, all_wrong = list(itertools.chain(*right)), list(itertools.chain(*wrong))
            scores = []
            for text in (all_right, all_wrong):
                frequency = text.count(token) / len(text)
                relative = len(text) / ((len(all_right) + len(all_wrong)) / 2)
                scores.append((k1 + 1) * frequency / (frequency + k1 * (1 - bm + bm * relative)))
            direction = math.asin((a / (a + c)) ** 0.5) - math.asin((b / (b + d)) ** 0.5)
            direction += h3 * (scores[0] / (scores[1] + 1e-5) - scores[1] / (scores[0] + 1e-5))
            strength = h1 * (0 if p == 1 else math.exp(-2 * p)) + h2 * gain
            x = max(-700.0, strength * direction / (h1 + h2))  # exp(700) is a float64 still
            term = 2 * top * (1 / (1 + math.exp(-x)) - 0.5)
            mine.append(max(0.0, (advantage + term) / advantage))
        weights.append(mine)
    return weights


def bits(one, other):
    total = one + other
    return -sum(n / total * math.log2(n / total) for n in (one, other) if n)


@pytest.mark.parametrize("seed", range(6))
def test_against_loops(seed):
    batch = random_lists(seed)
    assert_weights(weights_on(KeyTokens(), batch), looped(batch))
    other = KeyTokens(fisher=0.5, gain=2, frequency=0.25, scale=0.5, saturation=1.5, length_share=0.75)
    assert_weights(weights_on(other, batch), looped(batch, 0.5, 2, 0.25, 0.5, 1.5, 0.75))


def test_groups_without_a_contrast_are_left_alone():
    tokens = [[1, 2], [2, 3], [4], []]
    for advantages in ([0.0] * 4, [1.0, 2.0, 0.5, 0.0], [-1.0, -1.0, -1.0, 5.0]):
        weights = weights_of(KeyTokens(), advantages, tokens=tokens, groups=[0, 0, 0, 0])
        assert weights == [[1, 1], [1, 1], [1], []]
    # Each response in a group of its own: no group has two sides.
    assert weights_of(KeyTokens(), [1.0, -1.0, 1.0, -1.0], tokens=tokens, groups=[0, 1, 2, 3]) == [
        [1, 1],
        [1, 1],
        [1],
        [],
    ]
