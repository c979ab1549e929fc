"""Log-probs of tokens from the LM head's input, without the logits of all tokens at once.

A vocabulary of 150,000 makes a megabyte of logits out of two tokens. So logits are made chunk by chunk, and the backward pass makes
them again: d log p(y) / d logits = onehot(y) - p, and d H / d logits = -p (log p + H).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Of float32 logits held at once; the backward pass of a chunk takes about twice as much for a moment. Each chunk adds to the
# gradient of the whole head, so that few large ones are quicker where there is room.
_LOGIT_BYTES = {"cuda": 1 << 31}
_FEW_LOGIT_BYTES = 1 << 29


def token_logps(
    hidden: Float[Tensor, "run row width"],
    head: Float[Tensor, "run vocab width"],
    tokens: Int[Tensor, "run row"],
    temperature: float,
    *,
    mask: Bool[Tensor, "run row"] | None = None,
    entropy: bool = False,
) -> tuple[Float[Tensor, "run row"], Float[Tensor, "run row"] | None]:
    """Log-prob of each token and, if asked for, the entropy where it was predicted. Rows outside of `mask` may be left
    out, and are then 0."""
    rows = _rows_at_once(head)
    if mask is None or tokens.shape[1] <= rows:
        logps, entropies = _TokenLogps.apply(hidden, head, tokens, temperature, entropy, rows)
        return logps, entropies if entropy else None
    # The valid rows of every run first, as many as the run with the most of them has; the others have some padding at the end.
    order = torch.argsort(~mask, dim=-1, stable=True)[:, : int(mask.sum(-1).max())]
    chosen = hidden.gather(1, order[..., None].expand(-1, -1, hidden.shape[-1]))
    logps, entropies = _TokenLogps.apply(chosen, head, tokens.gather(1, order), temperature, entropy, rows)
    valid = mask.gather(1, order)
    zeros = torch.zeros(tokens.shape, dtype=torch.float32, device=tokens.device)

    def spread(values: Float[Tensor, "run chosen"]) -> Float[Tensor, "run row"]:
        return zeros.scatter(1, order, torch.where(valid, values, 0.0))

    return spread(logps), spread(entropies) if entropy else None


def head_logits(
    hidden: Float[Tensor, "run row width"], head: Float[Tensor, "run vocab width"]
) -> Float[Tensor, "run row vocab"]:
    """In float32, of a product in the dtype of the hidden states."""
    return torch.bmm(hidden, head.to(hidden.dtype).transpose(1, 2)).float()


def _rows_at_once(head: Float[Tensor, "run vocab width"]) -> int:
    """Rows of each run whose logits are made together."""
    held = _LOGIT_BYTES.get(head.device.type, _FEW_LOGIT_BYTES)
    return max(1, held // (4 * head.shape[0] * head.shape[1]))


class _TokenLogps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, tokens: Tensor, temperature: float, entropy: bool, rows: int
    ) -> tuple[Tensor, Tensor | None]:
        weight = head.to(hidden.dtype)
        normalizers, logps, entropies = [], [], []
        for chunk, chosen in zip(hidden.split(rows, 1), tokens.split(rows, 1), strict=True):
            logits = _scaled(head_logits(chunk, weight), temperature)
            normalizers.append(logits.logsumexp(dim=-1))
            logps.append(logits.gather(-1, chosen[..., None])[..., 0] - normalizers[-1])
            if entropy:
                # H = log Z - E[logit]
                expected = (logits - normalizers[-1][..., None]).exp_().mul_(logits).sum(dim=-1)
                entropies.append(normalizers[-1] - expected)
        of_entropy = torch.cat(entropies, dim=1) if entropy else None
        ctx.save_for_backward(hidden, head, tokens, torch.cat(normalizers, dim=1), of_entropy)
        ctx.temperature, ctx.rows = temperature, rows
        ctx.set_materialize_grads(False)
        return torch.cat(logps, dim=1), of_entropy

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, entropy_gradient: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        hidden, head, tokens, normalizers, entropies = ctx.saved_tensors
        if gradient is None:  # of the entropy alone
            gradient = torch.zeros_like(normalizers)
        weight = head.to(hidden.dtype)
        of_hidden, of_head = [], None
        parts = [part.split(ctx.rows, 1) for part in (hidden, tokens, normalizers, gradient)]
        for number, (chunk, chosen, normalizer, up) in enumerate(zip(*parts, strict=True)):
            logits = _scaled(head_logits(chunk, weight), ctx.temperature)
            of_each = -up[..., None]
            logits.sub_(normalizer[..., None])
            if entropy_gradient is not None:
                of_entropy, up_entropy = (part.split(ctx.rows, 1)[number] for part in (entropies, entropy_gradient))
                of_each = of_each - (logits + of_entropy[..., None]) * up_entropy[..., None]
            # Not in place: many gradients may come at once (vmap), and the probabilities are the same for all of them.
            slope = logits.exp_() * of_each
            slope.scatter_add_(-1, chosen[..., None], up[..., None])
            slope = _scaled(slope, ctx.temperature).to(hidden.dtype)
            of_hidden.append(torch.bmm(slope, weight))
            part = torch.bmm(chunk.transpose(1, 2), slope)
            of_head = part.to(head.dtype) if of_head is None else of_head.add_(part)
        assert of_head is not None
        return torch.cat(of_hidden, dim=1), of_head.transpose(1, 2), None, None, None, None


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    return logits if temperature == 1 else logits / temperature
