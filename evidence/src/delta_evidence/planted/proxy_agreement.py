"""How well a proxy stands in for the full-parameter gradient, on a model small enough to have the latter."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.credit.diagnostics import rank_correlation
from delta_rlvr.credit.discriminator import side_summary, update_direction
from delta_rlvr.credit.record import CreditRecord
from delta_rlvr.credit.rules.delta import Delta
from delta_rlvr.credit.stream import credit_record


@dataclass(frozen=True)
class Agreement:
    """One proxy against the yardstick, on the tokens with an advantage."""

    margin_rank_correlation: float
    """Spearman's correlation of the final margins."""
    weight_rank_correlation: float
    """Spearman's correlation of the coefficients."""
    update_cosine: float
    """Cosine, in parameter space, between the updates sum lambda A grad log pi that the two coefficients give."""


def proxy_agreement(
    gradients: Float[Tensor, "token parameters"],
    hidden: Float[Tensor, "batch time width"],
    logps: Float[Tensor, "batch time"],
    advantages: Float[Tensor, " batch"],
    mask: Bool[Tensor, "batch time"],
    *,
    head: Float[Tensor, "vocab width"],
    tokens: Int[Tensor, "batch time"],
    temperature: float = 1.0,
    groups: Int[Tensor, " batch"] | None = None,
    rule: Delta = Delta(),  # noqa: B008 - frozen
    proxies: tuple[str, ...] = ("output_row", "topk_hidden", "head"),
) -> dict[str, Agreement]:
    """Each proxy's agreement with `gradients` [valid tokens, parameters], as `full_token_gradients` gives them."""
    if len(gradients) != int(mask.sum()):
        raise ValueError(f"gradients: {len(gradients)} rows, but the mask has {int(mask.sum())} valid tokens")
    full = torch.zeros(*mask.shape, gradients.shape[1], dtype=gradients.dtype, device=gradients.device)
    full[mask] = gradients

    def solve(proxy: str) -> CreditRecord:
        return credit_record(
            full if proxy == "full" else hidden,
            logps,
            advantages,
            mask,
            rule=replace(rule, proxy=proxy),  # type: ignore[arg-type]
            head=head,
            tokens=tokens,
            temperature=temperature,
            groups=groups,
        )

    yardstick = solve("full")
    token_advantages = advantages.repeat_interleave(yardstick.lengths)
    sided = yardstick.side != 0
    reference_update = update_direction(side_summary(gradients, token_advantages, yardstick.weights))
    report = {}
    for proxy in proxies:
        record = solve(proxy)
        update = update_direction(side_summary(gradients, token_advantages, record.weights))
        assert record.margin is not None
        assert yardstick.margin is not None
        report[proxy] = Agreement(
            margin_rank_correlation=rank_correlation(record.margin[sided], yardstick.margin[sided]),
            weight_rank_correlation=rank_correlation(record.weights[sided], yardstick.weights[sided]),
            update_cosine=torch.cosine_similarity(update, reference_update, dim=0).item(),
        )
    return report
