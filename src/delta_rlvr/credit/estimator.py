"""DelTA's assignments for a whole rollout batch: splits it into groups and solves them (`solver`, or `fused` on a GPU).

Differences from the paper, and choices where it is silent:
- Statistics are taken over the whole rollout batch and all ranks, or per prompt with `scope="group"`. (The paper does not say which;
  the authors' code takes them per rank, so that its result depends on the number of ranks.)
- A batch (or group) with an empty side has no contrast: its coefficients are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.fused import FusedSolver
from delta_rlvr.credit.record import Discriminator
from delta_rlvr.credit.slots import Slots
from delta_rlvr.credit.vectors import TokenVectors

if TYPE_CHECKING:
    from delta_rlvr.credit.rules.delta import Delta

# The limit of the centroids' memory: group scope is solved in blocks of groups that fit.
_CENTROID_BYTES = 2 << 30


@dataclass(frozen=True)
class Estimate:
    """Assignments and margins of the tokens, and the summary of each group."""

    alpha: Float[Tensor, " token"]
    margin: Float[Tensor, " token"]
    margin_initial: Float[Tensor, " token"]
    unweighted: Bool[Tensor, " token"] | None
    """Whether the token's group has an empty side; None if no group has one."""
    discriminator: Discriminator

    @property
    def without_contrast(self) -> bool:
        """Whether every group has an empty side."""
        return self.unweighted is not None and bool(self.discriminator.degenerate.all())


def estimate(
    batch: TokenBatch, vectors: TokenVectors, rule: Delta, counted: Bool[Tensor, " batch"] | None = None
) -> Estimate:
    """Return alpha* for every token of the batch, group by group (in batch scope there is one group).

    `vectors` are the proxies of the tokens' gradients, `counted` the responses that enter the centroids (default: all).
    """
    mass = batch.token_advantages.abs()  # |A_i|
    if counted is not None:
        mass = torch.where(counted[batch.row], mass, 0.0)
    solver = FusedSolver if FusedSolver.serves(vectors, rule) else rule.solver
    if solver is FusedSolver and batch.reducer.alone and batch.two_sided and counted is None:
        # Neither side can be empty: no masses are needed first, and nothing waits for the device.
        whole = FusedSolver(batch, vectors, rule, mass)
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
    if rule.scope == "batch":
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
        some = solver(batch, vectors.within(inside), rule, mass, its, inside, here)
        some.run()
        # Blocks have no token in common, and a block's arrays are 0 outside of it.
        arrays = (some.alpha, some.margin, some.margin_initial)
        solved = tuple(map(torch.add, solved, arrays)) if solved else arrays
        discriminator.gamma[first:last] = some.gamma.view(-1, 2)
        discriminator.centroid_gap_initial[first:last] = some.gap_initial
        discriminator.centroid_gap[first:last] = some.gap
    alpha, margin, margin_initial = solved or (torch.zeros_like(mass),) * 3
    return Estimate(alpha, margin, margin_initial, unweighted, discriminator)
