"""DelTA's coefficients (Eq. 3 and 5-8).

Where this differs from the paper or settles what it leaves open:
- Statistics run over the whole rollout batch and all ranks; `scope="group"` takes one pair of centroids per prompt. (The paper does not
  say; the authors' code takes them per rank, so that its result changes with the number of ranks.)
- The margin is computed in its affine form, 2 <v, mu_own - mu_opp> + ||mu_opp||^2 - ||mu_own||^2, which is the same number without the
  cancellation of two large distances and without a [token, width] temporary.
- A batch (or group) with an empty side has no contrast: its coefficients are one.
- A side whose assignments are all 0 keeps its centroid; the paper says nothing, and a mean of nothing would be the origin.
- "w/o adaptive gamma" fixes both temperatures to ||mu+(0) - mu-(0)||^2, which the paper leaves undefined.

Beyond the paper:
- `contrast="alignment"` scores a token by ||v|| cos^2(v, mu+ - mu-): how much of its gradient lies along what tells the sides apart,
  whichever way it points. D asks whether a token looks like its own side; but decisive tokens of right and wrong responses often look
  alike (the same uncertain digit), so that D lifts them on one side and lowers them on the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from delta_rlvr.credit import kernels
from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.record import Discriminator
from delta_rlvr.credit.slots import Slots
from delta_rlvr.credit.vectors import RowVectors, TokenVectors

if TYPE_CHECKING:
    from delta_rlvr.credit.rules.delta import Delta

# Centroids of at most this many bytes exist at once; group scope is solved in blocks of groups that fit.
_CENTROID_BYTES = 2 << 30


@dataclass(frozen=True)
class Estimate:
    """What the estimator knows of each token and group before coefficients are made of it."""

    alpha: Float[Tensor, " token"]
    margin: Float[Tensor, " token"]
    margin_initial: Float[Tensor, " token"]
    unweighted: Bool[Tensor, " token"] | None
    """The token's group has an empty side; None if no group has one."""
    discriminator: Discriminator

    @property
    def without_contrast(self) -> bool:
        """Whether every group has an empty side."""
        return self.unweighted is not None and bool(self.discriminator.degenerate.all())


