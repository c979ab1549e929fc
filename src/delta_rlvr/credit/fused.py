"""DelTA's passes as Triton kernels for a whole batch on a GPU. In a solve of a few milliseconds launch overhead counts most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit import kernels
from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.solver import GAMMA_FLOOR, MASS_FLOOR, Solver
from delta_rlvr.credit.vectors import RowVectors, TokenVectors

if TYPE_CHECKING:
    from delta_rlvr.credit.rules.delta import Delta


class FusedSolver(Solver):
    """A solver for batches whose rows are all on the GPU.

    Its collectives are those of `Solver`, in the same order: a rank that has spilled its rows, or has no token, solves without kernels.
    """

    def __init__(
        self,
        batch: TokenBatch,
        vectors: TokenVectors,
        rule: Delta,
        mass: Float[Tensor, " token"],
        masses: Float[Tensor, " slot"] | None = None,
        *_: Any,
    ):
        """`masses`: the sums of `mass` over all ranks; None with one rank, if neither can be 0."""
        assert isinstance(vectors, RowVectors)
        assert vectors.resident is not None
        self.batch, self.rule, self.parts = batch, rule, vectors.resident
        factor = torch.ones_like(mass) if vectors.factor is None else vectors.factor
        self.tokens = kernels.Tokens(mass, batch.side, factor)
        if masses is not None:
            self.masses = masses

    @staticmethod
    def serves(vectors: TokenVectors, rule: Delta) -> bool:
        """Return whether the kernels can solve for the rule, and all rows are on the device."""
        published = rule.solver is Solver and rule.scope == "batch"
        if not published or not isinstance(vectors, RowVectors) or vectors.mean is not None:
            return False
        return vectors.resident is not None

    def count(self) -> None:
        if not self.batch.reducer.alone:
            sides = torch.stack([self.batch.side > 0, self.batch.side < 0])
            self.counts = self.batch.reducer.sum(sides.sum(1).to(self.tokens.mass)).clamp(min=1)

    def centroids(self, margins: Float[Tensor, " token"] | None, previous: Any) -> Any:
        reducer = self.batch.reducer
        gamma = None if margins is None else self.gamma
        partial, masses = kernels.weighted_sums(self.parts, self.tokens, margins, gamma)
        if not reducer.alone:
            partial = reducer.sum(partial.sum(0, dtype=torch.float64))[None]
            masses = (self.masses if margins is None else reducer.sum(masses.sum(1)))[:, None]
        made = kernels.centroids(self.parts, partial, masses, MASS_FLOOR, previous)
        if margins is None:
            self.masses = made.summary[:2]
        return made

    def apart(self, means: Any) -> Float[Tensor, " group"]:
        return means.summary[2:3]

    def margins(self, means: Any) -> Float[Tensor, " token"]:
        margins, self.moments = kernels.margins(self.parts, self.tokens, means, GAMMA_FLOOR)
        return margins

    def temperatures(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        return self.moments[3] if self.batch.reducer.alone else super().temperatures(margins)

    def variance(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        count, mean, squares, _ = self.moments  # of this rank
        apart = mean - self.batch.reducer.sum(count * mean) / self.counts
        return self.batch.reducer.sum(torch.addcmul(squares, count * apart, apart)) / self.counts

    def assign(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        return kernels.assign(self.tokens, margins, self.gamma)
