"""Settings of DelTA and of its variants (the paper's Tables 2-4 and 11, Figures 3-4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints


class WeightingRule:
    """A way to weigh tokens, and what it has to be given for that beside the mask and the advantages."""

    @property
    def needs_proxies(self) -> bool:
        """Whether hidden states have to be captured."""
        return False

    @property
    def needs_head(self) -> bool:
        """Whether the LM head's weight and the sampled ids are needed."""
        return False

    @property
    def needs_logps(self) -> bool:
        """Whether the old log-probs are needed."""
        return False

    @property
    def needs_entropy(self) -> bool:
        """Whether the old policy's entropies are needed."""
        return False


def check_range(lambda_min: float, lambda_max: float) -> None:
    """Refuse what cannot be the range of a coefficient."""
    for name, value in (("lambda_min", lambda_min), ("lambda_max", lambda_max)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"{name}={value!r}: give a finite number")
    if lambda_min < 0:
        raise ValueError(f"lambda_min={lambda_min}: a coefficient cannot be negative; give at least 0")
    if lambda_max <= 0:
        raise ValueError(f"lambda_max={lambda_max}: give a positive number")
    if lambda_min > lambda_max:
        raise ValueError(
            f"lambda_min={lambda_min} is above lambda_max={lambda_max}: swap them, "
            "or give both the same value for plain DAPO"
        )


@dataclass(frozen=True)
class DeltaConfig(WeightingRule):
    """How token coefficients are computed. The defaults are the method as published."""

    lambda_min: float = 0.8
    """Smallest coefficient before normalisation (lambda_min): a token that looks like the other side."""
    lambda_max: float = 1.2
    """Largest coefficient before normalisation (lambda_max). Equal to lambda_min, this is exactly DAPO."""
    refinements: int = 1
    """How often the centroids are re-estimated with the soft assignments (K; 0 is "w/o refinement")."""
    proxy: Literal["output_row", "topk_hidden", "head", "full", "sharpness"] = "output_row"
    """What stands for a token's gradient (Appendix F); "full" takes the gradients themselves as `hidden`; "sharpness" is ours."""
    top_k: int = 20
    """Vocabulary entries in the "topk_hidden" proxy (the paper does not give its K)."""
    scope: Literal["batch", "group"] = "batch"
    """Centroids over the whole rollout batch, or one pair a prompt."""
    contrast: Literal["both_sides", "within_side", "alignment"] = "both_sides"
    """Margins against the opposite centroid, distances to the own one alone (Table 2), or (ours) ||v|| cos^2(v, mu+ - mu-)."""
    own_response: Literal["include", "leave_out"] = "include"
    """Whether a token's own response counts in the centroid of its own side (ours)."""
    whiten: Literal["none", "diagonal", "full"] = "none"
    """Compare tokens in the metric (F + mean(diag F))^-1, F the second moments of v or their diagonal (ours)."""
    gamma: Literal["adaptive", "initial"] = "adaptive"
    """Temperatures from the margins' spread, or fixed to ||mu+(0) - mu-(0)||^2 (Table 3; our reading)."""
    assignment: Literal["soft", "hard"] = "soft"
    """alpha = sigmoid(margin / gamma), or 1 where the margin is positive and 0 elsewhere (Table 3)."""
    normalize: bool = True
    """Divide by the mean coefficient, so that the mean is one (False: "w/o lambda-norm", Table 3)."""
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
        for name, hint in get_type_hints(DeltaConfig).items():
            choices = get_args(hint)
            value = getattr(self, name)
            if choices and value not in choices:
                raise ValueError(f"{name}={value!r}: choose one of {', '.join(map(repr, choices))}")
            if hint is bool and not isinstance(value, bool):
                raise ValueError(f"{name}={value!r}: give True or False")
        check_range(self.lambda_min, self.lambda_max)
        for name in ("keep_share", "mass_floor", "gamma_floor"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ValueError(f"{name}={value!r}: give a finite number")
        for name, least in (("refinements", 0), ("top_k", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name}={value!r}: give a whole number of at least {least}")
        if not 0 < self.keep_share <= 1:
            raise ValueError(f"keep_share={self.keep_share}: give a share above 0 and up to 1")
        if self.mass_floor <= 0 or self.gamma_floor <= 0:
            raise ValueError("mass_floor and gamma_floor must be positive: they guard divisions")
        if self.source == "random" and (not self.range_map or self.keep != "all"):
            raise ValueError(
                "source='random' draws lambda in its range and has no alpha: it cannot be combined with "
                "range_map=False or with a selection (use keep='random' to select at random)"
            )

        if self.contrast == "within_side" and self.assignment == "hard":
            raise ValueError(
                "contrast='within_side' has no positive margins, so assignment='hard' would give every token 0: "
                "choose one of the two"
            )
        if self.contrast == "within_side" and self.whiten != "none":
            raise ValueError(
                "contrast='within_side' is the paper's distance: it has no whitened form here; use whiten='none'"
            )
        if self.gamma == "initial" and self.whiten != "none":
            raise ValueError(
                "gamma='initial' is the plain distance of the centroids, in another unit than whitened margins: use gamma='adaptive'"
            )
        if self.assignment == "hard" and self.own_response == "leave_out":
            raise ValueError(
                "own_response='leave_out' with assignment='hard' may leave a side without any token: choose one of the two"
            )
        if self.contrast == "alignment" and (self.assignment == "hard" or self.gamma == "initial"):
            raise ValueError(
                "contrast='alignment' has no negative scores and no distances: assignment='hard' would give every token 1 "
                "and gamma='initial' would be of another unit; use 'soft' and 'adaptive'"
            )
        if self.proxy == "head" and (self.whiten == "full" or self.own_response == "leave_out"):
            raise ValueError(
                "proxy='head' is a vocab x width matrix a token: whiten='full' would need the square of that and "
                "own_response='leave_out' one matrix a response; use another proxy, or whiten='diagonal'"
            )

    @property
    def flat(self) -> bool:
        """Every coefficient is exactly one, whatever the assignments: the method is DAPO."""
        return self.lambda_min == self.lambda_max and self.range_map and self.keep == "all"

    @property
    def needs_proxies(self) -> bool:
        """Random weights look at no token."""
        return self.source == "discriminator" and self.keep != "random"

    @property
    def needs_head(self) -> bool:
        return self.needs_proxies and self.proxy in ("topk_hidden", "head")

    @property
    def needs_logps(self) -> bool:
        return self.needs_proxies and self.proxy in ("output_row", "sharpness")

    @property
    def needs_entropy(self) -> bool:
        return self.needs_proxies and self.proxy == "sharpness"

    @property
    def stored_rows(self) -> str:
        """What the store keeps of a token: equal for settings that can share one capture."""
        rows = {"topk_hidden": f"top-{self.top_k} hidden gradients", "full": "full gradients"}
        return rows.get(self.proxy, "hidden states")
