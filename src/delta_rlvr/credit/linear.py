"""The estimator's products with the stored rows: each reads the rows once and accumulates in fp32 or better.

Rows are large and may be bf16; the other operand is small. On a GPU it is split into three bf16 parts whose sum has 24 bits, so that
the tensor cores read the rows without a conversion. Elsewhere the rows are widened piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.reduce import wide

# Rows are widened in pieces of this size, so that there is never a second copy of the batch.
_PIECE_BYTES = 16 << 20


def split(values: Float[Tensor, "slot many"], rows: torch.dtype) -> Float[Tensor, "part many"]:
    """Return the small operand for products with rows of a dtype: wide, or as three bf16 parts, stacked."""
    if not (values.is_cuda and rows == torch.bfloat16):
        return values.to(wide(values.device))
    parts = []
    remainder = values.to(torch.float32)
    for _ in range(3):
        part = remainder.to(torch.bfloat16)
        parts.append(part)
        remainder = remainder - part
    return torch.cat(parts)


def merge(products: Float[Tensor, "part ..."], slot_count: int) -> Float[Tensor, "slot ..."]:
    """Return the products with an operand from those with the parts it was split into."""
    return products.unflatten(0, (-1, slot_count)).sum(0)


def add_weighted_sums(
    total: Float[Tensor, "part width"], weights: Float[Tensor, "part token"], rows: Float[Tensor, "token width"]
) -> None:
    """total += weights @ rows, for split weights."""
    if weights.dtype == torch.bfloat16:
        total += torch.mm(weights, rows, out_dtype=torch.float32)
        return
    for piece in _pieces(rows):
        total.addmm_(weights[:, piece], rows[piece].to(total.dtype))


def store_inner_products(
    products: Float[Tensor, "token part"], rows: Float[Tensor, "token width"], vectors: Float[Tensor, "part width"]
) -> None:
    """products = rows @ vectors.T, for split vectors."""
    if vectors.dtype == torch.bfloat16:
        products.copy_(torch.mm(rows, vectors.T, out_dtype=torch.float32))
        return
    for piece in _pieces(rows):
        torch.mm(rows[piece].to(products.dtype), vectors.T, out=products[piece])


def square_norms(rows: Float[Tensor, "token width"]) -> Float[Tensor, " token"]:
    """Return the squared length of each row, in the dtype `wide`."""
    norms = torch.empty(len(rows), dtype=wide(rows.device), device=rows.device)
    for piece in _pieces(rows):
        norms[piece] = rows[piece].to(norms.dtype).square().sum(-1)
    return norms


def _pieces(rows: Tensor) -> Iterator[slice]:
    step = max(1, _PIECE_BYTES // max(1, rows.shape[1] * 8))
    for start in range(0, len(rows), step):
        yield slice(start, min(start + step, len(rows)))
