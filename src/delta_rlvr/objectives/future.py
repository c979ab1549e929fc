"""FIPO's token weight: a discounted sum of the future log-ratio shifts. It depends on the current policy, so it is recomputed at every
forward; at the old policy it is one everywhere, and with one update per batch FIPO is DAPO."""

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
    """w_it = clip(exp(F_t), low, high), and at most 1 where A < 0 and the ratio passed the dual clip. 0 outside the mask.

    `decay` is the discount per token (g). A log-ratio shift above the `dual` clip's is not counted. `drop_overshot`: a response with
    more than one such token and A < 0 gets 0 throughout.
    """
    # Narrow floats would lose the sum; masked positions may hold anything.
    shift = torch.where(mask, log_ratio, 0.0).to(torch.promote_types(log_ratio.dtype, torch.float32)).clamp(-20, 20)
    overshot = shift > math.log(dual)
    influence = discounted_future_sum(torch.where(overshot, 0.0, shift), decay).exp().clamp(low, high)
    guarded = overshot & (advantages < 0)
    ours = torch.where(guarded, influence.clamp(max=1.0), influence)
    if drop_overshot:
        ours = torch.where(guarded.sum(-1, keepdim=True) > 1, 0.0, ours)
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
