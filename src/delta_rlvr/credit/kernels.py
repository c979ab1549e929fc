"""The passes that a solve is made of, as Triton kernels: each reads every stored row once, as it is stored, or every token once.

Triton comes with torch's builds for NVIDIA GPUs; elsewhere `credit.linear` has the same products in plain torch. Products are taken
and summed in float32 over at most `_TOKENS` rows (or the width), and the partial sums in float64; what there is one of per token is
float64. A solve of a few milliseconds is mostly launches, so each kernel does all that can be done between two sums over the batch.
"""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a build of torch without it
    triton = None  # type: ignore[assignment]

_TOKENS = 256
# The tiles of a sum over rows, and of a product along them: the fastest of a dozen shapes tried on an H200.
_SUM_ROWS, _SUM_WIDTH = 4, 512
_ROWS, _WIDTH = 8, 1024
_BLOCK = 1024
"""Tokens (or columns, or partial sums) of one program where no row is read."""


@functools.cache
def ready(device_type: str, dtype: torch.dtype) -> bool:
    """Whether the kernels can run on a device, on rows of a dtype."""
    return triton is not None and device_type == "cuda" and torch.version.hip is None and dtype in _KINDS


if triton is not None:

    @triton.jit
    def _part(table, part, each, width, kind: tl.constexpr, tokens: tl.constexpr):
        """Where a part's rows lie, the number of its first token, and how many it has, if any (see `Parts`)."""
        chunk = table + 3 * (part // each)
        start = (part % each) * tokens
        rows = tl.load(chunk).to(tl.pointer_type(kind)) + start.to(tl.int64) * width
        return rows, tl.load(chunk + 1) + start, tl.load(chunk + 2) - start

    @triton.jit
    def _tile(rows, place, there, columns, inside, width):
        """Some columns of some rows in float32, 0 where there is none."""
        at = rows + place[:, None] * width + columns[None, :]
        return tl.load(at, there[:, None] & inside[None, :], other=0.0).to(tl.float32)

    @triton.jit
    def _sum_kernel(
        table,
        weights,
        partial,
        count,
        each,
        width,
        kind: tl.constexpr,
        tokens: tl.constexpr,
        block_n: tl.constexpr,
        block_d: tl.constexpr,
    ):
        """partial[part, side, :] = sum over the part's tokens of weights[side, token] * rows[token, :]."""
        part = tl.program_id(0)
        rows, first, held = _part(table, part, each, width, kind, tokens)
        columns = tl.program_id(1) * block_d + tl.arange(0, block_d)
        inside = columns < width
        positive = tl.zeros((block_d,), tl.float32)
        negative = tl.zeros((block_d,), tl.float32)
        for start in range(0, tokens, block_n):
            place = (start + tl.arange(0, block_n)).to(tl.int64)
            there = place < held
            x = _tile(rows, place, there, columns, inside, width)
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
        each,
        width,
        kind: tl.constexpr,
        tokens: tl.constexpr,
        block_n: tl.constexpr,
        block_d: tl.constexpr,
    ):
        """products[token] = <rows[token], vectors[slots[token]]>."""
        part = tl.program_id(0)
        rows, first, held = _part(table, part, each, width, kind, tokens)
        place = (tl.program_id(1) * block_n + tl.arange(0, block_n)).to(tl.int64)
        there = place < held
        negative = tl.load(slots + first + place, there, other=0) > 0
        total = tl.zeros((block_n,), tl.float32)
        for start in range(0, width, block_d):
            columns = start + tl.arange(0, block_d)
            inside = columns < width
            x = _tile(rows, place, there, columns, inside, width)
            one = tl.load(vectors + columns, inside, other=0.0)
            other = tl.load(vectors + width + columns, inside, other=0.0)
            total += tl.sum(x * tl.where(negative[:, None], other[None, :], one[None, :]), 1)
        tl.store(products + first + place, total, there)

    @triton.jit
    def _assign_kernel(
        mass,
        side,
        factor,
        margins,
        gamma,
        alphas,
        weights,
        partial,
        count,
        scaled: tl.constexpr,
        first: tl.constexpr,
        block: tl.constexpr,
    ):
        """alpha = sigmoid(margin / gamma) (Eq. 6; 1 in the `first` pass), the weights of either side's sum, and the sides' masses."""
        place = tl.program_id(0) * block + tl.arange(0, block)
        there = place < count
        sign = tl.load(side + place, there, other=0)
        weight = tl.load(mass + place, there, other=0.0)
        alpha = tl.where(sign == 0, 0.0, 1.0).to(tl.float64)
        if not first:
            temperature = tl.where(sign < 0, tl.load(gamma + 1), tl.load(gamma))
            alpha = alpha / (1 + tl.exp(-tl.load(margins + place, there, other=0.0) / temperature))
            tl.store(alphas + place, alpha, there)
            weight = weight * alpha
        own = partial + 4 * tl.program_id(0)
        tl.store(own, tl.sum(tl.where(sign > 0, weight, 0.0), 0))
        tl.store(own + 1, tl.sum(tl.where(sign < 0, weight, 0.0), 0))
        tl.store(own + 2, tl.sum((sign > 0).to(tl.float64), 0))
        tl.store(own + 3, tl.sum((sign < 0).to(tl.float64), 0))
        if scaled:
            weight = weight * tl.load(factor + place, there, other=0.0)
        tl.store(weights + place, tl.where(sign > 0, weight, 0.0).to(tl.float32), there)
        tl.store(weights + count + place, tl.where(sign < 0, weight, 0.0).to(tl.float32), there)

    @triton.jit
    def _centroid_kernel(
        sums,
        masses,
        previous,
        means,
        difference,
        gap,
        offset,
        programs,
        width,
        floor,
        first: tl.constexpr,
        block: tl.constexpr,
    ):
        """The centroids mu (Eq. 3 and 7), mu+ - mu-, ||mu+ - mu-|| and ||mu+||^2 - ||mu-||^2: one program, for want of much to do."""
        number = tl.arange(0, block)
        plus = tl.sum(tl.zeros((block,), tl.float64), 0)
        minus = plus
        for start in range(0, programs, block):
            here = start + number < programs
            plus += tl.sum(tl.load(masses + 4 * (start + number), here, other=0.0), 0)
            minus += tl.sum(tl.load(masses + 4 * (start + number) + 1, here, other=0.0), 0)
        square = tl.zeros((block,), tl.float64)
        less = tl.zeros((block,), tl.float64)
        for start in range(0, width, block):
            columns = start + tl.arange(0, block)
            inside = columns < width
            positive = tl.load(sums + columns, inside, other=0.0) / tl.maximum(plus, floor)
            negative = tl.load(sums + width + columns, inside, other=0.0) / tl.maximum(minus, floor)
            if not first:  # a side to which nothing was assigned keeps its centroid
                positive = tl.where(plus > 0, positive, tl.load(previous + columns, inside, other=0.0))
                negative = tl.where(
                    minus > 0, negative, tl.load(previous + width + columns, inside, other=0.0)
                )
            apart = positive - negative
            tl.store(means + columns, positive, inside)
            tl.store(means + width + columns, negative, inside)
            tl.store(difference + columns, apart.to(tl.float32), inside)
            square += apart * apart
            less += apart * (positive + negative)
        tl.store(gap, tl.sqrt(tl.sum(square, 0)))
        tl.store(offset, tl.sum(less, 0))

    @triton.jit
    def _margin_kernel(
        table,
        difference,
        offset,
        side,
        factor,
        margins,
        moments,
        each,
        width,
        kind: tl.constexpr,
        tokens: tl.constexpr,
        scaled: tl.constexpr,
        block_n: tl.constexpr,
        block_d: tl.constexpr,
    ):
        """D = +-(2 <v, mu+ - mu-> - (||mu+||^2 - ||mu-||^2)), 0 where A = 0, and its count, sum and squared deviations by side."""
        part = tl.program_id(0)
        rows, first, held = _part(table, part, each, width, kind, tokens)
        place = (tl.program_id(1) * block_n + tl.arange(0, block_n)).to(tl.int64)
        there = place < held
        total = tl.zeros((block_n,), tl.float32)
        for start in range(0, width, block_d):
            columns = start + tl.arange(0, block_d)
            inside = columns < width
            x = _tile(rows, place, there, columns, inside, width)
            total += tl.sum(x * tl.load(difference + columns, inside, other=0.0)[None, :], 1)
        along = total.to(tl.float64)
        if scaled:
            along = along * tl.load(factor + first + place, there, other=0.0)
        sign = tl.load(side + first + place, there, other=0)
        margin = sign.to(tl.float64) * (2 * along - tl.load(offset))
        tl.store(margins + first + place, margin, there)
        own = moments + 6 * (part * tl.num_programs(1) + tl.program_id(1))
        for number in tl.static_range(2):
            here = sign == 1 - 2 * number
            count = tl.sum(here.to(tl.float64), 0)
            mean = tl.sum(tl.where(here, margin, 0.0), 0) / tl.maximum(count, 1.0)
            deviation = tl.where(here, margin - mean, 0.0)
            tl.store(own + 3 * number, count)
            tl.store(own + 3 * number + 1, mean)
            tl.store(own + 3 * number + 2, tl.sum(deviation * deviation, 0))

    @triton.jit
    def _moments_kernel(moments, joined, programs, floor, block: tl.constexpr):
        """Counts, means and squared deviations of all programs joined to one (Chan's formula), and the standard deviation: one program
        per side."""
        side = tl.program_id(0)
        count = tl.zeros((block,), tl.float64)
        total = tl.zeros((block,), tl.float64)
        for start in range(0, programs, block):
            number = start + tl.arange(0, block)
            here = number < programs
            n = tl.load(moments + 6 * number + 3 * side, here, other=0.0)
            count += n
            total += n * tl.load(moments + 6 * number + 3 * side + 1, here, other=0.0)
        counted = tl.sum(count, 0)
        mean = tl.sum(total, 0) / tl.maximum(counted, 1.0)
        squares = tl.zeros((block,), tl.float64)
        for start in range(0, programs, block):
            number = start + tl.arange(0, block)
            here = number < programs
            n = tl.load(moments + 6 * number + 3 * side, here, other=0.0)
            apart = tl.load(moments + 6 * number + 3 * side + 1, here, other=0.0) - mean
            squares += n * apart * apart + tl.load(moments + 6 * number + 3 * side + 2, here, other=0.0)
        tl.store(joined + side, counted)
        tl.store(joined + 2 + side, mean)
        total_square = tl.sum(squares, 0)
        tl.store(joined + 4 + side, total_square)
        tl.store(joined + 6 + side, tl.maximum(tl.sqrt(total_square / tl.maximum(counted, 1.0)), floor))

    _KINDS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


