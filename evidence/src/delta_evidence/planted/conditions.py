"""The same rollouts under other rewards: noise, few right answers, and rewards that mean nothing."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from delta_evidence.rollouts import Rollouts, draws, flip
from delta_rlvr.objectives import group_advantages

CLEAN, SPARSE, SHUFFLED = "clean", "sparse", "shuffled"
NOISE = {f"noise {share:.0%}": share for share in (0.1, 0.2, 0.3)}
"""The share of the verdicts that is flipped."""
PERTURBED = (*NOISE, SPARSE, SHUFFLED)

# Draws of a condition must not be those of the samples or of the noise.
_STREAM = 1 << 42


def perturbed_advantages(
    condition: str, rollouts: Rollouts, *, group: int, seed: int, number: int
) -> Float[Tensor, " batch"]:
    """The group-relative advantages under a condition, of which a response that is left out has 0. The responses, and what decided
    them, stay the same."""
    correct = rollouts.correct
    if condition in NOISE:
        return group_advantages(flip(correct, NOISE[condition], seed, number), group)
    stream = seed + _STREAM + (condition == SPARSE)
    lots = torch.from_numpy(draws(stream, number, (len(correct),))).to(correct.device)
    if condition == SPARSE:
        return one_right_a_group(correct, group, lots)
    order = lots.view(-1, group).argsort(1)
    return group_advantages(correct.view(-1, group).gather(1, order).flatten(), group)


def one_right_a_group(
    correct: Float[Tensor, " batch"], group: int, lots: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """Advantages where each group keeps one right response (the one drawn highest) beside all its wrong ones.

    The others are left out, of the group's mean and deviation too.
    """
    advantages = torch.zeros_like(correct)
    for rows in torch.arange(len(correct), device=correct.device).view(-1, group):
        right = rows[correct[rows] == 1]
        wrong = rows[correct[rows] != 1]
        if not len(right) or not len(wrong):
            continue
        kept = torch.cat([right[lots[right].argmax()][None], wrong])
        advantages[kept] = group_advantages(correct[kept], len(kept))
    return advantages
