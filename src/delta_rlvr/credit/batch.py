"""A rollout batch as the estimator sees it: valid tokens only, packed row by row, so that padding cannot matter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.credit.proxies import HeadProxy, RowProxy, Rows
from delta_rlvr.credit.reduce import Reducer
from delta_rlvr.credit.store import RowStore


@dataclass(frozen=True)
class TokenBatch:
    """This rank's share of a rollout batch."""

    lengths: Int[Tensor, " batch"]
    """Valid tokens of each response."""
    advantages: Float[Tensor, " batch"]
    """A_i, wide."""
    groups: Int[Tensor, " batch"]
    """Which prompt a response answers."""
    keys: Int[Tensor, " batch"]
    """A number that belongs to the response alone; seeded draws depend on it."""
    round_number: int
    """Number of the rollout batch; seeded draws differ from one to the next."""
    logps: Float[Tensor, " token"] | None
    """Old log-probs."""
    entropy: Float[Tensor, " token"] | None
    """Entropy of the old policy where the token was sampled."""
    tokens: Int[Tensor, " token"] | None
    """Sampled ids."""
    store: RowStore | None
    """The stored rows of the proxy; None where no proxy is needed."""
    proxy: RowProxy | HeadProxy
    factor: Float[Tensor, " token"] | None
    """What a stored row is multiplied by to be v; None for one."""
    reducer: Reducer

    @cached_property
    def row(self) -> Int[Tensor, " token"]:
        """The response a token belongs to."""
        return torch.repeat_interleave(
            torch.arange(len(self.lengths), device=self.lengths.device), self.lengths
        )

    @cached_property
    def position(self) -> Int[Tensor, " token"]:
        """The token's number among the valid tokens of its response."""
        starts = self.lengths.cumsum(0) - self.lengths
        return torch.arange(len(self.row), device=self.row.device) - starts[self.row]

    @cached_property
    def token_advantages(self) -> Float[Tensor, " token"]:
        return self.advantages[self.row]

    @cached_property
    def side(self) -> Int[Tensor, " token"]:
        """+1, -1 or 0: the sign of the token's advantage."""
        return self.token_advantages.sign().to(torch.int8)

    @cached_property
    def token_count(self) -> int:
        """N: valid tokens of the batch, over all ranks."""
        return int(self.reducer.sum(self.lengths.sum().clone()).item())

    def chunks_holding(self, active: Bool[Tensor, " token"]) -> list[bool]:
        """For each stored chunk, whether it holds an active token: the others need not be read."""
        assert self.store is not None
        counts = torch.cat([active.new_zeros(1, dtype=torch.int64), active.cumsum(0)])
        bounds = torch.tensor(self.store.bounds, dtype=torch.int64, device=counts.device).view(-1, 2)
        return (counts[bounds[:, 1]] > counts[bounds[:, 0]]).tolist()

    def rows(self, wanted: list[bool]) -> Rows:
        """The wanted chunks of the store, as proxies read them."""
        store = self.store
        assert store is not None
        return Rows(lambda: store.chunks(wanted), store.dtype or torch.float32, self.factor, self.tokens)
