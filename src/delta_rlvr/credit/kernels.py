"""The two reads of the stored rows that a solve is made of, as Triton kernels: each reads every row once, as it is stored.

Triton comes with torch's builds for NVIDIA GPUs; elsewhere `credit.linear` has the same products in plain torch. Products are taken
and summed in float32 over at most `_TOKENS` rows (or the width), and the partial sums in float64.
"""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import functools

import torch
from jaxtyping import Float, Int
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a build of torch without it
    triton = None  # type: ignore[assignment]

_TOKENS = 256
_WIDTH = 128
_ROWS = 16


@functools.cache
def ready(device_type: str) -> bool:
    """Whether the kernels can run on a device."""
    return triton is not None and device_type == "cuda" and torch.version.hip is None


if triton is not None:

    @triton.jit
    def _sum_kernel(
        rows,
        weights,
        partial,
        count,
        width,
        tokens: tl.constexpr,
        block_n: tl.constexpr,
        block_d: tl.constexpr,
    ):
        """partial[part, side, :] = sum over the part's tokens of weights[side, token] * rows[token, :]."""
        part = tl.program_id(0)
        columns = tl.program_id(1) * block_d + tl.arange(0, block_d)
        inside = columns < width
        positive = tl.zeros((block_d,), tl.float32)
        negative = tl.zeros((block_d,), tl.float32)
        for start in range(0, tokens, block_n):
            place = (part * tokens + start + tl.arange(0, block_n)).to(tl.int64)
            there = place < count
            x = tl.load(
                rows + place[:, None] * width + columns[None, :], there[:, None] & inside[None, :], other=0.0
            ).to(tl.float32)
            positive += tl.sum(x * tl.load(weights + place, there, other=0.0)[:, None], 0)
            negative += tl.sum(x * tl.load(weights + count + place, there, other=0.0)[:, None], 0)
        out = partial + part.to(tl.int64) * 2 * width
        tl.store(out + columns, positive, inside)
        tl.store(out + width + columns, negative, inside)

    @triton.jit
    def _project_kernel(
        rows, vectors, slots, products, count, width, block_n: tl.constexpr, block_d: tl.constexpr
    ):
        """products[token] = <rows[token], vectors[slots[token]]>."""
        place = (tl.program_id(0) * block_n + tl.arange(0, block_n)).to(tl.int64)
        there = place < count
        negative = tl.load(slots + place, there, other=0) > 0
        total = tl.zeros((block_n,), tl.float32)
        for start in range(0, width, block_d):
            columns = start + tl.arange(0, block_d)
            inside = columns < width
            x = tl.load(
                rows + place[:, None] * width + columns[None, :], there[:, None] & inside[None, :], other=0.0
            ).to(tl.float32)
            first = tl.load(vectors + columns, inside, other=0.0)
            second = tl.load(vectors + width + columns, inside, other=0.0)
            total += tl.sum(x * tl.where(negative[:, None], second[None, :], first[None, :]), 1)
        tl.store(products + place, total, there)


def add_side_sums(
    total: Float[Tensor, "2 width"], weights: Float[Tensor, "2 token"], rows: Float[Tensor, "token width"]
) -> None:
    """total += weights @ rows."""
    count, width = rows.shape
    if not count:
        return
    parts = triton.cdiv(count, _TOKENS)
    partial = torch.empty(parts, 2, width, dtype=torch.float32, device=rows.device)
    grid = (parts, triton.cdiv(width, _WIDTH))
    _sum_kernel[grid](
        rows.contiguous(), weights.float().contiguous(), partial, count, width, _TOKENS, _ROWS, _WIDTH
    )
    total += partial.sum(0, dtype=total.dtype)


def store_side_products(
    products: Float[Tensor, " token"],
    rows: Float[Tensor, "token width"],
    vectors: Float[Tensor, "2 width"],
    slots: Int[Tensor, " token"],
) -> None:
    """products = <row, the vector of its slot>; slots are 0 and 1."""
    count, width = rows.shape
    if not count:
        return
    found = torch.empty(count, dtype=torch.float32, device=rows.device)
    grid = (triton.cdiv(count, _ROWS),)
    _project_kernel[grid](
        rows.contiguous(),
        vectors.float().contiguous(),
        slots.contiguous(),
        found,
        count,
        width,
        _ROWS,
        4 * _WIDTH,
    )
    products.copy_(found)
