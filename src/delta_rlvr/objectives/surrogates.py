"""Token losses before averaging. Each is a pure function of `LossInputs`.

Losses are minimised, so that each is a negated surrogate. GRPO and DAPO share `Clip`: GRPO's is symmetric, DAPO's upper bound is
higher. They also differ in the average (`aggregate`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from delta_rlvr.credit.checks import check_intervals
from delta_rlvr.credit.rule import setting
from delta_rlvr.objectives.future import future_weights

# exp() of a larger log-ratio is useless in a loss.
_LARGEST_LOG_RATIO = 20.0


@dataclass(frozen=True)
class LossInputs:
    """The inputs of a token loss. Gradients flow only through `logps`."""

    logps: Float[Tensor, "batch time"]
    """log pi_theta of the sampled tokens."""
    old_logps: Float[Tensor, "batch time"]
    """log pi_old of the sampled tokens."""
    advantages: Float[Tensor, " batch"]
    """A_i."""
    mask: Bool[Tensor, "batch time"]
    """Valid response tokens."""
    weights: Float[Tensor, "batch time"] | None = None
    """Token weights fixed for the rollout batch (lambda-bar); None for one everywhere."""

    @property
    def log_ratio(self) -> Float[Tensor, "batch time"]:
        """log r_it; 0 at masked positions, even if they hold NaN."""
        return torch.where(self.mask, self.logps - self.old_logps.detach(), 0.0)


@dataclass(frozen=True)
class Surrogate:
    """A token loss, and its description for engines that run their own loss."""

    kind: ClassVar[Literal["clip", "soft_gate"]]
    """The kind of the engine's loss."""
    reweighs: ClassVar[bool] = False
    """Whether an engine has to multiply its advantages by `reweigh` at every forward pass."""
    settings: ClassVar[tuple[str, ...]] = ()
    """Fields that can be set in a method's spec, like those of a rule. (Clips are options of the engine.)"""

    @property
    def low(self) -> float | None:
        """epsilon_low; None without a clip."""
        return None

    @property
    def high(self) -> float | None:
        """epsilon_high; None without a clip."""
        return None

    @property
    def dual(self) -> float | None:
        """The dual clip's bound c, or None."""
        return None

    def __call__(self, inputs: LossInputs) -> Float[Tensor, "batch time"]:
        """Return the loss of each token."""
        raise NotImplementedError

    def reweigh(
        self,
        log_ratio: Float[Tensor, "batch time"],
        advantages: Float[Tensor, "batch time"],
        mask: Bool[Tensor, "batch time"],
    ) -> Float[Tensor, "batch time"]:
        """Return the token weights at the current policy, 0 outside of the mask."""
        return mask.to(log_ratio.dtype)


@dataclass(frozen=True)
class Clip(Surrogate):
    """PPO's clipped surrogate: -min(r A, clip(r, 1 - low, 1 + high) A), optionally with a dual clip."""

    low: float = 0.2
    """epsilon_low."""
    high: float = 0.28
    """epsilon_high (DAPO's clip-higher)."""
    dual: float | None = None
    """c: where A < 0 the loss of a token is at most c |A|."""

    kind = "clip"

    def __call__(self, inputs: LossInputs) -> Float[Tensor, "batch time"]:
        return clipped_loss(inputs.log_ratio, inputs.advantages[:, None], self.low, self.high, self.dual)


@dataclass(frozen=True)
class SoftGate(Surrogate):
    """SAPO: -f(r) A with f(r) = sigmoid(tau (r - 1)) 4 / tau, a smooth gate instead of a clip."""

    positive: float = 1.0
    """tau where A > 0."""
    negative: float = 1.05
    """tau where A <= 0."""

    kind = "soft_gate"

    def __call__(self, inputs: LossInputs) -> Float[Tensor, "batch time"]:
        advantages = inputs.advantages[:, None]
        ratio = inputs.log_ratio.clamp(-_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO).exp()
        tau = torch.where(advantages > 0, torch.full_like(advantages, self.positive), self.negative)
        return -torch.sigmoid(tau * (ratio - 1)) * (4 / tau) * advantages


@dataclass(frozen=True)
class FutureClip(Clip):
    """FIPO (Appendix J and the authors' scripts): the dual-clipped surrogate with the advantage scaled by each token's discounted
    future shift."""

    dual: float = setting(10.0, "(1, inf)")
    """c: the dual clip, and the ratio above which a log-ratio shift is not counted."""
    decay: float = setting(2 ** (-1 / 32), "[0, 1)")
    """Discount per token (g): a half-life of 32 tokens."""
    weight_low: float = setting(1.0, "(0, 1]")
    """Smallest weight of a token (0.8 with the authors' setting future_kl_clip_high_only=False)."""
    weight_high: float = setting(1.2, "[1, inf)")
    """Largest weight. With A < 0 and a ratio above the dual clip it is 1, applied after the clip as in the authors' code."""
    drop_overshot: bool = False
    """Drop a response with more than one dual-clipped token (the authors' code; not in the paper)."""

    reweighs = True
    settings = ("dual", "decay", "weight_low", "weight_high", "drop_overshot")

    def __post_init__(self) -> None:
        check_intervals(self)

    def __call__(self, inputs: LossInputs) -> Float[Tensor, "batch time"]:
        advantages = inputs.advantages[:, None].expand_as(inputs.logps)
        weights = self.reweigh(inputs.log_ratio, advantages, inputs.mask)
        return clipped_loss(inputs.log_ratio, advantages * weights, self.low, self.high, self.dual)

    def reweigh(
        self,
        log_ratio: Float[Tensor, "batch time"],
        advantages: Float[Tensor, "batch time"],
        mask: Bool[Tensor, "batch time"],
    ) -> Float[Tensor, "batch time"]:
        return future_weights(
            log_ratio,
            advantages,
            mask,
            decay=self.decay,
            low=self.weight_low,
            high=self.weight_high,
            dual=self.dual,
            drop_overshot=self.drop_overshot,
        )


def clipped_loss(
    log_ratio: Float[Tensor, "batch time"],
    advantages: Float[Tensor, "..."],
    low: float,
    high: float,
    dual: float | None = None,
) -> Float[Tensor, "batch time"]:
    """Return max(-r A, -clip(r, 1 - low, 1 + high) A); with a dual clip at most -c A where A < 0."""
    ratio = log_ratio.clamp(-_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO).exp()
    loss = torch.max(-ratio * advantages, -ratio.clamp(1 - low, 1 + high) * advantages)
    if dual is None:
        return loss
    return torch.where(advantages < 0, torch.min(loss, -dual * advantages), loss)
