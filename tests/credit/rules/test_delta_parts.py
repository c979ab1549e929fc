"""Parts of DelTA: six tokens by hand, and loops over DelTA's own weights."""

import math

import pytest

from delta_rlvr import Delta
from delta_rlvr.credit.rules.ablations import Ablation
from delta_rlvr.credit.rules.delta_parts import DeltaPart
from delta_rlvr.objectives import get_method
from support_rules import assert_weights, random_lists, weights_of, weights_on

PARTS = ("side", "token", "scale", "mass")

# DelTA on v = 1 - p = 0.1, 0.5 | 0.8, 0.4 | 0.6 | 0.3 with A = 1, -2, -1, 0. mu+ = 0.3, mu- = (2 * 0.8 + 2 * 0.4 + 0.6) / 5 = 0.6:
# tokens on their own side of 0.45 get 1.2, others 0.8: 1.2, 0.8 | 1.2, 0.8 | 1.2 | 0.8.
SIX = {
    "advantages": [1.0, -2.0, -1.0, 0.0],
    "logps": [[math.log(p) for p in row] for row in ([0.9, 0.5], [0.2, 0.6], [0.4], [0.7])],
}
HARD = {"proxy": "scalar", "assignment": "hard", "refinements": 0, "normalize": False}


def test_by_hand():
    assert_weights(weights_of(Ablation(**HARD), **SIX), [[1.2, 0.8], [1.2, 0.8], [1.2], [0.8]])
    # Means: right 1, wrong 3.2 / 3 = 1.066667, both 5.2 / 5 = 1.04. The token without an advantage keeps 0.8.
    wrong = 3.2 / 3
    assert_weights(weights_of(DeltaPart(part="side", **HARD), **SIX), [[1, 1], [wrong] * 2, [wrong], [0.8]])
    assert_weights(weights_of(DeltaPart(part="scale", **HARD), **SIX), [[1.04] * 2, [1.04] * 2, [1.04], [0.8]])
    # 1.2 * 1.04, 0.8 * 1.04; 1.2 / 1.066667 * 1.04 = 1.17, 0.8 / 1.066667 * 1.04 = 0.78
    assert_weights(weights_of(DeltaPart(part="token", **HARD), **SIX), [[1.248, 0.832], [1.17, 0.78], [1.17], [0.8]])
    # Mass of the right side: (0.1 * 1.2 + 0.5 * 0.8) / 0.6 = 0.866667, below its mean weight;
    # of the wrong one: (2 * 0.8 * 1.2 + 2 * 0.4 * 0.8 + 0.6 * 1.2) / (1.6 + 0.8 + 0.6) = 3.28 / 3.
    right, wrong = 0.52 / 0.6, 3.28 / 3
    assert_weights(weights_of(DeltaPart(part="mass", **HARD), **SIX), [[right] * 2, [wrong] * 2, [wrong], [0.8]])


def looped(part, weights, batch):
    """The part, from DelTA's weights as lists."""
    tokens = [
        (row, place, batch.advantages[row], 1 - math.exp(batch.logps[row][place]))
        for row in range(len(weights))
        for place in range(len(weights[row]))
    ]

    def mean(of, over=lambda a, v: 1):
        chosen = [(weights[row][place], over(a, v)) for row, place, a, v in tokens if of(a)]
        return sum(w * o for w, o in chosen) / sum(o for _, o in chosen)

    sides = {1: lambda a: a > 0, -1: lambda a: a < 0}
    means = {sign: mean(side) for sign, side in sides.items()}
    masses = {sign: mean(side, lambda a, v: abs(a) * v) for sign, side in sides.items()}
    both = mean(lambda a: a != 0)
    result = [list(row) for row in weights]
    for row, place, a, _ in tokens:
        if a != 0:
            sign = 1 if a > 0 else -1
            result[row][place] = {
                "side": means[sign],
                "token": weights[row][place] / means[sign] * both,
                "scale": both,
                "mass": masses[sign],
            }[part]
    return result


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("settings", [{}, {"proxy": "head", "scope": "group"}, {"normalize": False}], ids=str)
def test_against_loops(part, settings):
    for seed in range(3):
        batch = random_lists(seed)
        expected = looped(part, weights_on(Ablation(**settings), batch), batch)
        assert_weights(weights_on(DeltaPart(part=part, **settings), batch), expected)


def test_the_update_mass_is_delta_s():
    batch = random_lists(0)

    def masses(rule):
        weights = weights_on(rule, batch)
        sums = {1: 0.0, -1: 0.0, 0: 0.0}
        for a, row, logps in zip(batch.advantages, weights, batch.logps, strict=True):
            sums[(a > 0) - (a < 0)] += sum(w * abs(a) * -math.expm1(logp) for w, logp in zip(row, logps, strict=True))
        return sums

    # Weights are float32: sums of some ten of them agree to 1e-6 or so.
    assert masses(DeltaPart(part="mass")) == pytest.approx(masses(Delta()), rel=1e-6)
    # Far beyond rounding: a thousandth.
    assert masses(DeltaPart(part="side")) != pytest.approx(masses(Delta()), rel=1e-3)


def test_where_there_is_nothing_to_take_a_mean_over():
    # All tokens certain: no update mass. One side alone, or no advantage: DelTA's weights are one, and so is every part.
    certain = {"advantages": SIX["advantages"], "logps": [[0.0, 0.0], [0.0, 0.0], [0.0], [0.0]]}
    assert weights_of(DeltaPart(part="mass", **HARD), **certain) == [[1, 1], [1, 1], [1], [pytest.approx(0.8)]]
    for part in PARTS:
        for advantages in ([1.0, 1.0, 0.0, 0.0], [0.0] * 4):
            rule = DeltaPart(part=part, proxy="scalar")
            with pytest.warns(UserWarning, match="no contrast to learn from"):
                assert weights_of(rule, **SIX | {"advantages": advantages}) == [[1, 1], [1, 1], [1], [1]]


def test_names_and_settings():
    assert get_method("delta-mass").rule == DeltaPart(part="mass")
    assert get_method("delta-token?lambda_min=0.5&proxy=scalar").rule == DeltaPart(0.5, proxy="scalar", part="token")
    assert "logps" in DeltaPart(part="mass", proxy="topk_hidden").needs
    assert "logps" not in DeltaPart(part="side", proxy="topk_hidden").needs
    with pytest.raises(ValueError, match="part='all': choose one of 'side', 'token', 'scale', 'mass'"):
        DeltaPart(part="all")
