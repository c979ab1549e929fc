"""The store of proxy rows between the old-log-prob pass and the solve.

Rows are kept on the device while its budget lasts, then in host memory (pinned, for a GPU). If neither has room, rows that the caller
can compute again are not kept. Readers get chunks of rows on the device, wherever they were.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

# Pinned memory is allocated in slabs of this size (torch rounds up to a power of two anyway) and kept from batch to batch, because
# pinning takes far longer than copying.
SLAB_BYTES = 1 << 28


@dataclass
class _Chunk:
    """The rows `start:stop` of the batch, on the device or in host memory, or the function that computes them again."""

    start: int
    stop: int
    rows: Tensor | None
    recompute: Callable[[], Tensor] | None = None


class RowStore:
    """Rows [token, width] in the order in which they were added, within byte budgets.

    `device_bytes` defaults to half of the GPU memory that is free at the first row of a batch (rows on the CPU have no limit), and
    `host_bytes` to this rank's part of half of the node's free memory (rows on the CPU have no second place).
    """

    def __init__(self, *, device_bytes: int | None = None, host_bytes: int | None = None, ranks_on_node: int = 1):
        for name, value in (("device_bytes", device_bytes), ("host_bytes", host_bytes)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise ValueError(f"{name}={value!r}: give a number of bytes, or None to decide by free memory")
        self.device_bytes = device_bytes
        self.host_bytes = host_bytes
        self.ranks_on_node = ranks_on_node
        self._slabs: list[Tensor] = []
        self._copies: torch.cuda.Stream | None = None
        self.clear()

    def clear(self) -> None:
        """Forget the rows. Pinned memory is kept for the next batch."""
        self._chunks: list[_Chunk] = []
        self._slab_used = [0] * len(self._slabs)
        self._room_on_device: int | None = None
        self._room_on_host: int | None = None
        self.bytes_on_device = 0
        self.bytes_on_host = 0
        self.width: int | None = None
        self.dtype: torch.dtype | None = None
        self.device: torch.device | None = None

    def __len__(self) -> int:
        return self._chunks[-1].stop if self._chunks else 0

    def add(
        self, rows: Float[Tensor, "token width"], recompute: Callable[[], Float[Tensor, "token width"]] | None = None
    ) -> None:
        """Keep `rows`. `recompute` computes them again; it is used only where there is no room for them."""
        here = (rows.shape[1], rows.device, rows.dtype)
        if self.width is not None and here != (self.width, self.device, self.dtype):
            raise ValueError(
                f"hidden: this micro-batch has width {rows.shape[1]} ({rows.dtype}) on {rows.device}, "
                f"earlier ones had {self.width} ({self.dtype}) on {self.device}"
            )
        self.width, self.device, self.dtype = rows.shape[1], rows.device, rows.dtype
        if self._room_on_device is None:
            self._room_on_device = self._free_on_device(rows.device)
            self._room_on_host = self._free_on_host(rows.device)
        size = rows.numel() * rows.element_size()
        start = len(self)
        if size <= self._room_on_device - self.bytes_on_device:
            self._chunks.append(_Chunk(start, start + len(rows), rows))
            self.bytes_on_device += size
        elif self._room_on_host is not None and size <= self._room_on_host - self.bytes_on_host:
            self._add_to_host(rows, start)
        elif recompute is not None:
            self._chunks.append(_Chunk(start, start + len(rows), None, recompute))
        else:
            raise ValueError(
                f"the store has no room for {size:,} more bytes (device budget {self._room_on_device:,}, of which "
                f"{self.bytes_on_device:,} are used; host budget {self._room_on_host or 0:,}, of which "
                f"{self.bytes_on_host:,} are used): raise device_bytes or host_bytes, use a smaller rollout batch, "
                "or pass `recompute`"
            )

    @property
    def held(self) -> list[tuple[int, Float[Tensor, "_ width"]]] | None:
        """The start and the rows of each chunk, if all of them are on the device; else None."""
        on_device = [
            (chunk.start, chunk.rows)
            for chunk in self._chunks
            if chunk.rows is not None and chunk.rows.device == self.device
        ]
        return on_device if len(on_device) == len(self._chunks) else None

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """(start, stop) of each chunk."""
        return [(chunk.start, chunk.stop) for chunk in self._chunks]

    def chunks(self, wanted: Sequence[bool] | None = None) -> Iterator[tuple[slice, Float[Tensor, "token width"]]]:
        """Yield the place and the rows (on the device) of each wanted chunk, in order; host rows are fetched one chunk ahead."""
        wanted = [True] * len(self._chunks) if wanted is None else wanted
        todo = [chunk for chunk, yes in zip(self._chunks, wanted, strict=True) if yes]
        ahead = [self._fetch(chunk) for chunk in todo[:1]]
        for number, chunk in enumerate(todo):
            fetch = ahead.pop()
            ahead = [self._fetch(later) for later in todo[number + 1 : number + 2]]
            yield slice(chunk.start, chunk.stop), fetch()

    def __str__(self) -> str:
        """Describe where the rows are and how many bytes they take."""
        recomputed = sum(chunk.stop - chunk.start for chunk in self._chunks if chunk.rows is None)
        parts = []
        if self.bytes_on_device:
            parts.append(f"{self.bytes_on_device / 1e6:,.1f} MB on {self.device}")
        if self.bytes_on_host:
            pinned = "" if self._copies is None else "pinned "
            parts.append(f"{self.bytes_on_host / 1e6:,.1f} MB in {pinned}host memory")
        if recomputed:
            parts.append(f"{recomputed:,} tokens recomputed in every pass for lack of memory")
        return f"{len(self):,} tokens: " + (", ".join(parts) or "nothing held")

    def _free_on_device(self, device: torch.device) -> int:
        if self.device_bytes is not None:
            return self.device_bytes
        if device.type != "cuda":
            return 1 << 62
        # Memory that torch has cached but does not use is free, too. (One call for all numbers: each takes part of a millisecond.)
        memory = torch.cuda.memory_stats(device)
        unused = memory.get("reserved_bytes.all.current", 0) - memory.get("allocated_bytes.all.current", 0)
        return (torch.cuda.mem_get_info(device)[0] + unused) // 2

    def _free_on_host(self, device: torch.device) -> int | None:
        """Return the bytes of free host memory, or None if the rows are on the CPU already and no budget was given."""
        if self.host_bytes is not None:
            return self.host_bytes
        if device.type != "cuda":
            return None
        free_pages, page = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        return sum(slab.numel() for slab in self._slabs) + free_pages * page // (2 * self.ranks_on_node)

    def _add_to_host(self, rows: Tensor, start: int) -> None:
        """Copy rows to slabs; from a GPU on a separate stream, so that the forward pass continues meanwhile."""
        if rows.is_cuda:
            if self._copies is None:
                self._copies = torch.cuda.Stream(rows.device)
            self._copies.wait_stream(torch.cuda.current_stream(rows.device))
        rows = rows.contiguous()
        row_bytes = rows.shape[1] * rows.element_size()
        done = 0
        while done < len(rows):
            slab, used = self._slab_with_room(row_bytes, pinned=rows.is_cuda)
            count = min(len(rows) - done, (slab.numel() - used) // row_bytes)
            held = slab[used : used + count * row_bytes].view(rows.dtype).view(count, rows.shape[1])
            with nullcontext() if self._copies is None else torch.cuda.stream(self._copies):
                held.copy_(rows[done : done + count], non_blocking=True)
            self._slab_used[self._current_slab] = used + count * row_bytes
            self._chunks.append(_Chunk(start + done, start + done + count, held))
            self.bytes_on_host += count * row_bytes
            done += count
        if self._copies is not None:
            rows.record_stream(self._copies)

    def _slab_with_room(self, row_bytes: int, pinned: bool) -> tuple[Tensor, int]:
        for number, slab in enumerate(self._slabs):
            # Slabs are aligned to 16 bytes, and `used` is a multiple of the item size, because a batch has one width and dtype.
            if slab.numel() - self._slab_used[number] >= row_bytes:
                self._current_slab = number
                return slab, self._slab_used[number]
        self._slabs.append(torch.empty(max(SLAB_BYTES, row_bytes), dtype=torch.uint8, pin_memory=pinned))
        self._slab_used.append(0)
        self._current_slab = len(self._slabs) - 1
        return self._slabs[-1], 0

    def _fetch(self, chunk: _Chunk) -> Callable[[], Tensor]:
        """Start copying the chunk's rows to the device; return a function that waits for them and returns them."""
        rows = chunk.rows
        if rows is None:
            assert chunk.recompute is not None
            return chunk.recompute
        if rows.device == self.device or self._copies is None:
            return lambda: rows
        with torch.cuda.stream(self._copies):
            fetched = rows.to(self.device, non_blocking=True)
            ready = self._copies.record_event()

        def wait() -> Tensor:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(ready)
            fetched.record_stream(stream)
            return fetched

        return wait