def estimate(
    batch: TokenBatch,
    vectors: TokenVectors,
    config: Delta,
    counted: Bool[Tensor, " batch"] | None = None,
) -> Estimate:
    """alpha* for every token of the batch, group by group (batch scope: one group). `vectors`: what stands for its gradient;
    `counted`: the responses that centroids are made of (all of them unless given)."""
    mass = batch.token_advantages.abs()  # |A_i|
    if counted is not None:
        mass = torch.where(counted[batch.row], mass, 0.0)
    fused = _fused(vectors, config)
    if fused is not None and batch.reducer.alone and batch.two_sided and counted is None:
        # Both sides are known to be there: nothing has to be summed before, and nothing waits for the device.
        whole = _FusedBlock(batch, fused, config, mass)
        whole.run()
        none = torch.zeros(1, dtype=torch.int64, device=mass.device)
        discriminator = Discriminator(
            groups=none,
            masses=whole.masses.view(1, 2),
            gamma=whole.gamma.view(1, 2),
            centroid_gap=whole.gap,
            centroid_gap_initial=whole.gap_initial,
            degenerate=none > 0,
        )
        return Estimate(whole.alpha, whole.margin, whole.margin_initial, None, discriminator)
    if config.scope == "batch":
        ids, group = torch.zeros(1, dtype=torch.int64, device=batch.row.device), batch.row.new_zeros(1)
    else:
        ids = batch.reducer.gather(batch.groups).unique()
        group = batch.group_number[batch.row]
    # Slots 2g and 2g + 1 are group g's positive and negative side.
    slots = Slots(2 * group + (batch.side < 0), 2 * len(ids))
    masses = batch.reducer.sum(slots.sums(mass)).view(-1, 2)
    degenerate = (masses <= 0).any(dim=1)
    without_contrast = degenerate.tolist()

    numel = torch.Size(vectors.shape).numel()
    block = max(1, _CENTROID_BYTES // max(1, 2 * 8 * numel))
    unweighted = degenerate[group].expand(len(batch.row)) if any(without_contrast) else None
    active = batch.side != 0 if unweighted is None else (batch.side != 0) & ~unweighted
    discriminator = Discriminator(
        groups=ids,
        masses=masses,
        gamma=masses.new_full(masses.shape, float("nan")),
        centroid_gap=masses.new_zeros(len(ids)),
        centroid_gap_initial=masses.new_zeros(len(ids)),
        degenerate=degenerate,
    )
    solved: tuple[Tensor, ...] = ()
    for first in range(0, len(ids), block):
        last = min(first + block, len(ids))
        if all(without_contrast[first:last]):
            continue
        inside, here = active, slots
        if last - first < len(ids):
            inside = (group >= first) & (group < last) & active
            count = 2 * (last - first)
            here = Slots((slots.of - 2 * first).clamp(0, count - 1), count)
        its = masses[first:last].flatten()
        solver = (
            _Block(batch, vectors.within(inside), config, mass, its, inside, here)
            if fused is None
            else _FusedBlock(batch, fused, config, mass, its)
        )
        solver.run()
        # Blocks share no token, and a block's arrays are 0 outside it.
        arrays = (solver.alpha, solver.margin, solver.margin_initial)
        solved = tuple(map(torch.add, solved, arrays)) if solved else arrays
        discriminator.gamma[first:last] = solver.gamma.view(-1, 2)
        discriminator.centroid_gap_initial[first:last] = solver.gap_initial
        discriminator.centroid_gap[first:last] = solver.gap
    alpha, margin, margin_initial = solved or (torch.zeros_like(mass),) * 3
    return Estimate(alpha, margin, margin_initial, unweighted, discriminator)


class _Block:
    """Centroids, margins and assignments of some groups, refined together."""

    def __init__(
        self,
        batch: TokenBatch,
        vectors: TokenVectors,
        config: Delta,
        mass: Float[Tensor, " token"],
        masses: Float[Tensor, " slot"],
        active: Bool[Tensor, " token"],
        slots: Slots,
    ):
        """`masses`: the sums of `mass` over all ranks."""
        self.batch, self.vectors, self.config, self.active, self.slots = batch, vectors, config, active, slots
        self.mass, self.masses = torch.where(active, mass, 0.0), masses
        if config.contrast != "both_sides":
            self.square_norms = vectors.square_norms(self.mass)

    def run(self) -> None:
        """Eq. 6-7, K times, with lagged temperatures."""
        self._count()
        centroids = self._centroids(None, None)  # mu±(0), Eq. 3
        self.gap_initial = self._gap(centroids)
        self.margin = self.margin_initial = self._margins(centroids)  # D(0)
        self.gamma = self._temperatures(self.margin)  # gamma±(0)
        for number in range(self.config.refinements):
            centroids = self._centroids(self.margin, centroids)  # alpha(k), Eq. 6, and mu±(k+1), Eq. 7
            # gamma±(k+1) comes from the margins of this same pass: the temperature lags one step behind. In the first
            # pass that is what gamma±(0) was.
            if number > 0:
                self.gamma = self._temperatures(self.margin)
            self.margin = self._margins(centroids)
            if self.config.gamma == "current":
                self.gamma = self._temperatures(self.margin)
        self.alpha = self._assign(self.margin)  # alpha*
        self.gap = self._gap(centroids)

    def _count(self) -> None:
        """The tokens of each slot, over all ranks; at least one, because the numbers divide."""
        self.counts = self._sums(self.active.to(self.mass.dtype)).clamp(min=1)

    def _centroids(self, margins: Float[Tensor, " token"] | None, previous: Any) -> Any:
        """mu±: the mean of v for each slot, weighted by |A| alpha (alpha = 1 without margins), over all ranks."""
        weights = self.mass if margins is None else self.mass * self._assign(margins)
        sums = weights.new_zeros(self.slots.count, *self.vectors.shape)
        self.vectors.sums(weights, self.slots, sums)
        sums = self.batch.reducer.sum(sums)
        mass = self.masses if margins is None else self._sums(weights)
        means = sums / _over(mass.clamp(min=self.config.mass_floor), sums)
        # A side to which nothing was assigned keeps its centroid (hard assignment, or sigmoids that underflow).
        return means if previous is None else torch.where(_over(mass > 0, means), means, previous)

    def _gap(self, means: Any) -> Float[Tensor, " group"]:
        """||mu+ - mu-||."""
        return (means[0::2] - means[1::2]).flatten(1).norm(dim=1)

    def _margins(self, means: Any) -> Float[Tensor, " token"]:
        """D = ||v - mu_opp||^2 - ||v - mu_own||^2, affine in v; or -||v - mu_own||^2; or <v, mu_own - mu_opp>^2 / ||v||."""
        difference = means - _opposite(means)
        if self.config.contrast == "within_side":
            own = self.vectors.project(means, self.slots)
            margins = 2 * own - _inner(means, means)[self.slots.of] - self.square_norms
        elif self.config.contrast == "alignment":
            along = self.vectors.project(difference, self.slots)
            margins = along.square() / self.square_norms.sqrt().clamp(min=self.config.mass_floor)
        else:
            # ||opp||^2 - ||own||^2, written without a third array of centroids, which are large for proxy="head".
            offset = _inner(difference, difference) - 2 * _inner(means, difference)
            margins = 2 * self.vectors.project(difference, self.slots) + offset[self.slots.of]
        return torch.where(self.active, margins, 0.0)

    def _temperatures(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        """gamma: population standard deviation of the side's margins, not weighted by |A|."""
        if self.config.gamma == "initial":
            return self.gap_initial.square().repeat_interleave(2).clamp(min=self.config.gamma_floor)
        return self._variance(margins).sqrt().clamp(min=self.config.gamma_floor)

    def _variance(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        mean = self._sums(margins) / self.counts
        deviations = torch.where(self.active, margins - mean[self.slots.of], 0.0)
        return self._sums(deviations.square()) / self.counts

    def _assign(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        """alpha: sigmoid(D / gamma) (Eq. 6, the closed form of Eq. 5), or [D > 0]; an alignment, never negative, fills [0, 1)."""
        if self.config.assignment == "hard":
            alpha = (margins > 0).to(margins.dtype)
        elif self.config.contrast == "alignment":
            alpha = torch.tanh(margins / (2 * self.gamma[self.slots.of]))  # 2 sigmoid(D / gamma) - 1
        else:
            alpha = torch.sigmoid(margins / self.gamma[self.slots.of])
        return torch.where(self.active, alpha, 0.0)

    def _sums(self, values: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        """The sum of the values of each slot, over all ranks."""
        return self.batch.reducer.sum(self.slots.sums(values))


class _FusedBlock(_Block):
    """The same for the whole batch with its rows on a GPU, by kernels that leave out what a launch costs.

    Another rank may have spilled its rows, or have no token, and solve without kernels: the sums over ranks are the same ones in the
    same order.
    """

    def __init__(
        self,
        batch: TokenBatch,
        vectors: RowVectors,
        config: Delta,
        mass: Float[Tensor, " token"],
        masses: Float[Tensor, " slot"] | None = None,
    ):
        """`masses`: the sums of `mass` over all ranks; None where there is one rank, and both are known not to be 0."""
        assert vectors.resident is not None
        self.batch, self.config, self.parts = batch, config, vectors.resident
        self.tokens = kernels.Tokens(mass, batch.side, vectors.factor)
        if masses is not None:
            self.masses = masses

    def _count(self) -> None:
        if not self.batch.reducer.alone:
            sides = torch.stack([self.batch.side > 0, self.batch.side < 0])
            self.counts = self.batch.reducer.sum(sides.sum(1).to(self.tokens.mass)).clamp(min=1)

    def _centroids(self, margins: Float[Tensor, " token"] | None, previous: Any) -> Any:
        reducer = self.batch.reducer
        gamma = None if margins is None else self.gamma
        partial, masses = kernels.weighted_sums(self.parts, self.tokens, margins, gamma)
        if not reducer.alone:
            partial = reducer.sum(partial.sum(0, dtype=torch.float64))[None]
            masses = (self.masses if margins is None else reducer.sum(masses.sum(1)))[:, None]
        made = kernels.centroids(self.parts, partial, masses, self.config.mass_floor, previous)
        if margins is None:
            self.masses = made.summary[:2]
        return made

    def _gap(self, means: Any) -> Float[Tensor, " group"]:
        return means.summary[2:3]

    def _margins(self, means: Any) -> Float[Tensor, " token"]:
        margins, self.moments = kernels.margins(self.parts, self.tokens, means, self.config.gamma_floor)
        return margins

    def _temperatures(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        known = self.batch.reducer.alone and self.config.gamma != "initial"
        return self.moments[3] if known else super()._temperatures(margins)

    def _variance(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        count, mean, squares, _ = self.moments  # of this rank
        apart = mean - self.batch.reducer.sum(count * mean) / self.counts
        return self.batch.reducer.sum(torch.addcmul(squares, count * apart, apart)) / self.counts

    def _assign(self, margins: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        return kernels.assign(self.tokens, margins, self.gamma)


def _fused(vectors: TokenVectors, config: Delta) -> RowVectors | None:
    """The vectors, if the kernels do what the settings ask for, and find all rows on the device."""
    published = (config.scope, config.contrast, config.assignment) == ("batch", "both_sides", "soft")
    if published and isinstance(vectors, RowVectors) and vectors.resident is not None:
        return vectors
    return None


def _inner(a: Float[Tensor, "slot ..."], b: Float[Tensor, "slot ..."]) -> Float[Tensor, " slot"]:
    """<a, b> of each slot."""
    return torch.bmm(a.flatten(1).unsqueeze(1), b.flatten(1).unsqueeze(2)).flatten()


def _opposite(slots: Float[Tensor, "slot ..."]) -> Float[Tensor, "slot ..."]:
    """Each slot's opponent: the other side of the same group."""
    return slots.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)


def _over(per_slot: Tensor, like: Tensor) -> Tensor:
    return per_slot.view(-1, *[1] * (like.dim() - 1))
