"""Tokens put into slots (the two sides of a batch, or of each of its groups), and sums by slot."""

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
        """For two slots: 1 where the token is in the slot, 0 elsewhere. (Two tensors: a product with a row of one tensor may round
        otherwise, because the row's address is not aligned.)"""
        second = self.of.to(wide(self.of.device))
        return 1 - second, second

    def sums(self, values: Float[Tensor, " token"]) -> Float[Tensor, " slot"]:
        """The sum of the values of each slot, on this rank."""
        if self.count == 2:
            # On a GPU index_add_ would queue every token up at two addresses.
            return torch.stack([side @ values for side in self.sides])
        return values.new_zeros(self.count).index_add_(0, self.of, values)
