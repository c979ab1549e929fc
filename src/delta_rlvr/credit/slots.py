"""Sums over tokens by slot: the two sides of a batch, or of each of its groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from delta_rlvr.credit.reduce import wide


@dataclass(frozen=True)
class Slots:
    """The slot of each token of this rank."""

    of: Int[Tensor, " token"]
    count: int

    @cached_property
    def sides(self) -> tuple[Float[Tensor, " token"], Float[Tensor, " token"]]:
        """For two slots, whether a token is in each of them (1 or 0). These are two tensors because a row of one tensor may not be
        aligned, and a product with it may round differently."""
        second = self.of.to(wide(self.of.device))
        return 1 - second, second

    def sums(self, values: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        """Return the sum of the values of each slot, on this rank."""
        if self.count == 2:
            # On a GPU all threads of index_add_ would wait for the same two addresses.
            return torch.stack([side @ values for side in self.sides])
        return values.new_zeros(self.count).index_add_(0, self.of, values)
