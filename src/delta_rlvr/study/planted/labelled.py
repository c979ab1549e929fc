"""Measures of one rollout batch whose decisive tokens are known."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.objectives import mixed_share
from delta_rlvr.study.planted.measures import auroc, auroc_within, average_precision, update_mass_share
from delta_rlvr.study.rollouts import Rollouts

SIDES = {"right": 1.0, "wrong": 0.0}
"""Which verdict the responses have whose tokens count."""
BINS = (10, 50)
"""Quantile bins of p within which tokens are alike. In tenths 1 - p still tells a good deal, since p spreads within the lowest."""


def measure_weights(
    weights: Float[Tensor, "batch time"], rollouts: Rollouts, advantages: Float[Tensor, " batch"]
) -> dict[str, float]:
    """How well weights find the decisive tokens of right and of wrong responses; tokens without an advantage do not count."""
    labels = _labels(rollouts)
    live = rollouts.mask & (advantages != 0)[:, None]
    token_advantages = advantages[:, None].expand_as(weights)
    measures = {"mass_share": update_mass_share(weights[live], token_advantages[live], labels[live])}
    for side, verdict in SIDES.items():
        here = live & (rollouts.correct == verdict)[:, None]
        scores, decisive = weights[here], labels[here]
        measures[f"{side}_auroc"] = auroc(scores, decisive)
        measures[f"{side}_precision"] = average_precision(scores, decisive)
        for bins in BINS:
            alike = (
                auroc_within(scores, decisive, rollouts.logps[here].exp(), bins) if len(scores) else math.nan
            )
            measures[f"{side}_alike_{bins}"] = alike
    return measures


def batch_facts(rollouts: Rollouts, group: int) -> dict[str, float]:
    """What the batch is like: without mixed groups there is no credit to give."""
    labels = _labels(rollouts)
    facts = {
        "accuracy": rollouts.correct.mean().item(),
        "mixed_groups": mixed_share(rollouts.correct, group).item(),
        "length": rollouts.mask.sum(1).float().mean().item(),
    }
    for side, verdict in SIDES.items():
        here = rollouts.mask & ((rollouts.advantages != 0) & (rollouts.correct == verdict))[:, None]
        decisive = labels & here
        facts[f"{side}_tokens"] = int(here.sum())
        facts[f"{side}_decisive_share"] = (decisive.sum() / here.sum()).item() if here.any() else math.nan
        facts[f"{side}_decisive_p"] = (
            rollouts.logps[decisive].exp().median().item() if decisive.any() else math.nan
        )
    return facts


def length_terciles(rollouts: Rollouts) -> list[Bool[Tensor, " batch"]]:
    """The responses with an advantage in three parts of like size, shortest first."""
    live = (rollouts.advantages != 0).nonzero()[:, 0]
    order = live[rollouts.mask[live].sum(1).argsort(stable=True)]
    every = torch.arange(len(rollouts.advantages), device=order.device)
    return [torch.isin(every, rows) for rows in order.tensor_split(3)]


def small_sample(rollouts: Rollouts, tokens: int) -> Int[Tensor, " some"]:
    """Rows of the first mixed groups, up to `tokens` tokens: two right and two wrong responses of each."""
    chosen: list[int] = []
    total = 0
    for group in rollouts.groups.unique().tolist():
        rows = ((rollouts.groups == group) & (rollouts.advantages != 0)).nonzero()[:, 0]
        picked = torch.cat([rows[rollouts.correct[rows] == verdict][:2] for verdict in SIDES.values()])
        total += int(rollouts.mask[picked].sum())
        if total > tokens:
            break
        chosen += picked.tolist()
    return torch.tensor(chosen, dtype=torch.int64, device=rollouts.mask.device)


def _labels(rollouts: Rollouts) -> Bool[Tensor, "batch time"]:
    if rollouts.decisive is None:
        raise ValueError("rollouts: the decisive tokens are not there; collect them with decisive=True")
    return rollouts.decisive
