"""Advantages relative to the group, as GRPO and DAPO take them, and which groups have any."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

FLOOR = 1e-4
"""eps_A, TRL's."""
_ROUNDINGS = 8
"""Rewards that differ by no more than so many roundings are equal: a weighted sum of a few rewards takes about one per part."""


def rewarded_alike(rewards: Float[Tensor, " batch"], groups: Int[Tensor, " batch"]) -> Bool[Tensor, " batch"]:
    """For each response, whether all rewards of its group are equal: such a group teaches nothing and has no side.

    Decided by the rewards and not by the advantages: in float32 the mean of eight times 0.3 is not 0.3, and an engine divides what is
    left by a standard deviation as small as itself. `groups` has numbers below the number of responses. A NaN (nobody could score the
    response) is left out of its group. A response that is alone in its group is not rewarded alike: nothing is compared there.
    """
    none = rewards.new_full(rewards.shape, torch.inf)
    scored = ~rewards.isnan()
    lowest = none.scatter_reduce(0, groups, torch.where(scored, rewards, torch.inf), "amin")
    highest = (-none).scatter_reduce(0, groups, torch.where(scored, rewards, -torch.inf), "amax")
    members = torch.zeros_like(groups).scatter_add(0, groups, torch.ones_like(groups))
    rounding = _ROUNDINGS * torch.finfo(rewards.dtype).eps * torch.maximum(lowest.abs(), highest.abs())
    return ((highest - lowest <= rounding) & (members > 1))[groups]


def group_advantages(rewards: Float[Tensor, " batch"], group: int) -> Float[Tensor, " batch"]:
    """A_i = (R_i - mean) / (std + eps_A) within each group, which stands together; the standard deviation as TRL takes it (ddof 1).
    Exactly 0 where a group's rewards are equal."""
    grouped = rewards.view(-1, group)
    centred = grouped - grouped.mean(1, keepdim=True)
    advantages = (centred / (grouped.std(1, keepdim=True) + FLOOR)).flatten()
    return advantages.masked_fill(rewarded_alike(rewards, group_numbers(rewards, group)), 0.0)


def mixed_share(rewards: Float[Tensor, " batch"], group: int) -> Float[Tensor, ""]:
    """The share of groups whose rewards differ: the others have no advantage."""
    return (~rewarded_alike(rewards, group_numbers(rewards, group))).float().mean()


def group_numbers(rewards: Float[Tensor, " batch"], group: int) -> Int[Tensor, " batch"]:
    """The number of each response's group, where groups of one size stand together."""
    return torch.arange(len(rewards), device=rewards.device) // group
