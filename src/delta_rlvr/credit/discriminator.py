"""The discriminator hidden in a policy-gradient step (Eq. 1-4), under any method's token weight rho (Appendix E, Eq. 9-11)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit.reduce import wide


@dataclass(frozen=True)
class Sides:
    """Masses and centroids of the two advantage sides; index 0 is the positive side."""

    masses: Float[Tensor, " 2"]
    """M± = sum of rho |A| (Eq. 10; Eq. 3 for rho = 1)."""
    centroids: Float[Tensor, "2 width"]
    """mu± = rho |A|-weighted mean of v (Eq. 11)."""


def side_summary(
    vectors: Float[Tensor, "token width"],
    advantages: Float[Tensor, " token"],
    rho: Float[Tensor, " token"] | None = None,
) -> Sides:
    """Return the masses and centroids of token gradients, or of their proxies."""
    vectors = vectors.to(wide(vectors.device))
    strength = advantages.to(vectors) * (1 if rho is None else rho.to(vectors))
    by_side = torch.stack([strength.clamp(min=0), (-strength).clamp(min=0)])
    masses = by_side.sum(1)
    return Sides(masses, by_side @ vectors / masses.clamp(min=1e-12)[:, None])


def update_direction(sides: Sides) -> Float[Tensor, " width"]:
    """Return d_theta up to scale: M+ mu+ - M- mu- (Eq. 2-3, 9)."""
    return sides.masses[0] * sides.centroids[0] - sides.masses[1] * sides.centroids[1]


def predicted_change(candidates: Float[Tensor, "... width"], sides: Sides) -> Float[Tensor, "..."]:
    """Return d log pi of candidate tokens up to scale: M+ <g, mu+> - M- <g, mu-> (Eq. 4), positive for one that becomes likelier."""
    return candidates.to(sides.centroids) @ update_direction(sides)