class Parts:
    """Rows that lie in several tensors, cut into parts of `_TOKENS`: one launch reads them all.

    Every chunk has as many parts as the longest needs (`each`); the last ones of a shorter chunk are short or empty.
    """

    def __init__(self, chunks: Sequence[tuple[int, Float[Tensor, "token width"]]]):
        """`chunks`: the number of the first token, and the rows from there on; at least one chunk."""
        self.rows = [rows.contiguous() for _, rows in chunks]  # held, because the table has their addresses
        self.width, self.dtype, self.device = self.rows[0].shape[1], self.rows[0].dtype, self.rows[0].device
        table = [
            (rows.data_ptr(), first, rows.shape[0])
            for (first, _), rows in zip(chunks, self.rows, strict=True)
        ]
        self.each = triton.cdiv(max(count for _, _, count in table), _TOKENS)
        self.count = len(table) * self.each
        self.table = torch.tensor(table, dtype=torch.int64).to(self.device, non_blocking=True)


def add_side_sums(total: Float[Tensor, "2 width"], weights: Float[Tensor, "2 token"], parts: Parts) -> None:
    """total += the rows of the parts, weighted by the tokens' weights of either side."""
    if parts.count:
        total += side_sums(weights, parts)


def side_sums(weights: Float[Tensor, "2 token"], parts: Parts) -> Float[Tensor, "2 width"]:
    """The rows of the parts, of which there are some, weighted by the tokens' weights of either side and summed."""
    partial = torch.empty(parts.count, 2, parts.width, dtype=torch.float32, device=parts.device)
    grid = (parts.count, triton.cdiv(parts.width, _SUM_WIDTH))
    _sum_kernel[grid](
        parts.table,
        weights.float().contiguous(),
        partial,
        weights.shape[1],
        parts.each,
        parts.width,
        _KINDS[parts.dtype],
        _TOKENS,
        _SUM_ROWS,
        _SUM_WIDTH,
    )
    return partial.sum(0, dtype=torch.float64)


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
        parts.each,
        parts.width,
        _KINDS[parts.dtype],
        _TOKENS,
        _ROWS,
        _WIDTH,
    )


