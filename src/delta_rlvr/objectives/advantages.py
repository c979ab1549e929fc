"""Group-relative advantages, as in GRPO and DAPO, and the groups that have none."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

FLOOR = 1e-4
"""eps_A, as in TRL."""
_ROUNDINGS = 8
"""Rewards are equal if they differ by at most this many roundings: a weighted sum of rewards takes about one per part."""


def rewarded_alike(rewards: Float[Tensor, " batch"], groups: Int[Tensor, " batch"]) -> Bool[Tensor, " batch"]:
    """Return for each response whether all rewards of its group are equal, so that the group has no signal.

    The advantages cannot decide this: in float32 the mean of eight times 0.3 is not 0.3, and an engine divides the tiny difference by
    an equally tiny standard deviation. `groups` has numbers below the number of responses. A NaN (a response without a score) is left
    out of its group. A response that is alone in its group does not count as rewarded alike.
    """
    none = rewards.new_full(rewards.shape, torch.inf)
    scored = ~rewards.isnan()
    lowest = none.scatter_reduce(0, groups, torch.where(scored, rewards, torch.inf), "amin")
    highest = (-none).scatter_reduce(0, groups, torch.where(scored, rewards, -torch.inf), "amax")
    members = torch.zeros_like(groups).scatter_add(0, groups, torch.ones_like(groups))
    rounding = _ROUNDINGS * torch.finfo(rewards.dtype).eps * torch.maximum(lowest.abs(), highest.abs())
    return ((highest - lowest <= rounding) & (members > 1))[groups]


def group_advantages(rewards: Float[Tensor, " batch"], group: int) -> Float[Tensor, " batch"]:
    """Return A_i = (R_i - mean) / (std + eps_A) in consecutive groups, with TRL's standard deviation (ddof 1); exactly 0 if a group's
    rewards are equal."""
    grouped = rewards.view(-1, group)
    centred = grouped - grouped.mean(1, keepdim=True)
    advantages = (centred / (grouped.std(1, keepdim=True) + FLOOR)).flatten()
    return advantages.masked_fill(rewarded_alike(rewards, group_numbers(rewards, group)), 0.0)


def mixed_share(rewards: Float[Tensor, " batch"], group: int) -> Float[Tensor, ""]:
    """Return the share of groups whose rewards differ; the others have no signal."""
    return (~rewarded_alike(rewards, group_numbers(rewards, group))).float().mean()


def group_numbers(rewards: Float[Tensor, " batch"], group: int) -> Int[Tensor, " batch"]:
    """Return the index of each response's group, for consecutive groups of one size."""
    return torch.arange(len(rewards), device=rewards.device) // group
