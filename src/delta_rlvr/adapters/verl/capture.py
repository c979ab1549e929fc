"""From an engine's packed old-log-prob pass to token weights in the layout of its batch. This file does not import verl.

A sequence is a prompt followed by its response. The engine packs the sequences of a micro-batch into one row of tokens (or pads them on
the right), and may cut the row into equal slices, one for each sequence-parallel rank. Position p predicts the token at p + 1, so that
the hidden state for a response's first token is the prompt's last.

A sequence-parallel rank keeps only its own slice: a response across slices is a shorter response on each of them, which changes no
statistic that is summed over ranks (`checks` refuses rules that need whole responses). Hidden states are never moved between ranks.

The places of tokens are computed on the host, from lengths and masks that are known before the pass, and only indices are sent to the
device. So the pass never waits for the device.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.adapters.verl.settings import VerlSettings
from delta_rlvr.credit import CreditRecord, CreditStream, RowStore
from delta_rlvr.credit.reduce import Reducer
from delta_rlvr.objectives import rewarded_alike


@dataclass(frozen=True)
class MicroBatch:
    """The sequences of a micro-batch, in host memory."""

    rows: Int[Tensor, " batch"]
    """The index of each sequence in the rank's batch: engines reorder them to balance the load."""
    sequence_lengths: Int[Tensor, " batch"]
    """The lengths of prompts and responses together."""
    response_lengths: Int[Tensor, " batch"]
    """The lengths of the responses, masked tokens included."""
    response_mask: Bool[Tensor, " response_token"]
    """Whether each response token is valid, packed sequence by sequence."""
    response_ids: Int[Tensor, " response_token"]
    """The sampled ids, packed sequence by sequence."""


@dataclass(frozen=True)
class _Places:
    """The places of the valid tokens in this rank's slice of a micro-batch."""

    positions: Int[Tensor, " token"]
    """The predicting position in the packed row of tokens."""
    local: Int[Tensor, " token"]
    """The predicting position in this rank's hidden states, flattened to [any, width]."""
    within: Int[Tensor, " token"]
    """The token's index in its response, masked tokens included."""
    lengths: Int[Tensor, " batch"]
    """The number of valid tokens of each sequence on this rank."""
    ids: Int[Tensor, " token"]


def places(micro: MicroBatch, hidden_shape: torch.Size, slice_rank: int, slice_count: int) -> _Places:
    """Return the places of a micro-batch's valid tokens in hidden states [1, packed or a slice of it, d] or [batch, padded, d]."""
    device = micro.sequence_lengths.device
    count = len(micro.rows)
    sequence = torch.repeat_interleave(torch.arange(count, device=device), micro.response_lengths)
    starts = micro.response_lengths.cumsum(0) - micro.response_lengths
    within = torch.arange(len(sequence), device=device) - starts[sequence]
    ends = micro.sequence_lengths.cumsum(0)
    positions = (ends - micro.response_lengths - 1)[sequence] + within
    packed_length = int(ends[-1]) if count else 0
    packed = hidden_shape[0] == 1 and hidden_shape[1] * slice_count >= packed_length
    if packed:
        first = slice_rank * hidden_shape[1]
        local = positions - first
        keep = micro.response_mask & (local >= 0) & (local < hidden_shape[1])
    elif hidden_shape[0] == count and slice_count == 1:
        row_start = (ends - micro.sequence_lengths)[sequence]
        local = sequence * hidden_shape[1] + positions - row_start
        keep = micro.response_mask
    else:
        raise RuntimeError(
            f"hidden states of shape {tuple(hidden_shape)} fit neither {count} padded sequences nor {packed_length} packed "
            f"tokens in {slice_count} slice(s): this engine's layout of tokens is not supported"
        )
    lengths = torch.bincount(sequence[keep], minlength=count)
    return _Places(positions[keep], local[keep], within[keep], lengths, micro.response_ids[keep])


