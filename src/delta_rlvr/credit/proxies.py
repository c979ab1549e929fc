"""What stands for a token's gradient (Appendix F), as linear operators over stored rows.

The estimator never sees a proxy vector. It asks few things of the batch's tokens: sums of v weighted by slot, inner products of v
with one vector a slot, squared lengths, second moments. Each proxy answers from the stored row x of a token:

    output row       v = (1 - p(y)) h                       x = h, and 1 - p as a factor, so that a bf16 store rounds nothing
    sharpness        v = (log p(y) + H) h                   x = h, and log p + H as a factor (see `row_factor`)
    top-K hidden     v = W_y - sum_topK p~_j W_j            x = v, formed when the row is added
    head             v = (e_y - p) (outer) h                x = h; |V| x d and never formed: <v, M> = (M h)_y - sum_j p_j (M h)_j
    full             v = grad log pi                        x = v, given by the caller (see `full_token_gradients`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from delta_rlvr.credit.linear import (
    add_square_sums,
    add_weighted_sums,
    merge,
    split,
    square_norms,
    store_inner_products,
)
from delta_rlvr.credit.reduce import wide

# Logits are formed for this many (token, vocabulary) pairs at a time.
_LOGITS_AT_A_TIME = 1 << 24


@dataclass(frozen=True)
class Rows:
    """The stored rows of a batch, and what a proxy has to know beside them."""

    chunks: Callable[[], Iterator[tuple[slice, Float[Tensor, "token width"]]]]
    """A pass over the rows that matter: places in the packed order, and the rows there."""
    dtype: torch.dtype
    factor: Float[Tensor, " token"] | None
    """What a row is multiplied by to be v; None for one."""
    tokens: Int[Tensor, " token"] | None
    """Sampled ids."""


class RowProxy:
    """v is a stored row times a number: output row, top-K hidden gradient, full gradient."""

    def shape(self, width: int) -> tuple[int, ...]:
        """The shape of one v."""
        return (width,)

    def sums(
        self,
        rows: Rows,
        weights: Float[Tensor, " token"],
        slots: Int[Tensor, " token"],
        total: Float[Tensor, "slot width"],
    ) -> None:
        """total += the sum of weight * v over the tokens of each slot."""
        if rows.factor is not None:
            weights = weights * rows.factor.to(weights.dtype)
        if len(total) == 2:
            # Two slots, the whole batch: the operand is made once, and a chunk costs one product.
            negative = slots.to(weights.dtype)
            spread = split(torch.stack([weights * (1 - negative), weights * negative]), rows.dtype)
            parts = total.new_zeros(len(spread), total.shape[1])
            for place, x in rows.chunks():
                add_weighted_sums(parts, spread[:, place], x)
            total += merge(parts, 2)
            return
        for place, x in rows.chunks():
            present, here = slots[place].unique(return_inverse=True)
            spread = weights.new_zeros(len(present), len(x))
            spread[here, torch.arange(len(x), device=x.device)] = weights[place]
            operand = split(spread, rows.dtype)
            parts = total.new_zeros(len(operand), total.shape[1])
            add_weighted_sums(parts, operand, x)
            total.index_add_(0, present, merge(parts, len(present)))

    def project(
        self, rows: Rows, vectors: Float[Tensor, "slot width"], slots: Int[Tensor, " token"]
    ) -> Float[Tensor, " token"]:
        """<v, the vector of the token's slot>; anything where no chunk was read."""
        if len(vectors) == 2:
            operand = split(vectors, rows.dtype)
            parts = vectors.new_zeros(len(slots), len(operand))
            for place, x in rows.chunks():
                store_inner_products(parts[place], x, operand)
            products = merge(parts.T, 2).gather(0, slots[None])[0]
        else:
            products = vectors.new_zeros(len(slots))
            for place, x in rows.chunks():
                present, here = slots[place].unique(return_inverse=True)
                operand = split(vectors[present], rows.dtype)
                parts = vectors.new_zeros(len(x), len(operand))
                store_inner_products(parts, x, operand)
                products[place] = merge(parts.T, len(present)).gather(0, here[None])[0]
        return products if rows.factor is None else products * rows.factor.to(products.dtype)

    def square_sums(
        self, rows: Rows, weights: Float[Tensor, " token"], total: Float[Tensor, "*shape"]
    ) -> None:
        """total += the sum of weight * v * v (entry by entry), or of weight * v (outer) v where `total` is square."""
        if rows.factor is not None:
            weights = weights * rows.factor.to(weights.dtype).square()
        for place, x in rows.chunks():
            add_square_sums(total, weights[place], x)

    def square_norms(self, rows: Rows, like: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        """||v||^2."""
        norms = torch.zeros_like(like)
        for place, x in rows.chunks():
            norms[place] = square_norms(x)
        return norms if rows.factor is None else norms * rows.factor.to(norms.dtype).square()


@dataclass(frozen=True)
class HeadProxy:
    """v is the exact gradient of the token's log-prob with respect to the LM head, (e_y - p) (outer) h."""

    head: Float[Tensor, "vocab width"]
    temperature: float

    def shape(self, width: int) -> tuple[int, ...]:
        return (len(self.head), width)

    def sums(
        self,
        rows: Rows,
        weights: Float[Tensor, " token"],
        slots: Int[Tensor, " token"],
        total: Float[Tensor, "slot vocab width"],
    ) -> None:
        for place, hidden, errors in self._pieces(rows):
            for slot in slots[place].unique().tolist():
                inside = slots[place] == slot
                total[slot].addmm_((errors[inside] * weights[place][inside, None]).T, hidden[inside])

    def project(
        self, rows: Rows, vectors: Float[Tensor, "slot vocab width"], slots: Int[Tensor, " token"]
    ) -> Float[Tensor, " token"]:
        products = vectors.new_zeros(len(slots))
        for place, hidden, errors in self._pieces(rows):
            for slot in slots[place].unique().tolist():
                inside = (slots[place] == slot).nonzero()[:, 0]
                products[place.start + inside] = (errors[inside] * (hidden[inside] @ vectors[slot].T)).sum(-1)
        return products

    def square_sums(
        self, rows: Rows, weights: Float[Tensor, " token"], total: Float[Tensor, "vocab width"]
    ) -> None:
        for place, hidden, errors in self._pieces(rows):
            total.addmm_((errors.square() * weights[place, None]).T, hidden.square())

    def square_norms(self, rows: Rows, like: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        norms = torch.zeros_like(like)
        for place, hidden, errors in self._pieces(rows):
            norms[place] = errors.square().sum(-1) * hidden.square().sum(-1)
        return norms

    def _pieces(self, rows: Rows) -> Iterator[tuple[slice, Tensor, Float[Tensor, "token vocab"]]]:
        """Places, hidden states (wide) and e_y - p, a few tokens at a time."""
        assert rows.tokens is not None
        for place, x in rows.chunks():
            for piece in _logit_pieces(len(x), len(self.head)):
                here = slice(place.start + piece.start, place.start + piece.stop)
                errors = -_logits(x[piece], self.head, self.temperature).softmax(-1)
                errors[torch.arange(len(errors), device=errors.device), rows.tokens[here]] += 1
                yield here, x[piece].to(errors.dtype), errors


def surprise(logps: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
    """1 - p from log p."""
    return -torch.expm1(logps.clamp(max=0))


def row_factor(
    proxy: str | None, logps: Float[Tensor, " token"] | None, entropy: Float[Tensor, " token"] | None
) -> Float[Tensor, " token"] | None:
    """What a stored hidden state is multiplied by to be v; None where the row is v already.

    "sharpness": let the logits be (1 + <a, h>) W h, that is, let an inverse temperature depend on the context. The gradient of
    log p(y) with respect to a, at a = 0, is (log p(y) + H) h: the head's gradient e_y - p seen along the policy's own log-probs.
    It names no vocabulary entry, so that what one prompt shows carries over to another.
    """
    if proxy == "output_row":
        assert logps is not None
        return surprise(logps)
    if proxy == "sharpness":
        assert logps is not None
        assert entropy is not None
        return logps.clamp(max=0) + entropy
    return None


def topk_hidden_rows(
    hidden: Float[Tensor, "token width"],
    head: Float[Tensor, "vocab width"],
    tokens: Int[Tensor, " token"],
    top_k: int,
    temperature: float,
) -> Float[Tensor, "token width"]:
    """W_y - sum over the top-K logits of p~_j W_j, with p~ the softmax renormalised over them (Appendix F)."""
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
    """grad_theta log pi of every token over all `parameters`, flattened: the yardstick of the proxies, for tiny models.

    `logps` must carry its graph. The result takes tokens x parameters x 4 bytes.
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
    """W h / temperature, wide. On an accelerator the product itself runs in the model's precision, like the engine's log-probs."""
    result = wide(hidden.device)
    work = result if hidden.device.type == "cpu" else torch.promote_types(hidden.dtype, head.dtype)
    return (hidden.to(work) @ head.to(work).T).to(result) / temperature


def _logit_pieces(token_count: int, vocab: int) -> list[slice]:
    step = max(1, _LOGITS_AT_A_TIME // vocab)
    return [slice(start, min(start + step, token_count)) for start in range(0, token_count, step)]
