"""DelTA's centroids, margins, temperatures and assignments (Eq. 3, 5-7), for the whole batch or some of its groups.

Differences from the paper, and choices where it is silent:
- The margin is computed in its affine form, 2 <v, mu_own - mu_opp> + ||mu_opp||^2 - ||mu_own||^2. This avoids the cancellation of
  two large distances and a [token, width] temporary.
- A side whose assignments are all 0 keeps its centroid; an empty mean would be the origin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.slots import Slots
from delta_rlvr.credit.vectors import TokenVectors

if TYPE_CHECKING:
    from delta_rlvr.credit.rules.delta import Delta

MASS_FLOOR = 1e-12
"""Side masses are clamped here (eps)."""
GAMMA_FLOOR = 1e-8
"""Temperatures are clamped here (eps_gamma)."""


class Solver:
    """Centroids, margins and assignments of some groups, refined together, as published."""

    def __init__(
        self,
        batch: TokenBatch,
        vectors: TokenVectors,
        rule: Delta,
        mass: Float[Tensor, " token"],
        masses: Float[Tensor, " slot"],
        active: Bool[Tensor, " token"],
        slots: Slots,
    ):
        """`masses`: the sums of `mass` over all ranks."""
        self.batch, self.vectors, self.rule, self.active, self.slots = batch, vectors, rule, active, slots
        self.mass, self.masses = torch.where(active, mass, 0.0), masses

    def run(self) -> None:
        """Eq. 6-7, K times, with lagged temperatures."""
        self.count()
        centroids = self.centroids(None, None)  # mu±(0), Eq. 3
        self.gap_initial = self.apart(centroids)
        self.margin = self.margin_initial = self.margins(centroids)  # D(0)
        self.gamma = self.temperatures(self.margin)  # gamma±(0)
        for number in range(self.rule.refinements):
            centroids = self.centroids(self.margin, centroids)  # alpha(k), Eq. 6, and mu±(k+1), Eq. 7
            # gamma±(k+1) comes from this pass's margins, one step behind. In the first pass that is gamma±(0).
            if number > 0:
                self.gamma = self.temperatures(self.margin)
            self.margin = self.margins(centroids)
        self.alpha = self.assign(self.margin)  # alpha*
        self.gap = self.apart(centroids)

    def count(self) -> None:
        """Count the tokens of each slot over all ranks: at least one, since others divide by it."""
        self.counts = self._sums(self.active.to(self.mass.dtype)).clamp(min=1)

    def centroids(self, margins: Float[Tensor, " token"] | None, previous: Any) -> Any:
        """Return mu±: the mean of v in each slot, weighted by |A| alpha (alpha = 1 without margins), over all ranks."""
        weights = self.mass if margins is None else self.mass * self.assign(margins)
        sums = weights.new_zeros(self.slots.count, *self.vectors.shape)
        self.vectors.sums(weights, self.slots, sums)
        sums = self.batch.reducer.sum(sums)
        mass = self.masses if margins is None else self._sums(weights)
        means = sums / _over(mass.clamp(min=MASS_FLOOR), sums)
        # A side keeps its centroid if its assignments are all 0 (hard assignment, or sigmoids that underflow).
        return means if previous is None else torch.where(_over(mass > 0, means), means, previous)

    def apart(self, means: Any) -> Float[Tensor, " group"]:
        """||mu+ - mu-||."""
        return (means[0::2] - means[1::2]).flatten(1).norm(dim=1)

    def margins(self, means: Any) -> Float[Tensor, " token"]:
        """D = ||v - mu_opp||^2 - ||v - mu_own||^2, affine in v."""
        difference = means - opposite(means)
        # ||opp||^2 - ||own||^2 without a third array of centroids, which are large for proxy="head".
        offset = inner(difference, difference) - 2 * inner(means, difference)
        margins = 2 * self.vectors.project(difference, self.slots) + offset[self.slots.of]
        return torch.where(self.active, margins, 0.0)

    def temperatures(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        """Return gamma: the population standard deviation of the side's margins, not weighted by |A|."""
        return self.variance(margins).sqrt().clamp(min=GAMMA_FLOOR)

    def variance(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        mean = self._sums(margins) / self.counts
        deviations = torch.where(self.active, margins - mean[self.slots.of], 0.0)
        return self._sums(deviations.square()) / self.counts

    def assign(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        """Return alpha: sigmoid(D / gamma) (Eq. 6, the closed form of Eq. 5)."""
        return torch.where(self.active, torch.sigmoid(margins / self.gamma[self.slots.of]), 0.0)

    def _sums(self, values: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        """Return the sum of the values of each slot, over all ranks."""
        return self.batch.reducer.sum(self.slots.sums(values))


def inner(a: Float[Tensor, "slot ..."], b: Float[Tensor, "slot ..."]) -> Float[Tensor, " slot"]:
    """Return <a, b> of each slot."""
    return torch.bmm(a.flatten(1).unsqueeze(1), b.flatten(1).unsqueeze(2)).flatten()


def opposite(slots: Float[Tensor, "slot ..."]) -> Float[Tensor, "slot ..."]:
    """Swap the two sides of each group."""
    return slots.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)


def _over(per_slot: Tensor, like: Tensor) -> Tensor:
    return per_slot.view(-1, *[1] * (like.dim() - 1))
