"""Token losses: what one token contributes, before anything is averaged. Each is a pure function of `LossInputs`.

Losses are minimised, so each is the negated surrogate. GRPO and DAPO share one: `Clip`; GRPO's is symmetric, DAPO's clips higher on
the upper side. What else tells them apart is how tokens are averaged (`aggregate`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from delta_rlvr.credit.future import FutureConfig, future_weights

# exp() of a larger log-ratio is of no use in a loss and overflows in half precision.
_LARGEST_LOG_RATIO = 20.0


@dataclass(frozen=True)
class LossInputs:
    """Everything a token loss may look at. Gradients flow through `logps` alone."""

    logps: Float[Tensor, "batch time"]
    """log pi_theta of the sampled tokens."""
    old_logps: Float[Tensor, "batch time"]
    """log pi_old of the same."""
    advantages: Float[Tensor, " batch"]
    """A_i."""
    mask: Bool[Tensor, "batch time"]
    """Valid response tokens."""
    weights: Float[Tensor, "batch time"] | None = None
    """Token weights fixed for the rollout batch (lambda-bar); None for one everywhere."""

    @property
    def log_ratio(self) -> Float[Tensor, "batch time"]:
        """log r_it, 0 at masked positions (whatever stands there, NaN included)."""
        return torch.where(self.mask, self.logps - self.old_logps.detach(), 0.0)


@dataclass(frozen=True)
class Clip:
    """PPO's clipped surrogate: -min(r A, clip(r, 1 - low, 1 + high) A), optionally with a dual clip."""

    low: float = 0.2
    """epsilon_low."""
    high: float = 0.28
    """epsilon_high (DAPO's clip-higher)."""
    dual: float | None = None
    """c: where A < 0 the loss of a token is at most c |A|."""

    def __call__(self, inputs: LossInputs) -> Float[Tensor, "batch time"]:
        return clipped_loss(inputs.log_ratio, inputs.advantages[:, None], self.low, self.high, self.dual)


@dataclass(frozen=True)
class SoftGate:
    """SAPO: -f(r) A with f(r) = sigmoid(tau (r - 1)) 4 / tau, a smooth gate in the place of the clip."""

    positive: float = 1.0
    """tau where A > 0."""
    negative: float = 1.05
    """tau where A <= 0."""

    def __call__(self, inputs: LossInputs) -> Float[Tensor, "batch time"]:
        advantages = inputs.advantages[:, None]
        ratio = inputs.log_ratio.clamp(-_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO).exp()
        tau = torch.where(advantages > 0, torch.full_like(advantages, self.positive), self.negative)
        return -torch.sigmoid(tau * (ratio - 1)) * (4 / tau) * advantages


@dataclass(frozen=True)
class FutureClip:
    """FIPO: the dual-clipped surrogate with the advantage scaled by each token's discounted future shift."""

    low: float = 0.2
    """epsilon_low."""
    high: float = 0.28
    """epsilon_high."""
    future: FutureConfig = field(default_factory=FutureConfig)
    """The weight's constants; its dual clip is the surrogate's too."""

    def __call__(self, inputs: LossInputs) -> Float[Tensor, "batch time"]:
        advantages = inputs.advantages[:, None].expand_as(inputs.logps)
        weights = future_weights(inputs.log_ratio, advantages, inputs.mask, self.future)
        return clipped_loss(
            inputs.log_ratio, advantages * weights, self.low, self.high, self.future.dual_clip
        )


Surrogate: TypeAlias = Clip | SoftGate | FutureClip


def clipped_loss(
    log_ratio: Float[Tensor, "batch time"],
    advantages: Float[Tensor, "..."],
    low: float,
    high: float,
    dual: float | None = None,
) -> Float[Tensor, "batch time"]:
    """max(-r A, -clip(r, 1 - low, 1 + high) A); with a dual clip at most -c A where A < 0."""
    ratio = log_ratio.clamp(-_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO).exp()
    loss = torch.max(-ratio * advantages, -ratio.clamp(1 - low, 1 + high) * advantages)
    if dual is None:
        return loss
    return torch.where(advantages < 0, torch.min(loss, -dual * advantages), loss)
