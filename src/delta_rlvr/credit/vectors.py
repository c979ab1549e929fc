"""The proxies v of the tokens' gradients (Appendix F) as linear operators over stored rows.

The estimator never needs a single v, only weighted sums of v by slot, inner products of v with one vector per slot, and squared
lengths. These are computed from the stored row x of each token:

    RowVectors    v = f (x - m), with a number f (1 - p is not rounded to the store's dtype that way) and m nothing or the mean row
                  of the batch
    HeadVectors   v = (e_y - p) (outer) x: |V| x d and never formed, <v, M> = (M x)_y - sum_j p_j (M x)_j
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.credit import kernels
from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.linear import add_weighted_sums, merge, split, square_norms, store_inner_products
from delta_rlvr.credit.reduce import wide
from delta_rlvr.credit.slots import Slots

# The number of logits that are computed at a time.
_LOGITS_AT_A_TIME = 1 << 24

Chunks: TypeAlias = Iterator[tuple[slice, Float[Tensor, "token width"]]]
"""A pass over rows: their places in the packed order, and the rows."""


@dataclass(frozen=True)
class Rows:
    """Rows that are read in passes: those of a store, or those of one tensor."""

    read: Callable[[list[bool] | None], Chunks]
    """A pass over the wanted chunks (None: all of them)."""
    bounds: list[tuple[int, int]]
    """(start, stop) of each chunk."""
    width: int
    dtype: torch.dtype
    device: torch.device | None
    """The device on which the rows are read; None if there are no rows."""
    held: list[tuple[int, Float[Tensor, "_ width"]]] | None
    """The index of the first token and the rows of each chunk, if all of them are on the device; else None."""

    @classmethod
    def stored(cls, batch: TokenBatch) -> Rows:
        """Return the rows of the batch's store."""
        store = batch.store

        # A rank without tokens does not know the width.
        width = batch.reducer.maximum(store.width or 0)
        return cls(store.chunks, store.bounds, width, store.dtype or torch.float32, store.device, store.held)

    @classmethod
    def at_hand(cls, rows: Float[Tensor, "token width"]) -> Rows:
        """Return the rows of one tensor."""
        whole = slice(0, len(rows))
        return cls(
            lambda _: iter([(whole, rows)] if len(rows) else []),  # a rank may have no tokens
            [(0, len(rows))],
            rows.shape[1],
            rows.dtype,
            rows.device,
            [(0, rows)],
        )

    def holding(self, active: Bool[Tensor, " token"]) -> list[bool]:
        """Return whether each chunk has an active token."""
        counts = torch.cat([active.new_zeros(1, dtype=torch.int64), active.cumsum(0)])
        bounds = torch.tensor(self.bounds, dtype=torch.int64, device=counts.device).view(-1, 2)
        return (counts[bounds[:, 1]] > counts[bounds[:, 0]]).tolist()


