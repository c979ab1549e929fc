"""The passes of a solve as Triton kernels: each reads every stored row, or every token, once.

Triton comes with torch's builds for NVIDIA GPUs; elsewhere `credit.linear` has the same products in plain torch. Products are computed
and summed in float32 over at most `_TOKENS` rows (or the width), partial sums in float64; per-token values are float64. Launch
overhead is most of a solve of a few milliseconds, so that each kernel does all the work between two sums over the batch.
"""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a build of torch without it
    triton = None  # type: ignore[assignment]

_TOKENS = 256
# The tiles (and warps) of sums over rows, of inner products and of sums over parts: the fastest of a dozen shapes on an H200.
_SUM_ROWS, _SUM_WIDTH, _SUM_WARPS = 2, 512, 2
_ROWS, _WIDTH = 32, 512
_MEAN_PARTS, _MEAN_WIDTH = 128, 32
_BLOCK = 1024
"""Tokens, columns or partial sums per program in kernels that read no rows."""


@functools.cache
def ready(device_type: str, dtype: torch.dtype) -> bool:
    """Return whether the kernels can run on a device with rows of a dtype."""
    return triton is not None and device_type == "cuda" and torch.version.hip is None and dtype in _KINDS


if triton is not None:
    # By default Triton compiles a kernel again where an integer is 1 or a multiple of 16. These integers change from batch to batch.
    # The width does not, and rows are read 16 bytes at a time only if it is such a multiple.
    _varying = functools.partial(triton.jit, do_not_specialize=("count", "each", "parts"))

    @triton.jit
    def _part(table, part, each, width, kind: tl.constexpr, tokens: tl.constexpr):
        """The address of a part's rows, the index of its first token, and its number of rows (0 or less if empty; see `Parts`)."""
        chunk = table + 4 * (part // each)
        start = (part % each) * tokens
        rows = tl.multiple_of(tl.load(chunk).to(tl.pointer_type(kind)), 16) + start.to(tl.int64) * width
        return rows, tl.load(chunk + 1) + start, tl.load(chunk + 2) - start

    @triton.jit
    def _tile(rows, place, there, columns, inside, width):
        """Some columns of some rows in float32, 0 outside of the array."""
        at = rows + place[:, None] * width + columns[None, :]
        return tl.load(at, there[:, None] & inside[None, :], other=0.0).to(tl.float32)

    @triton.jit
    def _store_sums(
        partial,
        part,
        rows,
        weights,
        count,
        first,
        held,
        width,
        tokens: tl.constexpr,
        block_n: tl.constexpr,
        block_d: tl.constexpr,
    ):
        """This program's columns of partial[part, side, :]."""
        columns = tl.program_id(1) * block_d + tl.arange(0, block_d)
        inside = columns < width
        # Tiles are added first, and the rows of the sum at the end: in the loop no thread waits for another.
        positive = tl.zeros((block_n, block_d), tl.float32)
        negative = tl.zeros((block_n, block_d), tl.float32)
        for start in range(0, tokens, block_n):
            place = (start + tl.arange(0, block_n)).to(tl.int64)
            there = place < held
            x = _tile(rows, place, there, columns, inside, width)
            positive += x * tl.load(weights + first + place, there, other=0.0)[:, None]
            negative += x * tl.load(weights + count + first + place, there, other=0.0)[:, None]
        out = partial + part.to(tl.int64) * 2 * width
        tl.store(out + columns, tl.sum(positive, 0), inside)
        tl.store(out + width + columns, tl.sum(negative, 0), inside)

    @_varying()
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
        total = tl.zeros((block_n, block_d), tl.float32)
        for start in range(0, width, block_d):
            columns = start + tl.arange(0, block_d)
            inside = columns < width
            x = _tile(rows, place, there, columns, inside, width)
            one = tl.load(vectors + columns, inside, other=0.0)
            other = tl.load(vectors + width + columns, inside, other=0.0)
            total += x * tl.where(negative[:, None], other[None, :], one[None, :])
        tl.store(products + first + place, tl.sum(total, 1), there)

    @triton.jit
    def _alpha(margins, gamma, place, there, sign):
        """alpha = sigmoid(margin / gamma) (Eq. 6), 0 where A = 0."""
        temperature = tl.where(sign < 0, tl.load(gamma + 1), tl.load(gamma))
        alpha = 1 / (1 + tl.exp(-tl.load(margins + place, there, other=0.0) / temperature))
        return tl.where(sign == 0, 0.0, alpha)

    @_varying()
    def _assign_kernel(margins, gamma, side, alphas, count, block: tl.constexpr):
        """alpha of every token."""
        place = tl.program_id(0) * block + tl.arange(0, block)
        there = place < count
        sign = tl.load(side + place, there, other=0)
        tl.store(alphas + place, _alpha(margins, gamma, place, there, sign), there)

    @_varying()
    def _side_sum_kernel(
        table,
        mass,
        side,
        factor,
        margins,
        gamma,
        weights,
        partial,
        masses,
        count,
        each,
        width,
        kind: tl.constexpr,
        tokens: tl.constexpr,
        first_pass: tl.constexpr,
        block_n: tl.constexpr,
        block_d: tl.constexpr,
    ):
        """partial[part, side, :] = sum over the part's tokens of that side of |A| alpha (1 in the first pass) * rows[token, :], and
        masses[side, part]: the sums of |A| alpha."""
        part = tl.program_id(0)
        rows, first, held = _part(table, part, each, width, kind, tokens)
        place = tl.arange(0, tokens).to(tl.int64)
        there = place < held
        sign = tl.load(side + first + place, there, other=0)
        weight = tl.load(mass + first + place, there, other=0.0)
        if not first_pass:
            weight = weight * _alpha(margins, gamma, first + place, there, sign)
        if tl.program_id(1) == 0:
            tl.store(masses + part, tl.sum(tl.where(sign > 0, weight, 0.0), 0))
            tl.store(masses + tl.num_programs(0) + part, tl.sum(tl.where(sign < 0, weight, 0.0), 0))
        weight = weight * tl.load(factor + first + place, there, other=0.0)
        # Every program of the part stores the same weights and reads its own.
        tl.store(weights + first + place, tl.where(sign > 0, weight, 0.0).to(tl.float32), there)
        tl.store(weights + count + first + place, tl.where(sign < 0, weight, 0.0).to(tl.float32), there)
        tl.debug_barrier()
        _store_sums(partial, part, rows, weights, count, first, held, width, tokens, block_n, block_d)

    @triton.jit
    def _last(ticket, programs):
        """Whether this program is the last to finish. It then sees what the others stored, and resets the ticket."""
        tl.debug_barrier()  # all threads store before one of them counts
        last = tl.atomic_add(ticket, 1) == programs - 1
        if last:
            tl.store(ticket, 0)
        return last

    @triton.jit
    def _total(values, count, block: tl.constexpr):
        """The sum of `count` values."""
        total = tl.zeros((block,), tl.float64)
        for start in range(0, count, block):
            number = start + tl.arange(0, block)
            total += tl.load(values + number, number < count, other=0.0)
        return tl.sum(total, 0)

    @_varying()
    def _centroid_kernel(
        ticket,
        partial,
        masses,
        previous,
        means,
        difference,
        norms,
        summary,
        parts,
        width,
        floor,
        first_pass: tl.constexpr,
        block_n: tl.constexpr,
        block_d: tl.constexpr,
        block: tl.constexpr,
    ):
        """The centroids mu (Eq. 3 and 7), mu+ - mu-, and a summary: both masses, ||mu+ - mu-|| and ||mu+||^2 - ||mu-||^2."""
        columns = tl.program_id(0) * block_d + tl.arange(0, block_d)
        inside = columns < width
        positive = tl.zeros((block_d,), tl.float64)
        negative = tl.zeros((block_d,), tl.float64)
        for start in range(0, parts, block_n):
            part = start + tl.arange(0, block_n)
            at = partial + part[:, None].to(tl.int64) * 2 * width + columns[None, :]
            here = (part < parts)[:, None] & inside[None, :]
            positive += tl.sum(tl.load(at, here, other=0.0).to(tl.float64), 0)
            negative += tl.sum(tl.load(at + width, here, other=0.0).to(tl.float64), 0)
        plus = _total(masses, parts, block)
        minus = _total(masses + parts, parts, block)
        positive = positive / tl.maximum(plus, floor)
        negative = negative / tl.maximum(minus, floor)
        if not first_pass:  # a side whose assignments are all 0 keeps its centroid
            positive = tl.where(plus > 0, positive, tl.load(previous + columns, inside, other=0.0))
            negative = tl.where(minus > 0, negative, tl.load(previous + width + columns, inside, other=0.0))
        apart = positive - negative
        tl.store(means + columns, positive, inside)
        tl.store(means + width + columns, negative, inside)
        tl.store(difference + columns, apart.to(tl.float32), inside)
        programs = tl.num_programs(0)
        own = norms + tl.program_id(0)
        tl.store(own, tl.sum(apart * apart, 0))  # 0 beyond the width
        tl.store(own + programs, tl.sum(apart * (positive + negative), 0))
        if _last(ticket, programs):
            tl.store(summary, plus)
            tl.store(summary + 1, minus)
            tl.store(summary + 2, tl.sqrt(_total(norms, programs, block)))
            tl.store(summary + 3, _total(norms + programs, programs, block))

    @_varying()
    def _margin_kernel(
        table,
        ticket,
        difference,
        summary,
        side,
        factor,
        margins,
        moments,
        joined,
        floor,
        each,
        width,
        kind: tl.constexpr,
        tokens: tl.constexpr,
        block_n: tl.constexpr,
        block_d: tl.constexpr,
        block: tl.constexpr,
    ):
        """D = +-(2 <v, mu+ - mu-> - (||mu+||^2 - ||mu-||^2)), 0 where A = 0; and for each side the number, mean, sum of squared
        deviations and standard deviation of D."""
        part = tl.program_id(0)
        rows, first, held = _part(table, part, each, width, kind, tokens)
        place = (tl.program_id(1) * block_n + tl.arange(0, block_n)).to(tl.int64)
        there = place < held
        products = tl.zeros((block_n, block_d), tl.float32)
        for start in range(0, width, block_d):
            columns = start + tl.arange(0, block_d)
            inside = columns < width
            x = _tile(rows, place, there, columns, inside, width)
            products += x * tl.load(difference + columns, inside, other=0.0)[None, :]
        along = tl.sum(products, 1).to(tl.float64) * tl.load(factor + first + place, there, other=0.0)
        sign = tl.load(side + first + place, there, other=0)
        margin = sign.to(tl.float64) * (2 * along - tl.load(summary + 3))
        tl.store(margins + first + place, margin, there)
        programs = tl.num_programs(0) * tl.num_programs(1)
        own = moments + part * tl.num_programs(1) + tl.program_id(1)
        for number in tl.static_range(2):
            here = sign == 1 - 2 * number
            count = tl.sum(here.to(tl.float64), 0)
            mean = tl.sum(tl.where(here, margin, 0.0), 0) / tl.maximum(count, 1.0)
            deviation = tl.where(here, margin - mean, 0.0)
            tl.store(own + 3 * number * programs, count)
            tl.store(own + (3 * number + 1) * programs, mean)
            tl.store(own + (3 * number + 2) * programs, tl.sum(deviation * deviation, 0))
        if _last(ticket, programs):
            for number in tl.static_range(2):
                _join_moments(moments + 3 * number * programs, joined + number, programs, floor, block)

    @triton.jit
    def _join_moments(moments, joined, programs, floor, block: tl.constexpr):
        """The count, mean and sum of squared deviations over all programs (Chan's formula), and the standard deviation."""
        count = tl.zeros((block,), tl.float64)
        mean = tl.zeros((block,), tl.float64)
        squares = tl.zeros((block,), tl.float64)
        for start in range(0, programs, block):
            number = start + tl.arange(0, block)
            here = number < programs
            more = tl.load(moments + number, here, other=0.0)
            apart = tl.load(moments + programs + number, here, other=0.0) - mean
            share = more / tl.maximum(count + more, 1.0)
            squares += tl.load(moments + 2 * programs + number, here, other=0.0) + count * share * apart * apart
            mean += share * apart
            count += more
        counted = tl.sum(count, 0)
        middle = tl.sum(count * mean, 0) / tl.maximum(counted, 1.0)
        square = tl.sum(squares + count * (mean - middle) * (mean - middle), 0)
        tl.store(joined, counted)
        tl.store(joined + 2, middle)
        tl.store(joined + 4, square)
        tl.store(joined + 6, tl.maximum(tl.sqrt(square / tl.maximum(counted, 1.0)), floor))

    _KINDS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


def _aligned(rows: Float[Tensor, "token width"]) -> Float[Tensor, "token width"]:
    """Return contiguous rows whose address is a multiple of 16 bytes."""
    rows = rows.contiguous()
    return rows.clone() if rows.data_ptr() % 16 else rows


def _cdiv(count: int, by: int) -> int:
    """Return count / by, rounded up (triton.cdiv is slow on the host)."""
    return -(-count // by)


class Parts:
    """Rows of several tensors (chunks), cut into parts of `_TOKENS` rows, so that one launch reads all of them.

    Every chunk has as many parts as the longest one needs (`each`); the last parts of shorter chunks are short or empty.
    """

    def __init__(self, chunks: Sequence[tuple[int, Float[Tensor, "token width"]]]):
        """`chunks`: at least one, each with the index of its first token and its rows."""
        self.rows = [_aligned(rows) for _, rows in chunks]  # kept alive: the table has their addresses
        self.width, self.dtype, self.device = self.rows[0].shape[1], self.rows[0].dtype, self.rows[0].device
        table = [(rows.data_ptr(), first, rows.shape[0], 0) for (first, _), rows in zip(chunks, self.rows, strict=True)]
        self.each = _cdiv(max(count for _, _, count, _ in table), _TOKENS)
        self.count = len(table) * self.each
        # The ticket, which counts finished programs (see `_last`), comes after the table, so that one copy brings both to the device.
        # Four numbers per row align it to 16 bytes: else Triton would compile kernels for odd and for even numbers of chunks.
        self.table = torch.tensor([*table, (0, 0, 0, 0)], dtype=torch.int64).to(self.device, non_blocking=True)
        self.ticket = self.table[-1]

    @property
    def sizes(self) -> tuple[Any, ...]:
        """The arguments `each`, `width`, `kind` and `tokens` of every kernel that reads rows."""
        return self.each, self.width, _KINDS[self.dtype], _TOKENS


@dataclass(frozen=True)
class Tokens:
    """The inputs of a solve for each token: |A| (0 if it is not counted), the sign of A, and the factor of its row."""

    mass: Float[Tensor, " token"]
    side: Int[Tensor, " token"]
    factor: Float[Tensor, " token"]


def add_side_sums(
    total: Float[Tensor, "2 width"], weights: Float[Tensor, " token"], slots: Int[Tensor, " token"], parts: Parts
) -> None:
    """Add the weighted sum of each slot's rows to `total`; slots are 0 and 1."""
    if parts.count:
        tokens = Tokens(weights, (1 - 2 * slots).to(torch.int8), torch.ones_like(weights))
        total += weighted_sums(parts, tokens)[0].sum(0, dtype=torch.float64)


def store_side_products(
    products: Float[Tensor, " token"], parts: Parts, vectors: Float[Tensor, "2 width"], slots: Int[Tensor, " token"]
) -> None:
    """Store <row, the vector of its slot> in `products` for the tokens of the parts, in float32; slots are 0 and 1."""
    if not parts.count:
        return
    grid = (parts.count, _cdiv(_TOKENS, _ROWS))
    _project_kernel[grid](
        parts.table, vectors.float().contiguous(), slots.contiguous(), products, *parts.sizes, _ROWS, _WIDTH
    )


@dataclass(frozen=True)
class Centroids:
    """mu+ and mu-, and the numbers that margins need."""

    means: Float[Tensor, "2 width"]
    difference: Float[Tensor, " width"]
    """mu+ - mu-."""
    summary: Float[Tensor, " 4"]
    """Both masses, ||mu+ - mu-|| and ||mu+||^2 - ||mu-||^2."""


def weighted_sums(
    parts: Parts,
    tokens: Tokens,
    margins: Float[Tensor, " token"] | None = None,
    gamma: Float[Tensor, " 2"] | None = None,
) -> tuple[Float[Tensor, "part 2 width"], Float[Tensor, "2 part"]]:
    """Return for each part and side the sum of the rows, weighted by |A| alpha, and the sum of these weights.

    Without margins alpha is one.
    """
    count = tokens.side.shape[0]
    weights = torch.empty(2, count, dtype=torch.float32, device=parts.device)
    partial = torch.empty(parts.count, 2, parts.width, dtype=torch.float32, device=parts.device)
    masses = torch.empty(2, parts.count, dtype=torch.float64, device=parts.device)
    _side_sum_kernel[(parts.count, _cdiv(parts.width, _SUM_WIDTH))](
        parts.table,
        tokens.mass,
        tokens.side,
        tokens.factor,
        tokens.mass if margins is None else margins,
        tokens.mass if gamma is None else gamma,
        weights,
        partial,
        masses,
        count,
        *parts.sizes,
        margins is None,
        _SUM_ROWS,
        _SUM_WIDTH,
        num_warps=_SUM_WARPS,
    )
    return partial, masses


def centroids(
    parts: Parts,
    partial: Float[Tensor, "part 2 width"],
    masses: Float[Tensor, "2 part"],
    floor: float,
    previous: Centroids | None,
) -> Centroids:
    """Return the centroids: sums over masses, both given per part. A side without mass keeps its previous centroid."""
    programs = _cdiv(parts.width, _MEAN_WIDTH)
    made = Centroids(
        torch.empty(2, parts.width, dtype=torch.float64, device=parts.device),
        torch.empty(parts.width, dtype=torch.float32, device=parts.device),
        masses.new_empty(4),
    )
    _centroid_kernel[(programs,)](
        parts.ticket,
        partial,
        masses,
        made.means if previous is None else previous.means,
        made.means,
        made.difference,
        masses.new_empty(2, programs),
        made.summary,
        masses.shape[1],
        parts.width,
        floor,
        previous is None,
        _MEAN_PARTS,
        _MEAN_WIDTH,
        _BLOCK,
    )
    return made


def margins(
    parts: Parts, tokens: Tokens, against: Centroids, floor: float
) -> tuple[Float[Tensor, " token"], Float[Tensor, "4 2"]]:
    """Return D of every token, and for each side the number, mean, sum of squared deviations and standard deviation (at least `floor`)
    of D."""
    grid = (parts.count, _cdiv(_TOKENS, _ROWS))
    values = torch.empty_like(tokens.mass)
    moments = values.new_empty(6, grid[0] * grid[1])
    joined = values.new_empty(4, 2)
    _margin_kernel[grid](
        parts.table,
        parts.ticket,
        against.difference,
        against.summary,
        tokens.side,
        tokens.factor,
        values,
        moments,
        joined,
        floor,
        *parts.sizes,
        _ROWS,
        _WIDTH,
        _BLOCK,
    )
    return values, joined


def assign(tokens: Tokens, margins: Float[Tensor, " token"], gamma: Float[Tensor, " 2"]) -> Float[Tensor, " token"]:
    """alpha of every token."""
    count = margins.shape[0]
    alpha = torch.empty_like(margins)
    _assign_kernel[(_cdiv(count, _BLOCK),)](margins, gamma, tokens.side, alpha, count, _BLOCK)
    return alpha


@functools.cache
def warm_up(width: int, dtype: torch.dtype, device: torch.device, *, ranks: bool) -> None:
    """Compile every kernel for rows of this width and dtype, so that no solve has to; this takes seconds, once on a machine.

    `ranks`: there are several, whose sums are added between the kernels. Where no kernel can run, this does nothing.
    """
    if not ready(device.type, dtype):
        return
    rows = torch.ones(2, width, dtype=dtype, device=device)
    ones = torch.ones(2, dtype=torch.float64, device=device)
    parts, tokens = (Parts([(0, rows)]), Tokens(ones, torch.tensor([1, -1], dtype=torch.int8, device=device), ones))
    made: Centroids | None = None
    values: Tensor | None = None
    gamma: Tensor | None = None
    for _ in range(2):
        partial, masses = weighted_sums(parts, tokens, values, gamma)
        if ranks:
            partial, masses = partial.sum(0, dtype=torch.float64)[None], masses.sum(1)[:, None]
        made = centroids(parts, partial, masses, 1e-12, made)
        values, moments = margins(parts, tokens, made, 1e-8)
        gamma = moments[3]
        assign(tokens, values, gamma)
        # These two serve spilled rows and other rules than DelTA.
        slots = torch.tensor([0, 1], device=device)
        add_side_sums(made.means, ones, slots, parts)
        store_side_products(values.float(), parts, made.means, slots)
