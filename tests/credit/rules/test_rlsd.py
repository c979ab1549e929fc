"""RLSD: ratios by hand, and token by token."""

import math

import pytest

from delta_rlvr.credit.rules.rlsd import SelfDistillation
from delta_rlvr.testing import check_rule
from support_rules import assert_weights, random_lists, weights_of, weights_on


@pytest.mark.parametrize("rule", [SelfDistillation(), SelfDistillation(lam=1.0, epsilon=1.0)])
def test_it_keeps_to_the_rules(rule):
    check_rule(rule)


def test_by_hand():
    # p = 0.5 and, with the solution, 0.55, 0.9, 0.1 and 0.5: ratios 1.1, 1.8, 0.2 and 1. Right: clipped to 1.1, 1.2, 0.8, 1 and half
    # of that: 1.05, 1.1, 0.9, 1. Wrong: inverse ratios 1 / 1.1 = 0.909091, 0.5556 and 5: 0.909091, 0.8, 1.2, 1. No advantage: 1.
    logps = [[math.log(0.5)] * 4] * 3
    informed = [[math.log(p) for p in (0.55, 0.9, 0.1, 0.5)]] * 3
    weights = weights_of(SelfDistillation(), [2.0, -0.1, 0.0], logps=logps, informed_logps=informed)
    assert_weights(weights, [[1.05, 1.1, 0.9, 1], [0.954545, 0.9, 1.1, 1], [1] * 4])
    # lambda = 1 is the clipped ratio itself, lambda = 0 plain DAPO.
    weights = weights_of(SelfDistillation(lam=1.0), [2.0, -0.1, 0.0], logps=logps, informed_logps=informed)
    assert_weights(weights, [[1.1, 1.2, 0.8, 1], [0.909091, 0.8, 1.2, 1], [1] * 4])
    assert (
        weights_of(SelfDistillation(lam=0.0), [2.0, -0.1, 0.0], logps=logps, informed_logps=informed)
        == [[1] * 4] * 3
    )


def test_a_ratio_that_overflows_is_clipped():
    weights = weights_of(
        SelfDistillation(), [-1.0, 1.0], logps=[[0.0], [0.0]], informed_logps=[[-2000.0], [-2000.0]]
    )
    assert_weights(weights, [[1.1], [0.9]])


@pytest.mark.parametrize("seed", range(3))
def test_against_loops(seed):
    batch = random_lists(seed)
    for lam, epsilon in ((0.5, 0.2), (0.9, 0.5)):
        expected = [
            [
                (1 - lam)
                + lam * min(max(math.exp(((a > 0) - (a < 0)) * (informed - logp)), 1 - epsilon), 1 + epsilon)
                for logp, informed in zip(logps, informeds, strict=True)
            ]
            for a, logps, informeds in zip(batch.advantages, batch.logps, batch.informed_logps, strict=True)
        ]
        assert_weights(weights_on(SelfDistillation(lam, epsilon), batch), expected)


def test_without_the_informed_log_probs_it_says_so():
    with pytest.raises(ValueError, match="informed_logps: this method needs it"):
        weights_of(SelfDistillation(), [1.0], logps=[[-1.0]])


def test_bad_settings():
    for value in (-0.1, 1.5, math.nan):
        with pytest.raises(ValueError, match=f"lam={value}: give a number from 0 to 1"):
            SelfDistillation(lam=value)
        with pytest.raises(ValueError, match=f"epsilon={value}: give a number from 0 to 1"):
            SelfDistillation(epsilon=value)
