"""delta-scalar for a loss that gets one response at a time: running centroids replace those of the batch.

    state = RunningCentroids()
    weights, state = running_weights(state, logps, advantage)      # for each response, in the order of the loss

Margins are affine in the one number 1 - p, so that Eq. 5-8 need only a few sums per side of a batch. Here each sum decays: a
response counts 1 - 1/memory as much as the next one. With a memory of about one rollout batch the weights are those of the batch
up to noise (`benchmarks/running_centroids.py` measures it). Nothing is summed over ranks: each has its own state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from delta_rlvr.bounds import check_types, typed
from delta_rlvr.credit.checks import require, require_mask, require_shape
from delta_rlvr.credit.pieces import surprise
from delta_rlvr.credit.rule import RuleError, TokenRule
from delta_rlvr.credit.rules.delta import Delta
from delta_rlvr.credit.solver import GAMMA_FLOOR
from delta_rlvr.objectives import get_method


def runs_along(rule: TokenRule) -> bool:
    """Return whether running centroids can replace the batch: DelTA on 1 - p, with scope "batch" and K of 0 or 1."""
    return type(rule) is Delta and rule.proxy == "scalar" and rule.scope == "batch" and rule.refinements <= 1


@dataclass(frozen=True)
class RunningCentroids:
    """The decayed sums of each side (positive, negative) and of all tokens."""

    memory: float = 512
    """The number of responses that count."""
    sides: Float[Tensor, "side sum"] = field(default_factory=lambda: torch.zeros(2, 7, dtype=torch.float64))
    """The sums of 1, 1 - p, (1 - p)^2, |A|, |A| (1 - p), |A| alpha and |A| (1 - p) alpha over a side's tokens."""
    tokens: float = 0.0
    """The number of all tokens."""
    coefficients: float = 0.0
    """The sum of lambda over all tokens."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self))
        require(self.memory >= 1, f"memory={self.memory!r}: give the number of responses that count, at least 1")


@typed
def running_weights(
    state: RunningCentroids,
    logps: Float[Tensor, " time"],
    advantage: float | Float[Tensor, ""] | Float[Tensor, " time"],
    mask: Bool[Tensor, " time"] | None = None,
    *,
    method: str | TokenRule = "delta-scalar",
) -> tuple[Float[Tensor, " time"], RunningCentroids]:
    """Return the weights of one response's tokens and the next state.

    Weights are 0 outside of the mask, and one until the state has responses of both sides.
    """
    rule: Any = get_method(method).rule
    if not runs_along(rule):
        raise RuleError(
            f"method {method!r} has no running form: it needs the whole batch at once (delta_rlvr.token_weights); "
            "delta-scalar has one"
        )
    require(logps.dim() == 1, f"logps: shape {tuple(logps.shape)} does not fit; one response's [time] is needed")
    mask = torch.ones_like(logps, dtype=torch.bool) if mask is None else mask
    require_shape("mask", mask, tuple(logps.shape), "[time]")
    require_mask(mask)
    given = torch.as_tensor(advantage, dtype=torch.float64)
    if given.dim():
        require_shape("advantage", given, tuple(logps.shape), "[time]")
    values = given.expand(len(logps)).cpu()[mask.cpu()]
    inside = logps.detach().cpu().double()[mask.cpu()]
    # A NaN would stay in the state for ever.
    for name, checked in (("logps", inside), ("advantage", values)):
        require(bool(checked.isfinite().all()), f"{name}: not finite (NaN or inf) at a valid token")
    require(not (inside > 1e-2).any(), "logps: a log-prob cannot be positive; pass log p, not p")
    require(
        not len(values) or float(values.max() - values.min()) <= 1e-6,
        "advantage: it differs within the response; token credit needs one advantage per response",
    )
    chances = surprise(inside)
    keep = 1 - 1 / state.memory
    sides = state.sides * keep
    side, mass = (values < 0).long(), values.abs()
    signal = mass > 0
    one = signal.double()
    sums = torch.stack([one, one * chances, one * chances**2, mass, mass * chances], 1)
    sides[:, :5].index_add_(0, side, sums)
    state = replace(state, sides=sides)
    laid_out = torch.zeros(len(logps), dtype=torch.float32)
    if not (sides[:, 3] > 0).all():
        laid_out[mask.cpu()] = 1.0
        return laid_out.to(logps.device), state
    # gamma (Eq. 6) of the first centroids: a margin is 2 (own - opposite) (1 - p - middle), so its spread is that of 1 - p.
    mean = sides[:, 1] / sides[:, 0]
    spread = (sides[:, 2] / sides[:, 0] - mean**2).clamp(min=0).sqrt()
    centroids = sides[:, 4] / sides[:, 3]
    gamma = (2 * (centroids[0] - centroids[1]).abs() * spread).clamp(min=GAMMA_FLOOR)
    alpha = torch.sigmoid(_margins(centroids, chances, side) / gamma[side])
    if rule.refinements:
        refined = torch.stack([mass * alpha, mass * alpha * chances], 1)
        sides[:, 5:].index_add_(0, side, refined)
        centroids = torch.where(sides[:, 5] > 0, sides[:, 6] / sides[:, 5].clamp(min=1e-300), centroids)
        alpha = torch.sigmoid(_margins(centroids, chances, side) / gamma[side])
    coefficients = rule.coefficients(torch.where(signal, alpha, 0.0))
    tokens = state.tokens * keep + len(coefficients)
    total = state.coefficients * keep + float(coefficients.sum())
    laid_out[mask.cpu()] = (coefficients * tokens / total).float()
    return laid_out.to(logps.device), replace(state, tokens=tokens, coefficients=total)


def _margins(centroids: Tensor, chances: Tensor, side: Tensor) -> Float[Tensor, " token"]:
    """D = ||v - mu_opp||^2 - ||v - mu_own||^2 (Eq. 5)."""
    towards = centroids - centroids.flip(0)
    return 2 * towards[side] * (chances - centroids.mean())
