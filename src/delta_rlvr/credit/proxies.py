"""Proxies v of a token's gradient grad log pi (Appendix F): their definitions, their needs and what the store keeps for them.

    output_row    (1 - p) h                                 as published; h: the LM head's input, p: of the sampled token
    topk_hidden   W_y - sum over the top K of p~_j W_j      the paper's best; p~: the softmax over the K largest logits
    head          (e_y - p) (outer) h                       the exact gradient of the LM head
    full          grad log pi itself                        passed as `hidden`: the reference for the others, for tiny models
    scalar        1 - p                                     ours: one number, no hidden states
    centred_row   (1 - p) (h - mean h)                      ours
    sharpness     (log p + H) h                             ours

"sharpness" is the gradient of log p(y) with respect to a, at a = 0, if the logits are (1 + <a, h>) W h, that is, if the inverse
temperature depends on the context: (log p(y) + H) h, the head's gradient e_y - p projected onto the policy's log-probs. It does not
depend on vocabulary entries, so that it can generalise from prompt to prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.pieces import surprise
from delta_rlvr.credit.rule import HiddenStates
from delta_rlvr.credit.vectors import HeadVectors, Rows, RowVectors, TokenVectors, topk_hidden_rows

Proxy = Literal["output_row", "topk_hidden", "head", "full", "sharpness", "scalar", "centred_row"]

READS: dict[str, tuple[str, ...]] = {
    "output_row": ("hidden", "logps"),
    "centred_row": ("hidden", "logps"),
    "sharpness": ("hidden", "logps", "entropy"),
    "topk_hidden": ("hidden", "head", "tokens"),
    "head": ("hidden", "head", "tokens"),
    "full": ("gradients",),
    "scalar": ("logps",),
}
"""The needs of a rule with this proxy."""


@dataclass(frozen=True)
class TopKHiddenGradients(HiddenStates):
    """The store keeps W_y - sum_topK p~_j W_j, computed when a row is added."""

    top_k: int = 20

    def rows(
        self,
        hidden: Float[Tensor, "token width"],
        tokens: Int[Tensor, " token"] | None,
        head: Float[Tensor, "vocab width"] | None,
        temperature: float,
    ) -> Float[Tensor, "token width"]:
        assert tokens is not None
        assert head is not None
        return topk_hidden_rows(hidden, head, tokens, self.top_k, temperature)

    def __str__(self) -> str:
        return f"top-{self.top_k} hidden gradients"


@dataclass(frozen=True)
class FullGradients(HiddenStates):
    """The store keeps token gradients, which the caller passes as `hidden`."""

    def __str__(self) -> str:
        return "full gradients"


def stored(proxy: Proxy, top_k: int) -> HiddenStates | None:
    """Return what the store keeps of each token, or None if it keeps nothing."""
    if proxy == "scalar":
        return None
    if proxy == "topk_hidden":
        return TopKHiddenGradients(top_k)
    return FullGradients() if proxy == "full" else HiddenStates()


def vectors(proxy: Proxy, batch: TokenBatch) -> TokenVectors:
    """Return v of every token of the batch."""
    if proxy == "scalar":
        return RowVectors(Rows.at_hand(surprise(batch.logps)[:, None]))
    rows = Rows.stored(batch)
    if proxy == "head":
        return HeadVectors(rows, batch.head, batch.tokens, batch.temperature)
    if proxy in ("topk_hidden", "full"):
        return RowVectors(rows)
    if proxy == "sharpness":
        return RowVectors(rows, batch.logps.clamp(max=0) + batch.entropy)
    plain = RowVectors(rows, surprise(batch.logps))
    return plain.centred(batch) if proxy == "centred_row" else plain
