"""The paper's ablations of DelTA (Tables 2-4, Figures 3-4), and our own contrast.

Choices where the paper is silent: "w/o adaptive gamma" fixes both temperatures to ||mu+(0) - mu-(0)||^2; a selection ranks only the
tokens with A != 0, and a seeded draw breaks ties.

Ours: `contrast="alignment"` scores a token by ||v|| cos^2(v, mu+ - mu-), how much of its gradient lies along the difference of the
sides, in either direction. D measures whether a token looks like its own side. But decisive tokens of right and wrong responses often
look alike (the same uncertain digit), so that D raises their weights on one side and lowers them on the other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.checks import check_declared, require
from delta_rlvr.credit.pieces import highest_share, kept_weights, mean_one, surprise
from delta_rlvr.credit.rule import WIDER, TokenRule, register, setting
from delta_rlvr.credit.rules.delta import Delta
from delta_rlvr.credit.rules.ranged import Ranged
from delta_rlvr.credit.solver import GAMMA_FLOOR, MASS_FLOOR, Solver, inner, opposite


@register(
    "delta-sharpness",
    about="delta-context with (log p + H) h instead of (1 - p) h",
    paper="beyond",
    contrast="alignment",
    refinements=0,
    proxy="sharpness",
)
@register(
    "delta-context",
    about="gradients along what tells the sides apart, either way (K = 0)",
    paper="beyond",
    contrast="alignment",
    refinements=0,
)
@register("delta-no-range", about="alpha itself as the weight", paper="Table 3", range_map=False)
@register("delta-no-norm", about="coefficients not normalised to mean one", paper="Table 3", normalize=False)
@register("delta-hard", about="hard 0/1 assignment", paper="Table 3", assignment="hard")
@register("delta-fixed-gamma", about="temperatures fixed to the first distance", paper="Table 3", gamma="initial")
@register("delta-within-side", about="only distances to the own centroid", paper="Table 2", contrast="within_side")
@dataclass(frozen=True)
class Ablation(Delta):
    """DelTA with a part left out or replaced. The defaults change nothing."""

    contrast: Literal["both_sides", "within_side", "alignment"] = "both_sides"
    """Margins between the two centroids, distances to the own centroid only (Table 2), or (ours) ||v|| cos^2(v, mu+ - mu-)."""
    gamma: Literal["adaptive", "initial", "current"] = "adaptive"
    """Temperatures from the margins' spread one pass earlier, as published; fixed to ||mu+(0) - mu-(0)||^2 (Table 3, our reading); or
    (ours) from the spread of the current margins."""
    assignment: Literal["soft", "hard"] = "soft"
    """alpha = sigmoid(margin / gamma), or 1 where the margin is positive and 0 elsewhere (Table 3)."""
    normalize: bool = True
    """Divide by the mean coefficient, so that the mean is one (False: "w/o lambda-norm", Table 3)."""
    mean_over: Literal["tokens", "signal", "mass"] = "tokens"
    """The mean is over all valid tokens, or (ours) over those with an advantage, where the others get 1: either plain, or weighted by
    |A| (1 - p), about the size of a token's update."""
    range_map: bool = True
    """Map alpha into [lambda_min, lambda_max] (False: alpha itself is the weight, Table 3)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for contrast, other, why in (
            ("within_side", "hard", "negated distances are never positive: every token would get 0"),
            ("alignment", "hard", "alignments are never negative: every token would get 1; use assignment='soft'"),
            ("alignment", "initial", "alignments are not distances, the units differ; use gamma='adaptive'"),
        ):
            setting = "assignment" if other == "hard" else "gamma"
            require(
                self.contrast != contrast or getattr(self, setting) != other,
                f"contrast={contrast!r} does not go with {setting}={other!r}: {why}",
            )

    @property
    def flat(self) -> bool:
        return super().flat and self.range_map

    @property
    def solver(self) -> type[Solver]:
        published = (self.contrast, self.gamma, self.assignment) == ("both_sides", "adaptive", "soft")
        return Solver if published else _Ablated

    @property
    def needs(self) -> Collection[str]:
        reads = ("logps",) if self.mean_over == "mass" else ()
        return tuple(dict.fromkeys((*super().needs, *reads)))

    @property
    def mean_one(self) -> bool:
        return (self.normalize and self.mean_over == "tokens") or self.flat

    def coefficients(self, alpha: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        return super().coefficients(alpha) if self.range_map else alpha.clone()

    def normalized(self, coefficients: Float[Tensor, " token"], batch: TokenBatch) -> Float[Tensor, " token"]:
        if not self.normalize:
            return coefficients
        if self.mean_over == "tokens":
            return mean_one(batch, coefficients, positive=self.range_map and self.lambda_min > 0)
        mass = (batch.side != 0).to(coefficients.dtype)
        if self.mean_over == "mass":
            mass = batch.token_advantages.abs() * surprise(batch.logps)
        scale = batch.total(mass) / batch.total(mass * coefficients).clamp(min=MASS_FLOOR)
        return (coefficients * scale).where(batch.side != 0, 1.0)


WIDER[Delta] = Ablation


class _Ablated(Solver):
    """A solver with other margins, temperatures or assignments."""

    rule: Ablation

    def __init__(self, *given: Any):
        super().__init__(*given)
        if self.rule.contrast != "both_sides":
            self.square_norms = self.vectors.square_norms(self.mass)

    def margins(self, means: Any) -> Float[Tensor, " token"]:
        """Return -||v - mu_own||^2, <v, mu_own - mu_opp>^2 / ||v||, or the published margins."""
        if self.rule.contrast == "within_side":
            own = self.vectors.project(means, self.slots)
            margins = 2 * own - inner(means, means)[self.slots.of] - self.square_norms
        elif self.rule.contrast == "alignment":
            along = self.vectors.project(means - opposite(means), self.slots)
            margins = along.square() / self.square_norms.sqrt().clamp(min=MASS_FLOOR)
        else:
            margins = super().margins(means)
        margins = torch.where(self.active, margins, 0.0)
        if self.rule.gamma == "current":
            self.gamma = self.temperatures(margins)
        return margins

    def temperatures(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        if self.rule.gamma == "initial":
            return self.gap_initial.square().repeat_interleave(2).clamp(min=GAMMA_FLOOR)
        return super().temperatures(margins)

    def assign(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        """Return [D > 0], the published assignments, or for alignments, which are never negative, a map onto [0, 1)."""
        if self.rule.assignment == "hard":
            alpha = (margins > 0).to(margins.dtype)
        elif self.rule.contrast == "alignment":
            alpha = torch.tanh(margins / (2 * self.gamma[self.slots.of]))  # 2 sigmoid(D / gamma) - 1
        else:
            return super().assign(margins)
        return torch.where(self.active, alpha, 0.0)


@register("delta-bottom50", about="DAPO on the half with the smallest lambda", paper="Fig. 3-4", keep="bottom")
@register("delta-top50", about="DAPO on the half of the tokens with the largest lambda", paper="Fig. 3-4")
@dataclass(frozen=True)
class Selection(Delta):
    """Plain DAPO on a share of the tokens with an advantage, ranked by DelTA's lambda."""

    keep: Literal["top", "bottom"] = "top"
    """Keep the tokens with the largest or with the smallest lambda."""
    share: float = setting(0.5, "(0, 1]")
    """The share that is kept."""
    seed: int = setting(0, "[0, inf)")
    """The seed that breaks ties."""

    @property
    def flat(self) -> bool:
        return False

    @property
    def sees_slices(self) -> bool:
        """No: draws depend on a token's index in its whole response."""
        return False

    def normalized(self, coefficients: Float[Tensor, " token"], batch: TokenBatch) -> Float[Tensor, " token"]:
        order = coefficients if self.keep == "top" else -coefficients
        return kept_weights(batch, highest_share(batch, order, self.share, seed=self.seed))


@register("delta-random50", about="DAPO on a random half of the tokens", paper="Fig. 3-4")
@dataclass(frozen=True)
class RandomSelection(TokenRule):
    """Plain DAPO on a random share of the tokens with an advantage."""

    share: float = setting(0.5, "(0, 1]")
    """The share that is kept."""
    seed: int = setting(0, "[0, inf)")
    """The seed of the draws."""

    mean_one = True

    def __post_init__(self) -> None:
        check_declared(self)
        super().__post_init__()

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        return kept_weights(batch, highest_share(batch, batch.draws(self.seed), self.share, seed=self.seed))


@register("delta-random", about="random coefficients in the same range", paper="Table 4")
@dataclass(frozen=True)
class RandomWeights(Ranged):
    """Uniform draws in the range, normalised to mean one."""

    seed: int = setting(0, "[0, inf)")
    """The seed of the draws."""

    mean_one = True

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"]:
        if self.lambda_min == self.lambda_max:
            return batch.ones()
        drawn = self.lambda_min + (self.lambda_max - self.lambda_min) * batch.draws(self.seed)
        return mean_one(batch, drawn, positive=self.lambda_min > 0)