@dataclass(frozen=True)
class Tokens:
    """What is known of each token before a solve: |A| (0 where it is not counted), the sign of A, and the factor of its row."""

    mass: Float[Tensor, " token"]
    side: Int[Tensor, " token"]
    factor: Float[Tensor, " token"] | None


def assign(
    tokens: Tokens,
    margins: Float[Tensor, " token"] | None = None,
    gamma: Float[Tensor, " 2"] | None = None,
) -> tuple[Float[Tensor, " token"] | None, Float[Tensor, "2 token"], Float[Tensor, "part 4"]]:
    """alpha (None before there are margins, where it is one), what either side's rows are weighted with, and of some tokens at a time
    both sides' masses and counts."""
    count = len(tokens.side)
    programs = triton.cdiv(count, _BLOCK)
    alpha = None if margins is None else torch.empty_like(margins)
    weights = torch.empty(2, count, dtype=torch.float32, device=tokens.side.device)
    partial = torch.empty(programs, 4, dtype=torch.float64, device=tokens.side.device)
    _assign_kernel[(programs,)](
        tokens.mass,
        tokens.side,
        tokens.mass if tokens.factor is None else tokens.factor,
        tokens.mass if margins is None else margins,
        tokens.mass if gamma is None else gamma,
        tokens.mass if alpha is None else alpha,
        weights,
        partial,
        count,
        tokens.factor is not None,
        margins is None,
        _BLOCK,
    )
    return alpha, weights, partial


