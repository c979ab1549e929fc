"""Advantages relative to the group, as GRPO and DAPO take them."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

FLOOR = 1e-4
"""eps_A, TRL's."""


def group_advantages(rewards: Float[Tensor, " batch"], group: int) -> Float[Tensor, " batch"]:
    """A_i = (R_i - mean) / (std + eps_A) within each group, which stands together; the standard deviation as TRL takes it (ddof 1)."""
    grouped = rewards.view(-1, group)
    centred = grouped - grouped.mean(1, keepdim=True)
    return (centred / (grouped.std(1, keepdim=True) + FLOOR)).flatten()


def mixed_share(rewards: Float[Tensor, " batch"], group: int) -> Float[Tensor, ""]:
    """The share of groups whose rewards differ: the others have no advantage."""
    grouped = rewards.view(-1, group)
    return (grouped.amax(1) > grouped.amin(1)).float().mean()
