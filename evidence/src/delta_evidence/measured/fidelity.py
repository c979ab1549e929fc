"""Fidelity of updates: how an update on an ordinary rollout batch stands to the gradient of the expected reward.

The gradient is estimated from very many plain rollouts of a fixed set of prompts (REINFORCE with the mean of the group's other
rewards as the baseline: unbiased), in parts that are independent of each other. With g_k the parts and u_m the updates of a method on
batches m of the same prompts, everything here follows from their inner products:

    |g|^2   = mean of <g_k, g_l> over k != l              (unbiased: the noise of two parts has nothing in common)
    gain    = mean over m of <u_m, g> / (|u_m| |g|)       the cosine to the true gradient, corrected for the noise in its estimate. It
                                                          is also the first-order gain in expected reward at equal step length, as a
                                                          share of what the true gradient itself would gain
    |Eu|^2  = mean of <u_m, u_n> over m != n
    aim     = <mean of u, g> / (|Eu| |g|)                 the same of the mean update: 1 for an unbiased direction
    noise   = 1 - |Eu|^2 / mean of |u_m|^2                the share of an update's squared length that other batches would not share
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from delta_evidence.planted.updates import update_vectors
from delta_evidence.rollouts import Rollouts
from delta_evidence.stack.policy import StackedPolicy

MEASURES = ("gain", "over", "aim", "noise")
PARTS = 4
"""Independent parts of the gradient."""
LARGEST_GROUP = 64
"""Rollouts of a prompt that are made at once, at most."""

# Seeds of rollouts that must not be those of the measured ones.
GRADIENT_STREAM, UPDATE_STREAM = 1 << 44, 1 << 43

# Floats of all updates that are held at once.
_FLOATS = {"cuda": 1 << 33}
_FEW_FLOATS = 1 << 28
_COLUMNS = 1 << 22


def gradient_batches(rollouts: int) -> tuple[int, int]:
    """Batches of rollouts behind the gradient, as many in each part, and the rollouts of a prompt in each of them."""
    group = min(LARGEST_GROUP, max(2, rollouts // PARTS))
    return PARTS * math.ceil(rollouts / (group * PARTS)), group


@torch.no_grad()
def leave_one_out(rewards: Float[Tensor, " batch"], group: int) -> Float[Tensor, " batch"]:
    """R_i less the mean of the group's other rewards: a baseline that leaves the gradient unbiased."""
    grouped = rewards.view(-1, group)
    return ((grouped - grouped.mean(1, keepdim=True)) * group / (group - 1)).flatten()


def batch_gradient(
    policy: StackedPolicy, rollouts: Rollouts, *, group: int, pass_rows: int
) -> Float[Tensor, " parameters"]:
    """The gradient of the expected reward from one batch of plain rollouts, summed over them."""
    plain = replace(rollouts, advantages=leave_one_out(rollouts.correct, group))
    weights = [torch.ones_like(plain.logps)]
    return update_vectors(policy, plain, weights, rows_at_once=pass_rows, copies=group)[0]


def inner_products(
    one: Float[Tensor, "first parameters"], other: Float[Tensor, "second parameters"]
) -> Float[Tensor, "first second"]:
    """In float64, a few columns at a time."""
    total = torch.zeros(len(one), len(other), dtype=torch.float64, device=one.device)
    for start in range(0, one.shape[1], _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        total += one[:, columns].double() @ other[:, columns].double().T
    return total.cpu()


def update_products(
    policy: StackedPolicy,
    batches: Sequence[Rollouts],
    weights: Sequence[dict[str, Float[Tensor, "batch time"]]],
    gradient: Float[Tensor, "part parameters"],
    *,
    group: int,
    pass_rows: int,
    on_batch: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, Any]]:
    """For each method, whose weights are given by its name for each batch, the inner products of its updates with each other
    (`updates`) and with the gradient's parts (`gradient`)."""
    held = torch.zeros(len(weights[0]), len(batches), gradient.shape[1], device=gradient.device)
    for place, (rollouts, by_name) in enumerate(zip(batches, weights, strict=True)):
        on_batch()
        held[:, place] = update_vectors(policy, rollouts, list(by_name.values()), rows_at_once=pass_rows, copies=group)
    return {
        name: {
            "updates": inner_products(updates, updates).tolist(),
            "gradient": inner_products(updates, gradient).tolist(),
        }
        for name, updates in zip(weights[0], held, strict=True)
    }


