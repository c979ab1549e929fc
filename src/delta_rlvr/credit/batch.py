"""A rollout batch as rules get it: only the valid tokens, packed row by row, so that padding cannot matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

from delta_rlvr.credit.draws import uniform_draws
from delta_rlvr.credit.reduce import Reducer, wide
from delta_rlvr.credit.store import RowStore


class _once(property):
    """A property that is computed once. (functools.cached_property of Python 3.11 holds a lock while it computes: ranks that are
    threads of one process could deadlock.)"""

    def __get__(self, batch: Any, kind: type | None = None) -> Any:
        assert self.fget is not None
        if batch is None:
            return self
        known = vars(batch)
        if self.fget.__name__ not in known["_known"]:
            known["_known"][self.fget.__name__] = self.fget(batch)
        return known["_known"][self.fget.__name__]


@dataclass(frozen=True)
class TokenBatch:
    """This rank's share of a rollout batch. Token arrays are packed: only the valid tokens, response by response.

    Arrays beside the lengths and the advantages must be declared in the rule's `needs`; reading another one is an error.
    """

    lengths: Int[Tensor, " batch"]
    """Valid tokens of each response."""
    row: Int[Tensor, " token"]
    """The response of each token."""
    advantages: Float[Tensor, " batch"]
    """A_i, in the dtype `wide`."""
    keys: Int[Tensor, " batch"]
    """A number that identifies the response in seeded draws."""
    round_number: int
    """The number of the rollout batch; seeded draws differ from batch to batch."""
    reducer: Reducer
    """The collectives over all ranks."""
    temperature: float = 1.0
    """The sampling temperature."""
    given: Mapping[str, Tensor] = field(default_factory=dict)
    """The arrays that the rule needs; use the properties below to read them."""
    stored: RowStore | None = None
    """The stored rows of hidden states, if the rule needs any."""
    two_sided: bool = False
    """This rank is known to have advantages of both signs, so that nobody has to wait for the device to find out."""
    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    # ------------------------------------------------------------------ what a rule may need

    def _needed(self, name: str) -> Tensor:
        if name not in self.given:
            raise ValueError(f"the rule reads batch.{name} without declaring it: add {name!r} to its `needs`")
        return self.given[name]

    @property
    def groups(self) -> Int[Tensor, " batch"]:
        """The number of each response's prompt: the same for all responses to it, on all ranks."""
        return self._needed("groups")

    @property
    def logps(self) -> Float[Tensor, " token"]:
        """Old log-probs of the sampled tokens, in the dtype `wide`."""
        return self._needed("logps")

    @property
    def entropy(self) -> Float[Tensor, " token"]:
        """Entropy of the old policy at each token's position, in the dtype `wide`."""
        return self._needed("entropy")

    @property
    def tokens(self) -> Int[Tensor, " token"]:
        """The sampled token ids."""
        return self._needed("tokens")

    @property
    def decisive(self) -> Bool[Tensor, " token"]:
        """Whether each token decided its response's reward, from a task that knows it."""
        return self._needed("decisive")

    @property
    def measured(self) -> Float[Tensor, " token"]:
        """Measured credit: the value after the token less the value before it, in the dtype `wide`."""
        return self._needed("measured")

    @property
    def head(self) -> Float[Tensor, "vocab width"]:
        """The LM head's weight."""
        return self._needed("head")

    @property
    def store(self) -> RowStore:
        """The stored rows of hidden states, chunk by chunk."""
        if self.stored is None:
            raise ValueError("the rule reads batch.store without declaring it: add 'hidden' to its `needs`")
        return self.stored

    # ------------------------------------------------------------------ what follows from lengths and advantages

    @_once
    def position(self) -> Int[Tensor, " token"]:
        """The index of each token among the valid tokens of its response."""
        starts = self.lengths.cumsum(0) - self.lengths
        return torch.arange(len(self.row), device=self.row.device) - starts[self.row]

    @_once
    def token_advantages(self) -> Float[Tensor, " token"]:
        return self.advantages[self.row]

    @_once
    def side(self) -> Int[Tensor, " token"]:
        """+1, -1 or 0: the sign of the token's advantage."""
        return self.token_advantages.sign().to(torch.int8)

    @_once
    def token_count(self) -> int:
        """N: the number of valid tokens of the batch, over all ranks."""
        return sum(self.reducer.gather_counts(len(self.row)))

    @_once
    def group_number(self) -> Int[Tensor, " batch"]:
        """The index of each response's group among the groups of all ranks; every rank uses the same indices."""
        return torch.searchsorted(self.reducer.gather(self.groups).unique(), self.groups)

    # ------------------------------------------------------------------ over all ranks

    def ones(self) -> Float[Tensor, " token"]:
        """Return the weight one for every token."""
        return torch.ones(len(self.row), dtype=wide(self.row.device), device=self.row.device)

    def total(self, values: Num[Tensor, "..."]) -> Float[Tensor, ""]:
        """Return the sum of the values over all ranks."""
        return self.reducer.sum(values.to(wide(values.device)).sum())

    def sums_by(self, key: Int[Tensor, " many"], values: Num[Tensor, " many"]) -> Float[Tensor, " many"]:
        """Return for each entry the sum of all values with the same key, over all ranks."""
        mine, place = key.unique(return_inverse=True)
        sums = torch.zeros(len(mine), dtype=wide(values.device), device=values.device)
        sums.index_add_(0, place, values.to(sums.dtype))
        everyone, where = self.reducer.gather(mine).unique(return_inverse=True)
        totals = torch.zeros(len(everyone), dtype=sums.dtype, device=sums.device)
        totals.index_add_(0, where, self.reducer.gather(sums))
        return totals[torch.searchsorted(everyone, mine)][place]

    def response_means(self, values: Num[Tensor, " token"]) -> Float[Tensor, " batch"]:
        """The mean of the values over the tokens of each response; 0 for a response without a token."""
        sums = torch.zeros(len(self.lengths), dtype=wide(values.device), device=values.device)
        return sums.index_add_(0, self.row, values.to(sums.dtype)) / self.lengths.clamp(min=1)

    def draws(self, seed: int) -> Float[Tensor, " token"]:
        """Return a number in [0, 1) for each token. It depends only on seed, `round_number`, the response's key and position."""
        return uniform_draws(seed, self.round_number, self.keys[self.row], self.position)
