"""The two products the estimator is made of, each one read of the stored rows, accumulated in fp32 or better."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.reduce import wide

# Rows are widened in pieces of this many bytes, so that no second copy of the batch ever exists.
_PIECE_BYTES = 16 << 20


def weighted_sums(weights: Float[Tensor, "slot token"], rows: Float[Tensor, "token width"]) -> Tensor:
    """`weights @ rows`, wide."""
    if _on_tensor_cores(rows):
        parts = torch.mm(_bf16_parts(weights), rows, out_dtype=torch.float32)
        return parts.view(3, -1, rows.shape[1]).to(wide(rows.device)).sum(0)
    total = torch.zeros(weights.shape[0], rows.shape[1], dtype=wide(rows.device), device=rows.device)
    for piece in _pieces(rows):
        total += weights[:, piece].to(total.dtype) @ rows[piece].to(total.dtype)
    return total


def inner_products(
    rows: Float[Tensor, "token width"], vectors: Float[Tensor, "slot width"]
) -> Float[Tensor, "token slot"]:
    """`rows @ vectors.T`, wide."""
    if _on_tensor_cores(rows):
        parts = torch.mm(rows, _bf16_parts(vectors).T, out_dtype=torch.float32)
        return parts.view(len(rows), 3, -1).to(wide(rows.device)).sum(1)
    vectors = vectors.to(wide(rows.device))
    products = torch.empty(len(rows), len(vectors), dtype=vectors.dtype, device=rows.device)
    for piece in _pieces(rows):
        products[piece] = rows[piece].to(vectors.dtype) @ vectors.T
    return products


def square_norms(rows: Float[Tensor, "token width"]) -> Float[Tensor, " token"]:
    """The squared length of each row, wide."""
    norms = torch.empty(len(rows), dtype=wide(rows.device), device=rows.device)
    for piece in _pieces(rows):
        norms[piece] = rows[piece].to(norms.dtype).square().sum(-1)
    return norms


def _on_tensor_cores(rows: Tensor) -> bool:
    return rows.is_cuda and rows.dtype == torch.bfloat16 and len(rows) > 0


def _bf16_parts(values: Float[Tensor, "slot many"]) -> Float[Tensor, "parts many"]:
    """Three bf16 tensors that sum to `values` to 24 bits, stacked: bf16 rows then need no widening at all."""
    parts = []
    remainder = values.to(torch.float32)
    for _ in range(3):
        part = remainder.to(torch.bfloat16)
        parts.append(part)
        remainder = remainder - part.to(torch.float32)
    return torch.cat(parts)


def _pieces(rows: Tensor) -> Iterator[slice]:
    step = max(1, _PIECE_BYTES // max(1, rows.shape[1] * 8))
    for start in range(0, len(rows), step):
        yield slice(start, min(start + step, len(rows)))