@dataclass(frozen=True)
class RowVectors:
    """v is a number times a row, or times the difference of a row and the mean row."""

    rows: Rows
    factor: Float[Tensor, " token"] | None = None
    """The number f; None for one."""
    wanted: list[bool] | None = None
    """The chunks to read; None for all."""
    mean: Float[Tensor, " width"] | None = None
    """The mean row m; None for nothing."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one v."""
        return (self.rows.width,)

    def centred(self, batch: TokenBatch) -> RowVectors:
        """Return the vectors with the mean row of all valid tokens, over all ranks, subtracted."""
        ones = batch.ones()
        total = ones.new_zeros(2, *self.shape)
        self._add(ones, Slots(torch.zeros_like(batch.row), 2), total)
        return replace(self, mean=batch.reducer.sum(total)[0] / batch.token_count)

    def within(self, active: Bool[Tensor, " token"]) -> RowVectors:
        """Return vectors that read only the chunks with active tokens; results for other tokens mean nothing."""
        # The kernels read all rows on the device faster than they could find out which are wanted.
        if self.resident is not None:
            return self
        return replace(self, wanted=self.rows.holding(active))

    @property
    def _fused(self) -> bool:
        return self.rows.device is not None and kernels.ready(self.rows.device.type, self.rows.dtype)

    def _parts(self) -> Iterator[kernels.Parts]:
        """Yield all rows at once if they are on the device, else chunk by chunk."""
        if self.resident is not None:
            yield self.resident
            return
        for place, x in self.rows.read(self.wanted):
            yield kernels.Parts([(place.start, x)])

    @cached_property
    def resident(self) -> kernels.Parts | None:
        """All rows for the kernels; None without rows or kernels, or if not all rows are on the device."""
        if self.rows.held is None or not self._fused:
            return None
        chunks = [(first, x) for first, x in self.rows.held if x.shape[0]]
        return kernels.Parts(chunks) if chunks else None

    def sums(self, weights: Float[Tensor, " token"], slots: Slots, total: Float[Tensor, "slot width"]) -> None:
        """Add the sum of weight * v over the tokens of each slot to `total`."""
        weights = self._scaled(weights)
        self._add(weights, slots, total)
        if self.mean is not None:
            total -= slots.sums(weights)[:, None] * self.mean

    def _add(self, weights: Float[Tensor, " token"], slots: Slots, total: Float[Tensor, "slot width"]) -> None:
        """Add the sum of weight * row over the tokens of each slot to `total`."""
        if slots.count == 2 and self._fused:
            for read in self._parts():
                kernels.add_side_sums(total, weights, slots.of, read)
            return
        if slots.count == 2:
            # Two slots for the whole batch: the operand is made once, and each chunk takes one product.
            sides = torch.stack([weights * side for side in slots.sides])
            spread = split(sides, self.rows.dtype)
            parts = total.new_zeros(len(spread), total.shape[1])
            for place, x in self.rows.read(self.wanted):
                add_weighted_sums(parts, spread[:, place], x)
            total += merge(parts, 2)
            return
        for place, x in self.rows.read(self.wanted):
            present, here = slots.of[place].unique(return_inverse=True)
            spread = weights.new_zeros(len(present), len(x))
            spread[here, torch.arange(len(x), device=x.device)] = weights[place]
            operand = split(spread, self.rows.dtype)
            parts = total.new_zeros(len(operand), total.shape[1])
            add_weighted_sums(parts, operand, x)
            total.index_add_(0, present, merge(parts, len(present)))

    def project(self, vectors: Float[Tensor, "slot width"], slots: Slots) -> Float[Tensor, " token"]:
        """Return <v, the vector of its slot> of each token."""
        products = self._scaled(self._products(vectors, slots))
        if self.mean is None:
            return products
        return products - self._scaled((vectors @ self.mean)[slots.of])

    def _products(self, vectors: Float[Tensor, "slot width"], slots: Slots) -> Float[Tensor, " token"]:
        """Return <row, the vector of its slot> of each token."""
        slot = slots.of
        if slots.count == 2 and self._fused:
            products = torch.zeros(len(slot), dtype=torch.float32, device=slot.device)
            for read in self._parts():
                kernels.store_side_products(products, read, vectors, slot)
            products = products.to(vectors.dtype)
        elif slots.count == 2:
            operand = split(vectors, self.rows.dtype)
            parts = vectors.new_zeros(len(slot), len(operand))
            for place, x in self.rows.read(self.wanted):
                store_inner_products(parts[place], x, operand)
            products = merge(parts.T, 2).gather(0, slot[None])[0]
        else:
            products = vectors.new_zeros(len(slot))
            for place, x in self.rows.read(self.wanted):
                present, here = slot[place].unique(return_inverse=True)
                operand = split(vectors[present], self.rows.dtype)
                parts = vectors.new_zeros(len(x), len(operand))
                store_inner_products(parts, x, operand)
                products[place] = merge(parts.T, len(present)).gather(0, here[None])[0]
        return products

    def square_norms(self, like: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        """Return ||v||^2 of each token."""
        norms = torch.zeros_like(like)
        for place, x in self.rows.read(self.wanted):
            norms[place] = square_norms(x)
        if self.factor is not None:
            norms = norms * self.factor.to(norms.dtype).square()
        if self.mean is None:
            return norms
        first = Slots(torch.zeros_like(like, dtype=torch.int64), 2)
        along = self._scaled(self._products(self.mean.expand(2, -1).contiguous(), first))
        length = torch.full_like(like, float(self.mean @ self.mean))
        return norms - 2 * self._scaled(along) + self._scaled(self._scaled(length))

    def _scaled(self, values: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        return values if self.factor is None else values * self.factor.to(values.dtype)


@dataclass(frozen=True)
class HeadVectors:
    """v is the exact gradient of the token's log-prob with respect to the LM head, (e_y - p) (outer) h."""

    rows: Rows
    head: Float[Tensor, "vocab width"]
    tokens: Int[Tensor, " token"]
    temperature: float
    wanted: list[bool] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.head), self.rows.width)

    def within(self, active: Bool[Tensor, " token"]) -> HeadVectors:
        return replace(self, wanted=self.rows.holding(active))

    def sums(self, weights: Float[Tensor, " token"], slots: Slots, total: Float[Tensor, "slot vocab width"]) -> None:
        for place, hidden, errors in self.pieces():
            here = slots.of[place]
            for slot in here.unique().tolist():
                inside = here == slot
                total[slot].addmm_((errors[inside] * weights[place][inside, None]).T, hidden[inside])

    def project(self, vectors: Float[Tensor, "slot vocab width"], slots: Slots) -> Float[Tensor, " token"]:
        products = vectors.new_zeros(len(slots.of))
        for place, hidden, errors in self.pieces():
            here = slots.of[place]
            for slot in here.unique().tolist():
                inside = (here == slot).nonzero()[:, 0]
                products[place.start + inside] = (errors[inside] * (hidden[inside] @ vectors[slot].T)).sum(-1)
        return products

    def square_norms(self, like: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        norms = torch.zeros_like(like)
        for place, hidden, errors in self.pieces():
            norms[place] = errors.square().sum(-1) * hidden.square().sum(-1)
        return norms

    def pieces(self) -> Iterator[tuple[slice, Tensor, Float[Tensor, "token vocab"]]]:
        """Yield places, hidden states (in the dtype `wide`) and e_y - p, a few tokens at a time."""
        for place, x in self.rows.read(self.wanted):
            for piece in _logit_pieces(len(x), len(self.head)):
                here = slice(place.start + piece.start, place.start + piece.stop)
                errors = -_logits(x[piece], self.head, self.temperature).softmax(-1)
                errors[torch.arange(len(errors), device=errors.device), self.tokens[here]] += 1
                yield here, x[piece].to(errors.dtype), errors


TokenVectors: TypeAlias = RowVectors | HeadVectors
"""v of every token of a batch."""


def topk_hidden_rows(
    hidden: Float[Tensor, "token width"],
    head: Float[Tensor, "vocab width"],
    tokens: Int[Tensor, " token"],
    top_k: int,
    temperature: float,
) -> Float[Tensor, "token width"]:
    """Return W_y - sum over the top-K logits of p~_j W_j, with p~ the softmax over these logits (Appendix F)."""
    top_k = min(top_k, len(head))
    rows = torch.empty_like(hidden)
    for piece in _logit_pieces(len(hidden), len(head)):
        top, ids = _logits(hidden[piece], head, temperature).topk(top_k, dim=-1)
        expected = torch.einsum("nk,nkd->nd", top.softmax(-1), head[ids].to(top.dtype))
        rows[piece] = (head[tokens[piece]].to(top.dtype) - expected).to(rows.dtype)
    return rows


def full_token_gradients(
    logps: Float[Tensor, " token"], parameters: Sequence[Tensor], *, batch: int = 32
) -> Float[Tensor, "token width"]:
    """Return grad_theta log pi of every token over all `parameters`, flattened: the reference for proxies, for tiny models.

    `logps` must have its autograd graph. The result takes tokens x parameters x 4 bytes.
    """
    if not logps.requires_grad:
        raise ValueError("logps: no gradient is attached; compute it with autograd on and without detaching")
    rows = []
    for start in range(0, len(logps), batch):
        picks = torch.eye(len(logps), dtype=logps.dtype, device=logps.device)[start : start + batch]
        gradients = torch.autograd.grad(
            logps,
            parameters,
            picks,
            retain_graph=True,
            is_grads_batched=True,
            allow_unused=True,
            materialize_grads=True,
        )
        rows.append(torch.cat([gradient.flatten(1) for gradient in gradients], dim=1))
    return torch.cat(rows)


def _logits(hidden: Tensor, head: Tensor, temperature: float) -> Float[Tensor, "token vocab"]:
    """Return W h / temperature in the dtype `wide`. On an accelerator the product runs in the model's dtype, as in the engine."""
    result = wide(hidden.device)
    work = result if hidden.device.type == "cpu" else torch.promote_types(hidden.dtype, head.dtype)
    return (hidden.to(work) @ head.to(work).T).to(result) / temperature


def _logit_pieces(token_count: int, vocab: int) -> list[slice]:
    step = max(1, _LOGITS_AT_A_TIME // vocab)
    return [slice(start, min(start + step, token_count)) for start in range(0, token_count, step)]
