"""DelTA (Eq. 5-8): a token counts by how clearly its gradient belongs to its own side of the batch.

    D     = ||v - mu_opp||^2 - ||v - mu_own||^2        v: the token's gradient, or a proxy for it (`credit.proxies`)
    alpha = sigmoid(D / gamma)                          centroids mu and temperatures gamma: `credit.solver`
    weight = (lambda_min + (lambda_max - lambda_min) alpha) N / Z, lambda_min where A = 0, so that the mean is one

The paper's ablations are in `ablations.py`.
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
    "no contrast to learn from: {what} has advantages of one sign only (or none), so that every weight is 1, "
    "which is plain DAPO"
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
    """DelTA's token weights. The defaults are the published method; lambda_min = lambda_max is exactly DAPO."""

    refinements: int = setting(1, "[0, inf)")
    """The number of times that the centroids are estimated again with the soft assignments (K; 0 is "w/o refinement")."""
    proxy: proxies.Proxy = "output_row"
    """The proxy of a token's gradient (Appendix F; `credit.proxies` has the formulas)."""
    top_k: int = setting(20, "[1, inf)")
    """The number of vocabulary entries in the "topk_hidden" proxy (the paper does not give its K)."""
    scope: Literal["batch", "group"] = "batch"
    """One pair of centroids for the whole rollout batch, or one per prompt."""

    @property
    def flat(self) -> bool:
        """Whether every weight is exactly one, as in DAPO."""
        return self.lambda_min == self.lambda_max

    @property
    def solver(self) -> type[Solver]:
        """The solver for centroids, margins and assignments."""
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
            # Single groups without a contrast are common in group scope; a whole batch without one is worth a warning.
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
        """Return lambda: alpha mapped into the range. Where A = 0, alpha is 0 and lambda is lambda_min."""
        return self.lambda_min + (self.lambda_max - self.lambda_min) * alpha

    def normalized(self, coefficients: Float[Tensor, " token"], batch: TokenBatch) -> Float[Tensor, " token"]:
        """Return lambda-bar of Eq. 8, with a mean of one over the valid tokens."""
        return mean_one(batch, coefficients, positive=self.lambda_min > 0)

    def diagnose(self, batch: TokenBatch) -> dict[str, float]:
        """Return the reliability: the rank correlation of the tokens' assignments from two random halves of the responses.

        It is taken within each half, as a mean over the tokens: a token's own half pulls its assignment up, the other one does not, so
        that over both halves together few responses would seem to contradict each other."""
        first = uniform_draws(0, batch.round_number, batch.keys, torch.full_like(batch.keys, -1)) < 0.5
        vectors = proxies.vectors(self.proxy, batch)
        halves = [estimate(batch, vectors, self, counted) for counted in (first, ~first)]
        here = batch.side != 0
        for half in halves:
            if half.unweighted is not None:
                here = here & ~half.unweighted
        total, count = 0.0, 0
        for own in (first[batch.row], ~first[batch.row]):
            one, other = (batch.reducer.gather(half.alpha[here & own]) for half in halves)
            if len(one) > 2 and one.std() > 0 and other.std() > 0:
                total, count = total + len(one) * rank_correlation(one, other), count + len(one)
        return {"reliability": total / count} if count else {}
