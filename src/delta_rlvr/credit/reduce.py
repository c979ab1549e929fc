"""Collectives over data-parallel ranks, so that no statistic depends on how the batch is split."""

from __future__ import annotations

import torch
import torch.distributed as dist
from jaxtyping import Num, Shaped
from torch import Tensor


def wide(device: torch.device) -> torch.dtype:
    """Return the widest float of a device, which statistics use."""
    return torch.float32 if device.type == "mps" else torch.float64


class AnotherRankRefused(ValueError):
    """Another rank has a problem, this one has none."""


class Reducer:
    """The collectives of rules and estimator. Without a process group, or in a group of one, they do nothing."""

    def __init__(self, process_group: dist.ProcessGroup | None = None, device: torch.device | None = None):
        # A collective would wait for the device even with one rank.
        several = process_group is not None and dist.get_world_size(process_group) > 1
        self.process_group = process_group if several else None
        self.device = device or torch.device("cpu")

    @property
    def alone(self) -> bool:
        """Whether there is no other rank."""
        return self.process_group is None

    def sum(self, values: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """Sum element-wise over the ranks, in place."""
        if self.process_group is not None:
            dist.all_reduce(values, op=dist.ReduceOp.SUM, group=self.process_group)
        return values

    def maximum(self, value: int) -> int:
        """Return the largest of the ranks' numbers."""
        if self.process_group is None:
            return value
        holder = torch.tensor([value], dtype=torch.int64, device=self.device)
        dist.all_reduce(holder, op=dist.ReduceOp.MAX, group=self.process_group)
        return int(holder.item())

    def gather(self, values: Num[Tensor, " local"]) -> Num[Tensor, " total"]:
        """Return the values of all ranks, in rank order. Ranks may have different numbers of values."""
        if self.process_group is None:
            return values
        counts = self.gather_counts(values.numel())
        padded = values.new_zeros(max(counts))
        padded[: values.numel()] = values
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=self.process_group)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def gather_counts(self, count: int) -> list[int]:
        """Return the `count` of every rank, in rank order."""
        if self.process_group is None:
            return [count]
        mine = torch.tensor([count], dtype=torch.int64, device=self.device)
        all_counts = [torch.empty_like(mine) for _ in range(dist.get_world_size(self.process_group))]
        dist.all_gather(all_counts, mine, group=self.process_group)
        return [int(c.item()) for c in all_counts]

    @property
    def rank(self) -> int:
        return 0 if self.process_group is None else dist.get_rank(self.process_group)

    def agree(self, problem: ValueError | None) -> None:
        """Raise on every rank if any rank has a problem: a rank that raised alone would leave the others waiting."""
        if self.maximum(int(problem is not None)):
            raise problem or AnotherRankRefused("another rank refused its input: see that rank's error")
