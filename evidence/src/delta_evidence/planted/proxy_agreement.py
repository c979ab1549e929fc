"""How well a proxy stands in for the full-parameter gradient, on a model small enough to have the latter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from delta_evidence.planted.updates import response_logps
from delta_evidence.rollouts import Rollouts
from delta_evidence.stack.policy import StackedPolicy
from delta_rlvr.credit import CreditRecord, Delta, credit_record, full_token_gradients
from delta_rlvr.credit.diagnostics import rank_correlation
from delta_rlvr.credit.discriminator import side_summary, update_direction


@dataclass(frozen=True)
class Agreement:
    """One proxy against the yardstick, on the tokens with an advantage."""

    margin_rank_correlation: float
    """Spearman's correlation of the final margins."""
    weight_rank_correlation: float
    """Spearman's correlation of the coefficients."""
    update_cosine: float
    """Cosine, in parameter space, between the updates sum lambda A grad log pi that the two coefficients give."""


def full_gradients(policy: StackedPolicy, rollouts: Rollouts) -> Float[Tensor, "token token"]:
    """The gradients of all parameters, of rollouts small enough to have them (they take tokens x parameters floats), with the same
    inner products in fewer dimensions."""
    parameters = list(policy.parameters())
    # Response by response: a token's gradient goes back through its own response alone.
    return same_inner_products(
        [
            full_token_gradients(
                response_logps(policy, rollouts, slice(row, row + 1))[rollouts.mask[row : row + 1]], parameters
            )
            for row in range(len(rollouts.mask))
        ]
    )


def same_inner_products(blocks: Sequence[Float[Tensor, "_ wide"]]) -> Float[Tensor, "token token"]:
    """Vectors (the rows of all blocks) in as many dimensions as there are of them, with the same inner products.

    Centroids, distances and cosines of weighted sums depend on inner products alone, so nothing is lost; full gradients of a few
    hundred tokens shrink a thousandfold.
    """
    # Block by block: side by side, the vectors would be in memory twice.
    gram = torch.cat([torch.cat([one @ other.T for other in blocks], dim=1) for one in blocks]).double()
    values, basis = torch.linalg.eigh(gram)
    return basis * values.clamp(min=0).sqrt()


def proxy_agreement(
    gradients: Float[Tensor, "token parameters"],
    rollouts: Rollouts,
    head: Float[Tensor, "vocab width"],
    rule: Delta,
    proxies: Sequence[str],
) -> dict[str, Agreement]:
    """Each proxy's agreement with the gradients of the valid tokens under the settings of a rule."""
    mask, advantages = rollouts.mask, rollouts.advantages
    full = torch.zeros(*mask.shape, gradients.shape[1], dtype=gradients.dtype, device=gradients.device)
    full[mask] = gradients

    def solve(proxy: str) -> CreditRecord:
        return credit_record(
            full if proxy == "full" else rollouts.hidden,
            rollouts.logps,
            advantages,
            mask,
            rule=replace(rule, proxy=proxy),  # type: ignore[arg-type]
            head=head,
            tokens=rollouts.completion_ids,
            temperature=rollouts.temperature,
            groups=rollouts.groups,
        )

    yardstick = solve("full")
    token_advantages = advantages.repeat_interleave(yardstick.lengths)
    sided = yardstick.side != 0

    def update(record: CreditRecord) -> Float[Tensor, " parameters"]:
        return update_direction(side_summary(gradients, token_advantages, record.weights))

    def agreement(record: CreditRecord) -> Agreement:
        assert record.margin is not None
        assert yardstick.margin is not None
        return Agreement(
            margin_rank_correlation=rank_correlation(record.margin[sided], yardstick.margin[sided]),
            weight_rank_correlation=rank_correlation(record.weights[sided], yardstick.weights[sided]),
            update_cosine=torch.cosine_similarity(update(record), update(yardstick), dim=0).item(),
        )

    return {proxy: agreement(solve(proxy)) for proxy in proxies}
