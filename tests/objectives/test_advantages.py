"""Which groups have a signal: decided by their rewards, by hand."""

import pytest
import torch

from delta_rlvr.objectives import group_advantages, mixed_share, rewarded_alike


@pytest.mark.parametrize("constant", [0.3, 0.1, 0.7, -0.3, 0.0, 1e6])
def test_equal_rewards_are_alike_though_their_mean_is_another_number(constant):
    rewards = torch.full((16,), constant)
    rewards[8] += 1.0
    advantages = group_advantages(rewards, 8)
    assert advantages[:8].tolist() == [0.0] * 8
    assert advantages[8:].all()
    assert mixed_share(rewards, 8) == 0.5


def test_rounding_makes_no_difference_and_anything_more_does():
    eps = torch.finfo(torch.float32).eps
    # Pairs (1, 1 + k eps): at most 8 roundings of a number near 1 are no difference; a difference of 1e-5 is one.
    rewards = torch.tensor([1.0, 1 + eps, 1.0, 1 + 8 * eps, 1.0, 1 + 1e-5, 0.0, 1e-6])
    alike = rewarded_alike(rewards, torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))
    assert alike.tolist() == [True, True, True, True, False, False, False, False]


def test_groups_may_lie_anywhere():
    # Group 2: 0.3, 0.3. Group 0: 1, 0. Group 4: alone, so that nothing is compared. Group 1: one was not scored, the others are equal.
    rewards = torch.tensor([0.3, 1.0, 0.5, 0.3, 0.0, torch.nan, 0.2, 0.2])
    groups = torch.tensor([2, 0, 4, 2, 0, 1, 1, 1])
    expected = [True, False, False, True, False, True, True, True]
    assert rewarded_alike(rewards, groups).tolist() == expected


def test_a_group_that_nobody_could_score_teaches_nothing():
    assert rewarded_alike(torch.tensor([torch.nan, torch.nan]), torch.tensor([0, 0])).all()
