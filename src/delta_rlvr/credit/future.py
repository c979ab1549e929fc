"""FIPO's token weight: a discounted sum of the future log-ratio shifts. It depends on the current policy, so it is recomputed at every
forward; at the old policy it is one everywhere, and with one update a batch FIPO is DAPO."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_BLOCK = 64


@dataclass(frozen=True)
class FutureConfig:
    """FIPO's constants (Appendix J and the authors' scripts)."""

    decay: float = 2 ** (-1 / 32)
    """Discount a token (g): half of the weight is gone after 32 tokens."""
    low: float = 0.8
    """Smallest weight of a token with negative advantage whose ratio passed `dual_clip`."""
    high: float = 1.2
    """Largest weight of any other token."""
    dual_clip: float = 10.0
    """c: the dual clip, and the ratio above which a log-ratio shift is not counted."""
    drop_overshot: bool = False
    """Drop a response with more than one dual-clipped token (the authors' code; not in the paper)."""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay={self.decay}: give a discount from 0 up to (not including) 1")
        if not 0 < self.low <= 1 <= self.high:
            raise ValueError(f"low={self.low}, high={self.high}: the weights must lie around 1")
        if self.dual_clip <= 1:
            raise ValueError(f"dual_clip={self.dual_clip}: give a ratio above 1")


@torch.no_grad()
def future_weights(
    log_ratio: Float[Tensor, "batch time"],
    advantages: Float[Tensor, "batch time"],
    mask: Bool[Tensor, "batch time"],
    config: FutureConfig = FutureConfig(),  # noqa: B008 - frozen
) -> Float[Tensor, "batch time"]:
    """w_it = clip(exp(F_t), 1, high); [low, 1] where A < 0 and the ratio passed the dual clip. 0 outside the mask."""
    # Narrow floats would lose the sum; masked positions may hold anything.
    shift = (
        torch.where(mask, log_ratio, 0.0)
        .to(torch.promote_types(log_ratio.dtype, torch.float32))
        .clamp(-20, 20)
    )
    overshot = shift > math.log(config.dual_clip)
    influence = discounted_future_sum(torch.where(overshot, 0.0, shift), config.decay).exp()
    ours = torch.where(
        overshot & (advantages < 0), influence.clamp(config.low, 1.0), influence.clamp(1.0, config.high)
    )
    if config.drop_overshot:
        clipped = (overshot & (advantages < 0)).sum(-1, keepdim=True)
        ours = torch.where(clipped > 1, 0.0, ours)
    return torch.where(mask, ours, 0.0)


def discounted_future_sum(values: Float[Tensor, "batch time"], decay: float) -> Float[Tensor, "batch time"]:
    """F_t = sum_{j >= t} decay^(j - t) values_j, in time linear in T.

    A product with a small triangular matrix within blocks, and one number carried from block to block: no T x T matrix, no
    T-step Python loop, and no power of the decay above one.
    """
    batch, time = values.shape
    blocks = -(-time // _BLOCK)
    cut = torch.nn.functional.pad(values, (0, blocks * _BLOCK - time)).view(batch, blocks, _BLOCK)
    distance = torch.arange(_BLOCK, device=values.device)
    powers = decay ** torch.arange(_BLOCK + 1, device=values.device, dtype=values.dtype)
    ahead = distance[:, None] - distance[None, :]  # j - t, rows j, columns t
    within = cut @ torch.where(ahead >= 0, powers[ahead.clamp(min=0)], 0.0)
    carried = torch.zeros(batch, device=values.device, dtype=values.dtype)
    total = torch.empty_like(within)
    for block in range(blocks - 1, -1, -1):
        total[:, block] = within[:, block] + carried[:, None] * powers[_BLOCK - distance]
        carried = total[:, block, 0]
    return total.view(batch, -1)[:, :time]
