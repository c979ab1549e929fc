"""Two ranks of one sequence-parallel group, each with one half of a packed micro-batch, in which a response is cut."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from delta_rlvr.adapters.verl.capture import MicroBatch, PassCapture
from delta_rlvr.adapters.verl.settings import read_settings
from delta_rlvr.credit import RowStore

LENGTHS, RESPONSES = [9, 7, 8], [6, 4, 5]


def whole_batch() -> tuple[MicroBatch, torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(5)
    mask = torch.rand(sum(RESPONSES), generator=draw) > 0.2
    micro = MicroBatch(
        rows=torch.tensor([2, 0, 1]),
        sequence_lengths=torch.tensor(LENGTHS),
        response_lengths=torch.tensor(RESPONSES),
        response_mask=mask,
        response_ids=torch.randint(0, 30, (sum(RESPONSES),), generator=draw),
    )
    hidden = torch.randn(1, sum(LENGTHS), 8, generator=draw)
    logps = -torch.rand(sum(LENGTHS), generator=draw)
    return micro, hidden, logps, torch.tensor([0.5, -1.0, 1.0])


def solve_sliced(folder: Path, methods: tuple[str, ...]) -> None:
    """One rank: its half of the hidden states, and the weights it ends up with under each method."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.save({method: _weights(rank, method) for method in methods}, folder / f"{rank}.pt")
    dist.destroy_process_group()


def _weights(rank: int, method: str) -> torch.Tensor:
    micro, hidden, logps, advantages = whole_batch()
    half = sum(LENGTHS) // 2
    capture = PassCapture(
        read_settings({"method": method}),
        store=RowStore(),
        process_group=dist.group.WORLD,
        slice_group=dist.group.WORLD,
        device="cpu",
    )
    capture.add_hidden(micro, hidden[:, rank * half : (rank + 1) * half])
    capture.add_outputs(logps, -logps)
    ids = torch.arange(3)
    lengths = torch.tensor([4, 5, 6])
    _, arrays = capture.solve(advantages, lengths, rewards=advantages, groups=ids // 3, keys=ids, round_number=0)
    return arrays["weights"]