class PassCapture:
    """Collects one old-log-prob pass of a rank, and solves for token weights once the advantages are known."""

    def __init__(
        self,
        settings: VerlSettings,
        *,
        store: RowStore,
        process_group: dist.ProcessGroup | None,
        slice_group: dist.ProcessGroup | None = None,
        head: Float[Tensor, "vocab width"] | None = None,
        temperature: float = 1.0,
        device: torch.device | str = "cpu",
    ):
        self.slice_group = slice_group
        self.slice_count = 1 if slice_group is None else dist.get_world_size(slice_group)
        self.slice_rank = 0 if slice_group is None else dist.get_rank(slice_group)
        self.device = torch.device(device)
        self._reducer = Reducer(process_group, self.device)
        store.clear()
        self.stream = CreditStream(
            settings.method.rule,
            head=head,
            temperature=temperature,
            store=store,
            process_group=self._reducer,
            device=self.device,
        )
        self.watch = Stopwatch(self.device)
        # On the host: the sequences' indices, their numbers of valid tokens, and each valid token's index in its response.
        self._rows: list[Tensor] = []
        self._lengths: list[Tensor] = []
        self._within: list[Tensor] = []
        # On the device.
        self._logps: list[Tensor] = []
        self._entropy: list[Tensor] = []
        self._positions: Tensor | None = None
        self._asked: dict[str, Any] = {}

    def add_hidden(self, micro: MicroBatch, hidden: Float[Tensor, "..."]) -> None:
        """Keep the hidden states [1, packed, d] or [batch, padded, d] of a micro-batch's valid response tokens."""
        with self.watch:
            if self._positions is not None:
                raise RuntimeError("the decoder ran twice in one micro-batch: hidden states would not match log-probs")
            valid = places(micro, hidden.shape, self.slice_rank, self.slice_count)
            self._rows.append(micro.rows)
            self._lengths.append(valid.lengths)
            self._within.append(valid.within)
            local, self._positions, ids = self._moved(torch.stack([valid.local, valid.positions, valid.ids]))
            rows = hidden.detach().flatten(0, 1)[local] if self.stream.needs_hidden else None
            try:
                self.stream.add(rows, lengths=self._moved(valid.lengths), token_count=len(valid.ids), tokens=ids)
            except ValueError as error:
                raise ValueError(
                    f"{error} (in a verl run these are delta.store_device_gb and delta.store_host_gb, per rank)"
                ) from error

    def add_outputs(self, logps: Float[Tensor, " packed"], entropy: Float[Tensor, " packed"] | None) -> None:
        """Keep the log-probs and entropies of the micro-batch of the last `add_hidden`, given over the whole packed row."""
        with self.watch:
            positions = self._positions
            if positions is None:
                raise RuntimeError(
                    "the engine gave log-probs, but the module that get_decoder() returns never ran, so that there are no hidden "
                    "states: this model is not supported"
                )
            self._positions = None
            self._logps.append(logps.detach()[positions])
            if entropy is not None:
                self._entropy.append(entropy.detach()[positions])

    def solve(
        self,
        advantages: Float[Tensor, " batch"],
        response_lengths: Int[Tensor, " batch"],
        *,
        rewards: Float[Tensor, " batch"],
        groups: Int[Tensor, " batch"],
        keys: Int[Tensor, " batch"],
        round_number: int,
    ) -> tuple[CreditRecord, dict[str, Float[Tensor, " response_token"]]]:
        """Return the record, and its token arrays over all response tokens, sequence by sequence in the order of the batch.

        The advantages of a group whose `rewards` are equal count as 0: verl's are rounding errors, which only the loss uses. Arguments
        are in host memory. Every rank of the process group must call this.
        """
        order = _joined(self._rows, torch.int64)
        if sorted(order.tolist()) != list(range(len(advantages))):
            raise RuntimeError(
                f"there are advantages of {len(advantages)} responses, but the old-log-prob pass had {len(order)}: "
                "both must be of the same batch on the same rank"
            )
        starts = response_lengths.cumsum(0) - response_lengths
        row = torch.repeat_interleave(order, _joined(self._lengths, torch.int64))
        within = _joined(self._within, torch.int64)
        if bool((within >= response_lengths[row]).any()):
            raise RuntimeError("the lengths of the responses differ from those in the old-log-prob pass")
        advantages = advantages.masked_fill(self._alike(rewards, groups), 0.0)
        self._asked = {
            "advantages": advantages[order],
            "logps": _joined(self._logps, torch.float32, self.device),
            "entropy": torch.cat(self._entropy) if self._entropy else None,
            "groups": groups[order],
            "keys": keys[order],
            "round_number": round_number,
        }
        record = self.stream.solve(**self._asked)
        target = self._moved(starts[row] + within)
        total = int(response_lengths.sum())
        return record, {
            name: self._laid_out(values, target, total)
            for name, values in (
                ("weights", record.weights),
                ("alpha", record.alpha),
                ("margin", record.margin),
                ("margin_initial", record.margin_initial),
            )
            if values is not None
        }

    def _alike(self, rewards: Float[Tensor, " batch"], groups: Int[Tensor, " batch"]) -> Bool[Tensor, " batch"]:
        """Return which responses are in a group whose rewards are equal over all ranks."""
        # The slices of a sequence are on several ranks: only the first one counts it.
        counted = slice(None) if self.slice_rank == 0 else slice(0)
        all_groups, all_rewards = (
            self._reducer.gather(values[counted].to(self.device)) for values in (groups, rewards)
        )
        alike = rewarded_alike(all_rewards, all_groups.unique(return_inverse=True)[1])
        return torch.isin(groups, all_groups[alike].cpu())

    def diagnosed(self, record: CreditRecord) -> CreditRecord:
        """Return the record of the last solve with diagnostics (`credit.diagnostics`). Every rank must call this.

        This is a second solve, so that the seconds of `solve` are comparable between all steps.
        """
        return replace(record, diagnostics=self.stream.solve(**self._asked, diagnose=True).diagnostics)

    def _moved(self, values: Tensor) -> Tensor:
        """Copy from host memory to the device, without waiting for it."""
        if self.device.type == "cuda":
            values = values.pin_memory()
        return values.to(self.device, non_blocking=True)

    def _laid_out(self, values: Tensor, target: Tensor, total: int) -> Tensor:
        laid_out = torch.zeros(total, dtype=values.dtype, device=values.device)
        laid_out[target] = values
        if self.slice_group is not None:
            # Each token is in one slice only: the sum joins the slices.
            dist.all_reduce(laid_out, group=self.slice_group)
        return laid_out


class Stopwatch:
    """Seconds spent in its `with` blocks. On a GPU events measure the time, without a wait for the device."""

    def __init__(self, device: torch.device):
        self._cuda = device.type == "cuda"
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def __enter__(self) -> Stopwatch:
        if self._cuda:
            begin = torch.cuda.Event(enable_timing=True)
            begin.record()
            self._events.append((begin, torch.cuda.Event(enable_timing=True)))
        else:
            self._begin = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        if self._cuda:
            self._events[-1][1].record()
        else:
            self._seconds += time.perf_counter() - self._begin

    @property
    def seconds(self) -> float:
        """The sum so far. Waits for the device."""
        for begin, end in self._events:
            end.synchronize()
            self._seconds += begin.elapsed_time(end) / 1e3
        self._events.clear()
        return self._seconds


def _joined(parts: list[Tensor], dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    return torch.cat(parts) if parts else torch.zeros(0, dtype=dtype, device=device)


def stable_numbers(texts: list[str]) -> Tensor:
    """Return one integer per text, the same on every rank."""
    digests = [int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big") for text in texts]
    return torch.tensor(digests, dtype=torch.int64)
