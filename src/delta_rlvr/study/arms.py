"""What a study compares: methods by name, and the oracle that knows the decisive tokens."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit import credit_record
from delta_rlvr.objectives import Method, get_method
from delta_rlvr.study.rollouts import Rollouts
from delta_rlvr.tasks.registry import parse_settings


@dataclass(frozen=True)
class Oracle:
    """DAPO with the planted labels as alpha: the most that any token weight in the same range could know."""

    name: str
    lambda_min: float
    """Weight of the other tokens before normalisation."""
    lambda_max: float
    """Weight of the decisive tokens before normalisation."""

    @property
    def method(self) -> Method:
        """Everything but the weights."""
        return get_method("dapo")


@dataclass(frozen=True)
class Named:
    """A method of `METHODS`, perhaps with other settings of its weights."""

    name: str
    """As the protocol writes it."""
    method: Method


Arm = Named | Oracle

ORACLES = {
    arm.name: arm
    for arm in (
        Oracle("oracle", 0.8, 1.2),
        Oracle("oracle-wide", 0.5, 1.5),
        Oracle("oracle-only", 0.0, 1.0),
    )
}
"""Perfect credit in the paper's range, in the wide one, and on the decisive tokens alone."""


def get_arm(name: str) -> Arm:
    """An arm by its name: an oracle's or a method's; settings of its weights follow as in "delta?lambda_min=0.5&lambda_max=1.5"."""
    if name in ORACLES:
        return ORACLES[name]
    if name.startswith("oracle"):
        raise ValueError(f"there is no {name!r}; the oracles are {', '.join(ORACLES)}")
    plain, _, query = name.partition("?")
    method = get_method(plain)
    if not query:
        return Named(name, method)
    settings = parse_settings(name, query)
    known = [one.name for one in fields(method.weighting)]
    unknown = sorted(settings.keys() - set(known))
    if unknown:
        raise ValueError(
            f"{name}: {plain} has no setting {', '.join(unknown)}; it has {', '.join(known) or 'none'}"
        )
    return Named(name, replace(method, weighting=replace(method.weighting, **settings)))


def arm_weights(
    arm: Arm,
    rollouts: Rollouts,
    head: Float[Tensor, "vocab width"],
    *,
    seed: int,
    number: int,
    temperature: float = 1.0,
) -> Float[Tensor, "batch time"]:
    """The arm's token weights on a rollout batch: mean one over the valid tokens, 0 elsewhere."""
    if isinstance(arm, Oracle):
        return oracle_weights(arm, rollouts)
    # Keys tell the responses of two seeds apart, as random weights and ties must.
    keys = torch.arange(len(rollouts.rewards), device=rollouts.mask.device) + seed * len(rollouts.rewards)
    record = credit_record(
        rollouts.hidden,
        rollouts.logps,
        rollouts.advantages,
        rollouts.mask,
        config=arm.method.weighting,
        head=head,
        tokens=rollouts.completion_ids,
        temperature=temperature,
        groups=rollouts.groups,
        entropy=rollouts.entropy,
        keys=keys,
        round_number=number,
    )
    return record.padded(record.weights, rollouts.mask)


def oracle_weights(oracle: Oracle, rollouts: Rollouts) -> Float[Tensor, "batch time"]:
    """lambda_max on the decisive tokens of responses with an advantage, lambda_min elsewhere, then mean one."""
    if rollouts.decisive is None:
        raise ValueError(f"{oracle.name} needs the decisive tokens: collect the rollouts with decisive=True")
    known = rollouts.decisive & (rollouts.advantages != 0)[:, None]
    weights = oracle.lambda_min + (oracle.lambda_max - oracle.lambda_min) * known.float()
    weights = torch.where(rollouts.mask, weights, 0.0)
    total = weights.sum()
    # A batch in which no group differs has nothing to credit, and no gradient either.
    return weights * (rollouts.mask.sum() / total) if total > 0 else rollouts.mask.float()
