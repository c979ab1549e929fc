"""STARE (arXiv 2606.19236): while the entropy is below a target, the most surprising tokens of right responses count more.

    weight = `positive` on the `share` of tokens with A > 0 that have the largest -log p, `negative` on that of tokens with A < 0,
             1 elsewhere; all ones unless the batch's mean entropy is below the target.

The paper's variant O1 is `negative=1` (the default), C2 is `negative=0.9`.

Differences from the paper or the authors' code (github.com/hp-luo/STARE):
- The top share is that of the whole rollout batch and all ranks, as in the paper. The code takes it per micro-batch, so that its
  result depends on the packing.
- Log-probs and entropies are the old policy's (the code: the current policy's log-probs, which are equal in its recipe of one step per
  batch).
- All tokens that tie with the last one of the share are in it. (Many tokens tie only at p = 1, where they have no gradient.)
- The adaptive mode, which changes both weights from step to step, is left out: a rule has no state.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.rule import TokenRule, register, setting


@register(
    "stare",
    about="while entropy is low, the most surprising tokens of right responses count more",
    paper="arXiv 2606.19236",
)
@dataclass(frozen=True)
class SurprisalTail(TokenRule):
    """While the mean entropy is below a target, the most surprising tokens of each side get another weight."""

    share: float = setting(0.1, "(0, 1]")
    """The share of a side's tokens that count as the most surprising (P)."""
    positive: float = setting(1.1, "[0, inf)")
    """The weight of those with A > 0 (W; 1.05 for 14B and 32B models)."""
    negative: float = setting(1.0, "[0, inf)")
    """The weight of those with A < 0 (M; 0.9 in the variant C2)."""
    target_entropy: float = setting(0.3, "[0, inf]")
    """At this mean entropy (nats) and above, every weight is one; "inf" switches the target off."""

    needs = ("logps", "entropy")
    sees_slices = True

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        weights = batch.ones()
        closed = batch.total(batch.entropy) / batch.token_count >= self.target_entropy  # the gate
        for sign, weight in ((1, self.positive), (-1, self.negative)):
            mine = batch.side == sign
            everyone = batch.reducer.gather(batch.logps[mine])
            if closed or not len(everyone):
                continue
            # The code's ceil(P |T|), but without the rounding error of products like 0.1 * 70 = 7.000000000000001; at least one token.
            count = min(len(everyone), max(1, int(len(everyone) * self.share + 0.999999)))
            last = everyone.topk(count, largest=False).values[-1]
            weights = torch.where(mine & (batch.logps <= last), weight, weights)
        return weights
