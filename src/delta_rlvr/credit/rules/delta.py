"""DelTA and its variants (Eq. 5-8; the paper's Tables 2-4 and 11, Figures 3-4) as one rule."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args, get_type_hints

import torch
from jaxtyping import Float, Int
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.checks import require
from delta_rlvr.credit.diagnostics import rank_correlation
from delta_rlvr.credit.draws import uniform_draws
from delta_rlvr.credit.pieces import check_range, highest_share, kept_weights, mean_one, surprise
from delta_rlvr.credit.record import CreditRecord
from delta_rlvr.credit.rule import HiddenStates, TokenRule, register
from delta_rlvr.credit.rules.estimator import Estimate, estimate
from delta_rlvr.credit.vectors import (
    CentredVectors,
    HeadVectors,
    Rows,
    RowVectors,
    TokenVectors,
    topk_hidden_rows,
)

EMPTY_SIDE = (
    "no contrast to learn from: {what} has advantages of one sign only (or none), so every token coefficient is exactly 1, "
    "which is plain DAPO. If this happens often, the problems are too easy or too hard for the policy"
)

# What each proxy reads of a token, beside the hidden states.
_READS: dict[str, tuple[str, ...]] = {
    "output_row": ("hidden", "logps"),
    "centred_row": ("hidden", "logps"),
    "sharpness": ("hidden", "logps", "entropy"),
    "topk_hidden": ("hidden", "head", "tokens"),
    "head": ("hidden", "head", "tokens"),
    "full": ("gradients",),
    "scalar": ("logps",),
}

# Settings that do not go together: (setting, values, other setting, other values, why and what to do).
_CONFLICTS: tuple[tuple[str, tuple[Any, ...], str, tuple[Any, ...], str], ...] = (
    (
        "source",
        ("random",),
        "range_map",
        (False,),
        "random draws fill the range and have no alpha; keep the range map",
    ),
    (
        "source",
        ("random",),
        "keep",
        ("top", "random", "bottom"),
        "random draws rank nothing; use keep='random' alone to select at random",
    ),
    (
        "contrast",
        ("within_side",),
        "assignment",
        ("hard",),
        "distances to the own side are never positive margins, so every token would get 0; choose one of the two",
    ),
    (
        "contrast",
        ("alignment",),
        "assignment",
        ("hard",),
        "alignments are never negative, so every token would get 1; use assignment='soft'",
    ),
    (
        "contrast",
        ("alignment",),
        "gamma",
        ("initial",),
        "alignments are no distances: the temperature would be of another unit; use gamma='adaptive'",
    ),
)


@dataclass(frozen=True)
class TopKHiddenGradients(HiddenStates):
    """The store keeps W_y - sum_topK p~_j W_j, formed when a row is added."""

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
    """The store keeps token gradients that the caller gives in the place of hidden states."""

    def __str__(self) -> str:
        return "full gradients"


@dataclass(frozen=True)
class Delta(TokenRule):
    """How DelTA's token coefficients are computed. The defaults are the method as published."""

    lambda_min: float = 0.8
    """Smallest coefficient before normalisation (lambda_min): a token that looks like the other side."""
    lambda_max: float = 1.2
    """Largest coefficient before normalisation (lambda_max). Equal to lambda_min, this is exactly DAPO."""
    refinements: int = 1
    """How often the centroids are re-estimated with the soft assignments (K; 0 is "w/o refinement")."""
    proxy: Literal["output_row", "topk_hidden", "head", "full", "sharpness", "scalar", "centred_row"] = (
        "output_row"
    )
    """What stands for a token's gradient (Appendix F): (1 - p) h, the top-K hidden gradient, the exact head gradient; "full" takes
    the gradients themselves as `hidden`. Ours: "sharpness" (log p + H) h, "scalar" 1 - p, "centred_row" (1 - p) (h - mean h)."""
    top_k: int = 20
    """Vocabulary entries in the "topk_hidden" proxy (the paper does not give its K)."""
    scope: Literal["batch", "group"] = "batch"
    """Centroids over the whole rollout batch, or one pair per prompt."""
    contrast: Literal["both_sides", "within_side", "alignment"] = "both_sides"
    """Margins against the opposite centroid, distances to the own one alone (Table 2), or (ours) ||v|| cos^2(v, mu+ - mu-)."""
    gamma: Literal["adaptive", "initial", "current"] = "adaptive"
    """Temperatures from the margins' spread, one pass behind as published; fixed to ||mu+(0) - mu-(0)||^2 (Table 3; our reading);
    or (ours) from the margins of the same centroids, which do not lag."""
    assignment: Literal["soft", "hard"] = "soft"
    """alpha = sigmoid(margin / gamma), or 1 where the margin is positive and 0 elsewhere (Table 3)."""
    normalize: bool = True
    """Divide by the mean coefficient, so that the mean is one (False: "w/o lambda-norm", Table 3)."""
    mean_over: Literal["tokens", "signal", "mass"] = "tokens"
    """Over what that mean is taken: all valid tokens; ours: those with an advantage (the others get 1), or |A| (1 - p), what the
    optimizer sees of a token."""
    range_map: bool = True
    """Map alpha into [lambda_min, lambda_max] (False: alpha itself is the weight, Table 3)."""
    source: Literal["discriminator", "random"] = "discriminator"
    """Where lambda comes from: the estimator, or seeded uniform draws (Table 4)."""
    keep: Literal["all", "top", "random", "bottom"] = "all"
    """Weigh all tokens, or train on a share of the non-zero-advantage ones, ranked by lambda (Figures 3-4)."""
    keep_share: float = 0.5
    """The share that `keep` keeps."""
    seed: int = 0
    """Seed of random coefficients, random selection and of ties in a selection."""
    mass_floor: float = 1e-12
    """Side masses are clamped here (eps)."""
    gamma_floor: float = 1e-8
    """Temperatures are clamped here (eps_gamma)."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for setting in fields(self):
            _check_value(setting.name, getattr(self, setting.name), hints[setting.name])
        check_range(self.lambda_min, self.lambda_max)
        for name, least in (("refinements", 0), ("top_k", 1), ("seed", 0)):
            value = getattr(self, name)
            require(value >= least, f"{name}={value!r}: give a whole number of at least {least}")
        require(0 < self.keep_share <= 1, f"keep_share={self.keep_share}: give a share above 0 and up to 1")
        require(
            self.mass_floor > 0 and self.gamma_floor > 0,
            "mass_floor and gamma_floor must be positive: they guard divisions",
        )
        for name, values, other, excluded, why in _CONFLICTS:
            if getattr(self, name) in values and getattr(self, other) in excluded:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} does not go with {other}={getattr(self, other)!r}: {why}"
                )

    @property
    def flat(self) -> bool:
        """Every coefficient is exactly one, whatever the assignments: the method is DAPO."""
        return self.lambda_min == self.lambda_max and self.range_map and self.keep == "all"

    @property
    def estimates(self) -> bool:
        """Whether tokens are looked at; random weights look at none."""
        return self.source == "discriminator" and self.keep != "random"

    @cached_property
    def needs(self) -> Collection[str]:
        if not self.estimates:
            return ()
        reads = dict.fromkeys(_READS[self.proxy])
        if self.scope == "group":
            reads["groups"] = None
        if self.mean_over == "mass":
            reads["logps"] = None
        return tuple(reads)

    @cached_property
    def stores(self) -> HiddenStates | None:
        if self.estimates and self.proxy == "topk_hidden":
            return TopKHiddenGradients(self.top_k)
        return FullGradients() if self.estimates and self.proxy == "full" else super().stores

    @property
    def mean_one(self) -> bool:
        return (self.normalize and self.mean_over == "tokens") or self.flat or self.keep != "all"

    @property
    def sees_slices(self) -> bool:
        """Draws number the tokens of a whole response."""
        return self.source != "random" and self.keep == "all"

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"] | CreditRecord:
        span = self.lambda_max - self.lambda_min
        if self.source == "random":  # uniform in [lambda_min, lambda_max] (Table 4)
            return self._normalized(self.lambda_min + span * batch.draws(self.seed), batch)
        if self.keep == "random":
            kept = highest_share(batch, batch.draws(self.seed), self.keep_share, seed=self.seed)
            return kept_weights(batch, kept)
        estimated = estimate(batch, self.vectors(batch), self)
        if estimated.without_contrast:
            # Single groups without a contrast are everyday in group scope; a batch without one is worth a word.
            what = "this rollout batch" if self.scope == "batch" else "every group of this rollout batch"
            warnings.warn(EMPTY_SIDE.format(what=what), stacklevel=2)
        return CreditRecord.of(
            batch,
            self._weights(estimated, batch),
            alpha=estimated.alpha,
            margin=estimated.margin,
            margin_initial=estimated.margin_initial,
            discriminator=estimated.discriminator,
        )

    def diagnose(self, batch: TokenBatch) -> dict[str, float]:
        """Reliability: the rank correlation of the assignments that two random halves of the responses give to all tokens."""
        if not self.estimates:
            return {}
        first = (
            uniform_draws(self.seed, batch.round_number, batch.keys, torch.full_like(batch.keys, -1)) < 0.5
        )
        vectors = self.vectors(batch)
        halves = [estimate(batch, vectors, self, counted) for counted in (first, ~first)]
        here = batch.side != 0
        for half in halves:
            if half.unweighted is not None:
                here = here & ~half.unweighted
        one, other = (batch.reducer.gather(half.alpha[here]) for half in halves)
        known = len(one) > 2 and bool(one.std() > 0) and bool(other.std() > 0)
        return {"reliability": rank_correlation(one, other)} if known else {}

    def vectors(self, batch: TokenBatch) -> TokenVectors:
        """What stands for each token's gradient (Appendix F).

        "sharpness": let the logits be (1 + <a, h>) W h, that is, let an inverse temperature depend on the context. The gradient of
        log p(y) with respect to a, at a = 0, is (log p(y) + H) h: the head's gradient e_y - p seen along the policy's own log-probs.
        It names no vocabulary entry, so that what one prompt shows carries over to another.
        """
        if self.proxy == "scalar":
            return RowVectors(Rows.at_hand(surprise(batch.logps)[:, None]))
        rows = Rows.stored(batch)
        if self.proxy == "head":
            return HeadVectors(rows, batch.head, batch.tokens, batch.temperature)
        if self.proxy in ("topk_hidden", "full"):
            return RowVectors(rows)
        if self.proxy == "sharpness":
            return RowVectors(rows, batch.logps.clamp(max=0) + batch.entropy)
        plain = RowVectors(rows, surprise(batch.logps))
        return CentredVectors.of(batch, plain) if self.proxy == "centred_row" else plain

    def _weights(self, estimated: Estimate, batch: TokenBatch) -> Float[Tensor, " token"]:
        """lambda-bar of Eq. 8 from alpha*, or the tokens that a selection by lambda keeps."""
        if self.flat:
            return batch.ones()
        span = self.lambda_max - self.lambda_min
        if self.range_map:
            # alpha is 0 where A = 0: lambda_min there
            coefficients = self.lambda_min + span * estimated.alpha
        else:
            coefficients = estimated.alpha.clone()
        if estimated.unweighted is not None:
            if estimated.without_contrast:
                return batch.ones()
            coefficients[estimated.unweighted] = 1.0
        if self.keep != "all":
            order = coefficients if self.keep == "top" else -coefficients
            return kept_weights(batch, highest_share(batch, order, self.keep_share, seed=self.seed))
        return self._normalized(coefficients, batch)

    def _normalized(
        self, coefficients: Float[Tensor, " token"], batch: TokenBatch
    ) -> Float[Tensor, " token"]:
        if self.flat:
            return batch.ones()
        if not self.normalize:
            return coefficients
        if self.mean_over == "tokens":
            return mean_one(batch, coefficients, positive=self.range_map and self.lambda_min > 0)
        mass = (batch.side != 0).to(coefficients.dtype)
        if self.mean_over == "mass":
            mass = batch.token_advantages.abs() * surprise(batch.logps)
        scale = batch.total(mass) / batch.total(mass * coefficients).clamp(min=self.mass_floor)
        return (coefficients * scale).where(batch.side != 0, 1.0)


def _check_value(name: str, value: Any, hint: Any) -> None:
    """Refuse a setting of another type than its field declares."""
    choices = get_args(hint)
    if choices:
        if value not in choices:
            raise ValueError(f"{name}={value!r}: choose one of {', '.join(map(repr, choices))}")
    elif hint is bool:
        require(isinstance(value, bool), f"{name}={value!r}: give True or False")
    elif hint is int:
        require(
            isinstance(value, int) and not isinstance(value, bool), f"{name}={value!r}: give a whole number"
        )
    elif hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        require(number and math.isfinite(value), f"{name}={value!r}: give a finite number")


for _name, _about, _paper, _settings in (
    ("delta", "DelTA as published: output-row proxy, range [0.8, 1.2], K = 1", "Table 1", {}),
    ("delta-topk", "DelTA with the top-K hidden gradient", "Table 4", {"proxy": "topk_hidden"}),
    ("delta-head", "DelTA with the exact head gradient", "beyond", {"proxy": "head"}),
    ("delta-group", "DelTA with one pair of centroids per prompt", "beyond", {"scope": "group"}),
    (
        "delta-scalar",
        "DelTA's estimator on the single number 1 - p: no hidden states",
        "beyond",
        {"proxy": "scalar"},
    ),
    (
        "delta-centred",
        "DelTA on hidden states less their mean over the batch",
        "beyond",
        {"proxy": "centred_row"},
    ),
    (
        "delta-context",
        "gradients along what tells the sides apart, either way (K = 0)",
        "beyond",
        {"contrast": "alignment", "refinements": 0},
    ),
    (
        "delta-sharpness",
        "delta-context with (log p + H) h in the place of (1 - p) h",
        "beyond",
        {"contrast": "alignment", "refinements": 0, "proxy": "sharpness"},
    ),
    ("delta-wide", "DelTA with the range [0.5, 1.5]", "Table 11", {"lambda_min": 0.5, "lambda_max": 1.5}),
    ("delta-within-side", "distances to the own centroid alone", "Table 2", {"contrast": "within_side"}),
    ("delta-fixed-gamma", "temperatures fixed to the first distance", "Table 3", {"gamma": "initial"}),
    ("delta-hard", "hard 0/1 assignment", "Table 3", {"assignment": "hard"}),
    ("delta-no-norm", "coefficients not normalised to mean one", "Table 3", {"normalize": False}),
    ("delta-no-range", "alpha itself as the weight", "Table 3", {"range_map": False}),
    ("delta-no-refinement", "initial centroids (K = 0)", "Table 3", {"refinements": 0}),
    ("delta-random", "random coefficients in the same range", "Table 4", {"source": "random"}),
    ("delta-top50", "DAPO on the half of the tokens with the largest lambda", "Fig. 3-4", {"keep": "top"}),
    ("delta-random50", "DAPO on a random half of the tokens", "Fig. 3-4", {"keep": "random"}),
    ("delta-bottom50", "DAPO on the half with the smallest lambda", "Fig. 3-4", {"keep": "bottom"}),
):
    register(_name, about=_about, paper=_paper, **_settings)(Delta)