@dataclass(frozen=True)
class Centroids:
    """mu+ and mu-, and what the margins need of them."""

    means: Float[Tensor, "2 width"]
    difference: Float[Tensor, " width"]
    """mu+ - mu-."""
    gap: Float[Tensor, " 1"]
    """||mu+ - mu-||."""
    offset: Float[Tensor, " 1"]
    """||mu+||^2 - ||mu-||^2."""


def centroids(
    sums: Float[Tensor, "2 width"],
    masses: Float[Tensor, "part 4"],
    floor: float,
    previous: Centroids | None,
) -> Centroids:
    """The sums over their masses, which `assign` gave in parts; a side without mass keeps its previous centroid."""
    width = sums.shape[1]
    difference = torch.empty(width, dtype=torch.float32, device=sums.device)
    gap, offset = sums.new_empty(2).split(1)
    made = Centroids(torch.empty_like(sums), difference, gap, offset)
    _centroid_kernel[(1,)](
        sums,
        masses,
        sums if previous is None else previous.means,
        made.means,
        difference,
        gap,
        offset,
        masses.shape[0],
        width,
        floor,
        previous is None,
        _BLOCK,
    )
    return made


def margins(
    parts: Parts, tokens: Tokens, against: Centroids
) -> tuple[Float[Tensor, " token"], Float[Tensor, "program 6"]]:
    """D of every token against the centroids; and of some tokens at a time what `moments_of` joins."""
    device = tokens.side.device
    values = torch.empty(len(tokens.side), dtype=torch.float64, device=device)
    grid = (parts.count, triton.cdiv(_TOKENS, _ROWS))
    moments = torch.empty(grid[0] * grid[1], 6, dtype=torch.float64, device=device)
    _margin_kernel[grid](
        parts.table,
        against.difference,
        against.offset,
        tokens.side,
        tokens.mass if tokens.factor is None else tokens.factor,
        values,
        moments,
        parts.each,
        parts.width,
        _KINDS[parts.dtype],
        _TOKENS,
        tokens.factor is not None,
        _ROWS,
        _WIDTH,
    )
    return values, moments


def moments_of(moments: Float[Tensor, "program 6"], floor: float) -> Float[Tensor, "4 2"]:
    """By side: the number of margins, their mean, their summed squared deviation and their standard deviation, at least `floor`."""
    joined = moments.new_empty(4, 2)
    _moments_kernel[(2,)](moments, joined, moments.shape[0], floor, _BLOCK)
    return joined
