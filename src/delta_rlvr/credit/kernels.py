"""The two reads of the stored rows that a solve is made of, as Triton kernels: each reads every row once, as it is stored.

Triton comes with torch's builds for NVIDIA GPUs; elsewhere `credit.linear` has the same products in plain torch. Products are taken
and summed in float32 over at most `_TOKENS` rows (or the width), and the partial sums in float64.
"""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import functools
from collections.abc import Sequence

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
def ready(device_type: str, dtype: torch.dtype) -> bool:
    """Whether the kernels can run on a device, on rows of a dtype."""
    return triton is not None and device_type == "cuda" and torch.version.hip is None and dtype in _KINDS


if triton is not None:

    @triton.jit
    def _sum_kernel(
        table,
        weights,
        partial,
        count,
        width,
        kind: tl.constexpr,
        tokens: tl.constexpr,
        block_n: tl.constexpr,
        block_d: tl.constexpr,
    ):
        """partial[part, side, :] = sum over the part's tokens of weights[side, token] * rows[token, :]."""
        part = tl.program_id(0)
        rows = tl.load(table + 3 * part).to(tl.pointer_type(kind))
        first = tl.load(table + 3 * part + 1)
        held = tl.load(table + 3 * part + 2)
        columns = tl.program_id(1) * block_d + tl.arange(0, block_d)
        inside = columns < width
        positive = tl.zeros((block_d,), tl.float32)
        negative = tl.zeros((block_d,), tl.float32)
        for start in range(0, tokens, block_n):
            place = (start + tl.arange(0, block_n)).to(tl.int64)
            there = place < held
            x = tl.load(
                rows + place[:, None] * width + columns[None, :], there[:, None] & inside[None, :], other=0.0
            ).to(tl.float32)
            positive += tl.sum(x * tl.load(weights + first + place, there, other=0.0)[:, None], 0)
            negative += tl.sum(x * tl.load(weights + count + first + place, there, other=0.0)[:, None], 0)
        out = partial + part.to(tl.int64) * 2 * width
        tl.store(out + columns, positive, inside)
        tl.store(out + width + columns, negative, inside)

    @triton.jit
    def _project_kernel(
        table,
        vectors,
        slots,
        products,
        width,
        kind: tl.constexpr,
        block_n: tl.constexpr,
        block_d: tl.constexpr,
    ):
        """products[token] = <rows[token], vectors[slots[token]]>."""
        part = tl.program_id(0)
        rows = tl.load(table + 3 * part).to(tl.pointer_type(kind))
        first = tl.load(table + 3 * part + 1)
        held = tl.load(table + 3 * part + 2)
        place = (tl.program_id(1) * block_n + tl.arange(0, block_n)).to(tl.int64)
        there = place < held
        negative = tl.load(slots + first + place, there, other=0) > 0
        total = tl.zeros((block_n,), tl.float32)
        for start in range(0, width, block_d):
            columns = start + tl.arange(0, block_d)
            inside = columns < width
            x = tl.load(
                rows + place[:, None] * width + columns[None, :], there[:, None] & inside[None, :], other=0.0
            ).to(tl.float32)
            one = tl.load(vectors + columns, inside, other=0.0)
            other = tl.load(vectors + width + columns, inside, other=0.0)
            total += tl.sum(x * tl.where(negative[:, None], other[None, :], one[None, :]), 1)
        tl.store(products + first + place, total, there)

    _KINDS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


class Parts:
    """Rows that lie in several tensors, cut into parts of at most `_TOKENS`: one launch reads them all."""

    def __init__(self, chunks: Sequence[tuple[int, Float[Tensor, "token width"]]]):
        """`chunks`: the number of the first token, and the rows from there on; at least one chunk."""
        self.rows = [rows.contiguous() for _, rows in chunks]  # held, because the table has their addresses
        self.width, self.dtype, self.device = self.rows[0].shape[1], self.rows[0].dtype, self.rows[0].device
        table = [
            (
                rows.data_ptr() + start * rows.stride(0) * rows.element_size(),
                first + start,
                min(_TOKENS, len(rows) - start),
            )
            for (first, _), rows in zip(chunks, self.rows, strict=True)
            for start in range(0, len(rows), _TOKENS)
        ]
        self.count = len(table)
        self.table = torch.tensor(table, dtype=torch.int64).view(-1, 3).to(self.device, non_blocking=True)


def add_side_sums(total: Float[Tensor, "2 width"], weights: Float[Tensor, "2 token"], parts: Parts) -> None:
    """total += the rows of the parts, weighted by the tokens' weights of either side."""
    if not parts.count:
        return
    partial = torch.empty(parts.count, 2, parts.width, dtype=torch.float32, device=parts.device)
    grid = (parts.count, triton.cdiv(parts.width, _WIDTH))
    _sum_kernel[grid](
        parts.table,
        weights.float().contiguous(),
        partial,
        weights.shape[1],
        parts.width,
        _KINDS[parts.dtype],
        _TOKENS,
        _ROWS,
        _WIDTH,
    )
    total += partial.sum(0, dtype=total.dtype)


def store_side_products(
    products: Float[Tensor, " token"],
    parts: Parts,
    vectors: Float[Tensor, "2 width"],
    slots: Int[Tensor, " token"],
) -> None:
    """products = <row, the vector of its slot> for the tokens of the parts, in float32; slots are 0 and 1."""
    if not parts.count:
        return
    grid = (parts.count, triton.cdiv(_TOKENS, _ROWS))
    _project_kernel[grid](
        parts.table,
        vectors.float().contiguous(),
        slots.contiguous(),
        products,
        parts.width,
        _KINDS[parts.dtype],
        _ROWS,
        4 * _WIDTH,
    )
