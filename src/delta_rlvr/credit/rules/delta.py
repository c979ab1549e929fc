"""DelTA (Eq. 5-8): a token counts by how well its gradient tells its own side of the batch from the other.

    D     = ||v - mu_opp||^2 - ||v - mu_own||^2        v: the token's gradient, or a proxy for it (`credit.proxies`)
    alpha = sigmoid(D / gamma)                          centroids mu and temperatures gamma: `credit.solver`
    weight = (lambda_min + (lambda_max - lambda_min) alpha) N / Z, lambda_min where A = 0, so that the mean is one

The ablations of the paper's tables stand in `ablations.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit import proxies
from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.diagnostics import rank_correlation
from delta_rlvr.credit.draws import uniform_draws
from delta_rlvr.credit.estimator import estimate
from delta_rlvr.credit.pieces import mean_one
from delta_rlvr.credit.record import CreditRecord
from delta_rlvr.credit.rule import HiddenStates, register, setting
from delta_rlvr.credit.rules.ranged import Ranged
from delta_rlvr.credit.solver import Solver

EMPTY_SIDE = (
    "no contrast to learn from: {what} has advantages of one sign only (or none), so every token coefficient is exactly 1, "
    "which is plain DAPO. If this happens often, the problems are too easy or too hard for the policy"
)


@register("delta-no-refinement", about="initial centroids (K = 0)", paper="Table 3", refinements=0)
@register("delta-wide", about="DelTA with the range [0.5, 1.5]", paper="Table 11", lambda_min=0.5, lambda_max=1.5)
@register(
    "delta-centred", about="DelTA on hidden states less their mean over the batch", paper="beyond", proxy="centred_row"
)
@register(
    "delta-scalar",
    about="DelTA's estimator on the single number 1 - p: no hidden states",
    paper="beyond",
    proxy="scalar",
)
@register("delta-group", about="DelTA with one pair of centroids per prompt", paper="beyond", scope="group")
@register("delta-head", about="DelTA with the exact head gradient", paper="beyond", proxy="head")
@register("delta-topk", about="DelTA with the top-K hidden gradient", paper="Table 4", proxy="topk_hidden")
@register("delta", about="DelTA as published: output-row proxy, range [0.8, 1.2], K = 1", paper="Table 1")
@dataclass(frozen=True)
class Delta(Ranged):
    """How DelTA's token coefficients are computed. The defaults are the method as published; a range of one number is exactly DAPO."""

    refinements: int = setting(1, "[0, inf)")
    """How often the centroids are re-estimated with the soft assignments (K; 0 is "w/o refinement")."""
    proxy: proxies.Proxy = "output_row"
    """What stands for a token's gradient (Appendix F; `credit.proxies` has the formulas)."""
    top_k: int = setting(20, "[1, inf)")
    """Vocabulary entries in the "topk_hidden" proxy (the paper does not give its K)."""
    scope: Literal["batch", "group"] = "batch"
    """Centroids over the whole rollout batch, or one pair per prompt."""

    @property
    def flat(self) -> bool:
        """Every coefficient is exactly one, whatever the assignments: the method is DAPO."""
        return self.lambda_min == self.lambda_max

    @property
    def solver(self) -> type[Solver]:
        """What makes centroids, margins and assignments."""
        return Solver

    @cached_property
    def needs(self) -> Collection[str]:
        return (*proxies.READS[self.proxy], *(("groups",) if self.scope == "group" else ()))

    @cached_property
    def stores(self) -> HiddenStates | None:
        return proxies.stored(self.proxy, self.top_k)

    @property
    def mean_one(self) -> bool:
        return True

    @property
    def sees_slices(self) -> bool:
        return True

    def weigh(self, batch: TokenBatch) -> CreditRecord:
        estimated = estimate(batch, proxies.vectors(self.proxy, batch), self)
        if estimated.without_contrast:
            # Single groups without a contrast are everyday in group scope; a batch without one is worth a word.
            what = "this rollout batch" if self.scope == "batch" else "every group of this rollout batch"
            warnings.warn(EMPTY_SIDE.format(what=what), stacklevel=2)
        if self.flat or estimated.without_contrast:
            weights = batch.ones()
        else:
            coefficients = self.coefficients(estimated.alpha)
            if estimated.unweighted is not None:
                coefficients[estimated.unweighted] = 1.0
            weights = self.normalized(coefficients, batch)
        return CreditRecord.of(
            batch,
            weights,
            alpha=estimated.alpha,
            margin=estimated.margin,
            margin_initial=estimated.margin_initial,
            discriminator=estimated.discriminator,
        )

    def coefficients(self, alpha: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        """lambda: alpha mapped into the range. It is 0 where A = 0: lambda_min there."""
        return self.lambda_min + (self.lambda_max - self.lambda_min) * alpha

    def normalized(self, coefficients: Float[Tensor, " token"], batch: TokenBatch) -> Float[Tensor, " token"]:
        """lambda-bar of Eq. 8: the mean over the valid tokens is one."""
        return mean_one(batch, coefficients, positive=self.lambda_min > 0)

    def diagnose(self, batch: TokenBatch) -> dict[str, float]:
        """Reliability: the rank correlation of the assignments that two random halves of the responses give to all tokens."""
        first = uniform_draws(0, batch.round_number, batch.keys, torch.full_like(batch.keys, -1)) < 0.5
        vectors = proxies.vectors(self.proxy, batch)
        halves = [estimate(batch, vectors, self, counted) for counted in (first, ~first)]
        here = batch.side != 0
        for half in halves:
            if half.unweighted is not None:
                here = here & ~half.unweighted
        one, other = (batch.reducer.gather(half.alpha[here]) for half in halves)
        known = len(one) > 2 and bool(one.std() > 0) and bool(other.std() > 0)
        return {"reliability": rank_correlation(one, other)} if known else {}