def methods_at_once(policy: StackedPolicy, batches: int) -> int:
    """Methods whose updates on all batches are held together."""
    floats = _FLOATS.get(policy.device.type, _FEW_FLOATS)
    return max(1, floats // (batches * sum(weight.numel() for weight in policy.parameters())))


def gradient_facts(products: Float[np.ndarray, "part part"]) -> dict[str, float]:
    """|g|^2, and how reliable the estimate is: the cosine of its two halves, and |g|^2 as a share of the estimate's own."""
    parts = len(products)
    half = np.arange(parts) < parts // 2
    first, second = half / (parts // 2), ~half / (parts - parts // 2)
    lengths = (first @ products @ first) * (second @ products @ second)
    whole = float(products.mean())  # 0 where no rollout had a signal
    return {
        "square": _off_diagonal(products),
        "halves_cosine": float(first @ products @ second / math.sqrt(lengths)) if lengths > 0 else math.nan,
        "reliability": _off_diagonal(products) / whole if whole > 0 else math.nan,
    }


def fidelity(
    products: dict[str, Any], baseline: dict[str, Any], gradient: Float[np.ndarray, "part part"]
) -> dict[str, float]:
    """gain, over (the gain less the baseline's on the same batches), aim and noise of one method, each with its standard error over
    batches and over parts of the gradient. Batches without any signal (no update) are left out; NaN where too little is left."""
    unknown = {name + end: math.nan for name in MEASURES for end in ("", "_error")}
    square = _off_diagonal(gradient)
    if not square > 0:  # lost in its own noise
        return unknown

    def gains(one: dict[str, Any]) -> Float[np.ndarray, "batch part"]:
        lengths = np.sqrt(np.maximum(np.diag(np.array(one["updates"])), 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.array(one["gradient"]) / (lengths[:, None] * math.sqrt(square))

    own, base = gains(products), gains(baseline)
    kept = np.isfinite(own).all(1) & np.isfinite(base).all(1)
    if kept.sum() < 2:
        return unknown
    updates = np.array(products["updates"])[np.ix_(kept, kept)]
    along = np.array(products["gradient"])[kept].mean(1)

    def aim(rows: np.ndarray) -> float:
        shared = _off_diagonal(updates[np.ix_(rows, rows)])
        return float(along[rows].mean() / math.sqrt(shared * square)) if shared > 0 else math.nan

    def noise(rows: np.ndarray) -> float:
        some = updates[np.ix_(rows, rows)]
        return 1 - _off_diagonal(some) / float(np.diag(some).mean())

    values = (
        *_mean_and_error(own[kept]),
        *_mean_and_error(own[kept] - base[kept]),
        *_jackknife(aim, int(kept.sum())),
        *_jackknife(noise, int(kept.sum())),
    )
    return dict(zip(unknown, values, strict=True))


def fidelity_rows(document: dict[str, Any], baseline: str) -> dict[str, dict[str, float]]:
    """Every method of a kept document."""
    gradient = np.array(document["gradient"])
    methods = document["methods"]
    return {name: fidelity(one, methods[baseline], gradient) for name, one in methods.items()}


def _off_diagonal(products: Float[np.ndarray, "one one"]) -> float:
    count = len(products)
    return float((products.sum() - np.trace(products)) / (count * (count - 1)))


def _mean_and_error(values: Float[np.ndarray, "batch part"]) -> tuple[float, float]:
    """Over batches and over parts, which err independently of each other."""
    spreads = [values.mean(1).var(ddof=1) / values.shape[0], values.mean(0).var(ddof=1) / values.shape[1]]
    return float(values.mean()), math.sqrt(sum(spreads))


def _jackknife(statistic: Callable[[np.ndarray], float], count: int) -> tuple[float, float]:
    """The statistic of all batches, and its standard error from leaving each out in turn; NaN where fewer than 3 are left."""
    everyone = np.arange(count)
    if count < 4:
        return statistic(everyone), math.nan
    without = np.array([statistic(np.delete(everyone, place)) for place in everyone])
    return statistic(everyone), math.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
