"""FIPO's token weight: a discounted sum of future log-ratio shifts. It depends on the current policy and is computed at every forward
pass. At the old policy it is one, so that with one update per batch FIPO is DAPO."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_BLOCK = 64


@torch.no_grad()
def future_weights(
    log_ratio: Float[Tensor, "batch time"],
    advantages: Float[Tensor, "batch time"],
    mask: Bool[Tensor, "batch time"],
    *,
    decay: float,
    low: float,
    high: float,
    dual: float,
    drop_overshot: bool,
) -> Float[Tensor, "batch time"]:
    """Return w_it = clip(exp(F_t), low, high), at most 1 where A < 0 and the ratio is above the dual clip, 0 outside of the mask.

    `decay` is the discount per token (g). Log-ratio shifts above log(`dual`) are not counted. With `drop_overshot` a response with more
    than one such token and A < 0 gets weight 0.
    """
    # Half precision would round the sum; masked positions may hold any value.
    shift = torch.where(mask, log_ratio, 0.0).to(torch.promote_types(log_ratio.dtype, torch.float32)).clamp(-20, 20)
    overshot = shift > math.log(dual)
    influence = discounted_future_sum(torch.where(overshot, 0.0, shift), decay).exp().clamp(low, high)
    guarded = overshot & (advantages < 0)
    ours = torch.where(guarded, influence.clamp(max=1.0), influence)
    if drop_overshot:
        ours = torch.where(guarded.sum(-1, keepdim=True) > 1, 0.0, ours)
    return torch.where(mask, ours, 0.0)


def discounted_future_sum(values: Float[Tensor, "batch time"], decay: float) -> Float[Tensor, "batch time"]:
    """Return F_t = sum_{j >= t} decay^(j - t) values_j in time linear in T.

    Blocks are multiplied with a small triangular matrix, and one number is carried from block to block. This needs no T x T matrix, no
    Python loop over T and no negative power of the decay.
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
