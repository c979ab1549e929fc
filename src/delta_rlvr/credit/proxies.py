"""What stands for a token's gradient (Appendix F), as linear operators over stored rows.

The estimator never sees a proxy vector. It asks three things of the tokens of a chunk: sums of v weighted by slot, inner products of v
with one vector a slot, and squared lengths. Each proxy answers from the stored row x of a token:

    output row       v = (1 - p(y)) h                       x = h, and 1 - p as a factor, so that a bf16 store rounds nothing
    top-K hidden     v = W_y - sum_topK p~_j W_j            x = v, formed when the row is added
    head             v = (e_y - p) (outer) h                x = h; |V| x d and never formed: <v, M> = (M h)_y - sum_j p_j (M h)_j
    full             v = grad log pi                        x = v, given by the caller (see `full_token_gradients`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from delta_rlvr.credit.linear import inner_products, square_norms, weighted_sums
from delta_rlvr.credit.reduce import wide

# Logits are formed for this many (token, vocabulary) pairs at a time.
_LOGITS_AT_A_TIME = 1 << 24


@dataclass(frozen=True)
class Chunk:
    """Some tokens of the batch, as the store gives them back."""

    rows: Float[Tensor, "token width"]
    factor: Float[Tensor, " token"] | None
    """What a row is multiplied by to be v; None for one."""
    tokens: Int[Tensor, " token"] | None
    """Sampled ids."""


class RowProxy:
    """v is a stored row times a number: output row, top-K hidden gradient, full gradient."""

    def shape(self, width: int) -> tuple[int, ...]:
        """The shape of one v, flattened by nobody."""
        return (width,)

    def sums(
        self, chunk: Chunk, weights: Float[Tensor, " token"], slots: Int[Tensor, " token"], slot_count: int
    ) -> Float[Tensor, "slot ..."]:
        """Sum of weight * v over the tokens of each slot."""
        if chunk.factor is not None:
            weights = weights * chunk.factor.to(weights.dtype)
        spread = weights.new_zeros(slot_count, len(weights))
        spread[slots, torch.arange(len(weights), device=weights.device)] = weights
        return weighted_sums(spread, chunk.rows)

    def project(
        self, chunk: Chunk, vectors: Float[Tensor, "slot ..."], slots: Int[Tensor, " token"]
    ) -> Float[Tensor, " token"]:
        """<v, the vector of the token's slot>."""
        products = inner_products(chunk.rows, vectors).gather(1, slots[:, None])[:, 0]
        return products if chunk.factor is None else products * chunk.factor.to(products.dtype)

    def square_norms(self, chunk: Chunk) -> Float[Tensor, " token"]:
        """||v||^2."""
        norms = square_norms(chunk.rows)
        return norms if chunk.factor is None else norms * chunk.factor.to(norms.dtype).square()


@dataclass(frozen=True)
class HeadProxy:
    """v is the exact gradient of the token's log-prob with respect to the LM head, (e_y - p) (outer) h."""

    head: Float[Tensor, "vocab width"]
    temperature: float

    def shape(self, width: int) -> tuple[int, ...]:
        return (len(self.head), width)

    def sums(
        self, chunk: Chunk, weights: Float[Tensor, " token"], slots: Int[Tensor, " token"], slot_count: int
    ) -> Float[Tensor, "slot vocab width"]:
        hidden_size = chunk.rows.shape[1]
        total = weights.new_zeros(slot_count, len(self.head), hidden_size)
        for piece in self._pieces(chunk):
            errors = self._errors(chunk, piece)
            rows = chunk.rows[piece].to(errors.dtype)
            for slot in slots[piece].unique().tolist():
                inside = slots[piece] == slot
                total[slot] += (errors[inside] * weights[piece][inside, None]).T @ rows[inside]
        return total

    def project(
        self, chunk: Chunk, vectors: Float[Tensor, "slot vocab width"], slots: Int[Tensor, " token"]
    ) -> Float[Tensor, " token"]:
        products = vectors.new_zeros(len(slots))
        for piece in self._pieces(chunk):
            errors = self._errors(chunk, piece)
            rows = chunk.rows[piece].to(errors.dtype)
            for slot in slots[piece].unique().tolist():
                inside = (slots[piece] == slot).nonzero()[:, 0]
                products[piece.start + inside] = (errors[inside] * (rows[inside] @ vectors[slot].T)).sum(-1)
        return products

    def square_norms(self, chunk: Chunk) -> Float[Tensor, " token"]:
        errors = torch.cat([self._errors(chunk, piece).square().sum(-1) for piece in self._pieces(chunk)])
        return errors * square_norms(chunk.rows)

    def _errors(self, chunk: Chunk, piece: slice) -> Float[Tensor, "token vocab"]:
        """e_y - p."""
        assert chunk.tokens is not None
        errors = -_logits(chunk.rows[piece], self.head, self.temperature).softmax(-1)
        errors[torch.arange(len(errors), device=errors.device), chunk.tokens[piece]] += 1
        return errors

    def _pieces(self, chunk: Chunk) -> list[slice]:
        return _logit_pieces(len(chunk.rows), len(self.head))


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
