"""Seeded draws per token that do not depend on the layout of the batch.

A draw depends only on the seed, the batch's number, the response's key and the token's index in its response: padding, packing,
micro-batches and ranks do not change it. (The numbers of a torch.Generator depend on a token's place in the tensor.)
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from delta_rlvr.credit.reduce import wide

_FULL = (1 << 64) - 1


def uniform_draws(
    seed: int, round_number: int, keys: Int[Tensor, " token"], positions: Int[Tensor, " token"]
) -> Float[Tensor, " token"]:
    """Return a number in [0, 1) for each token: splitmix64's output function of (seed, round, key, position)."""
    state = _mix(torch.full_like(keys, _signed(seed * 0x9E3779B97F4A7C15 + round_number)))
    state = _mix(state ^ keys)
    state = _mix(state ^ positions)
    # The top 53 bits, as a fraction.
    return _shift_right(state, 11).to(wide(keys.device)) * 2.0**-53


def _mix(state: Tensor) -> Tensor:
    state = state + _signed(0x9E3779B97F4A7C15)
    state = (state ^ _shift_right(state, 30)) * _signed(0xBF58476D1CE4E5B9)
    state = (state ^ _shift_right(state, 27)) * _signed(0x94D049BB133111EB)
    return state ^ _shift_right(state, 31)


def _shift_right(state: Tensor, bits: int) -> Tensor:
    """Shift logically: torch shifts int64 arithmetically."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    """Return 64 bits as a signed integer: torch has no unsigned one."""
    value &= _FULL
    return value - (1 << 64) if value >> 63 else value
