"""What a sandbox takes of the machine's memory, as the kernel counts it."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

MOST_SECONDS, LEAST_SECONDS = 0.1, 0.002  # between two looks
BYTES_PER_SECOND = 4e9  # of new memory that one processor can fill at most
KIB = 1024
PIPE = 8192  # what a pipe holds once its user has many
# Lines of /proc/*/status and of smaps_rollup, and the bytes that one of their units stands for.
KERNEL = {"FDSize": PIPE, "VmPTE": KIB}
OWN = {"RssAnon": KIB, "RssShmem": KIB, "VmSwap": KIB, "HugetlbPages": KIB}
PROPORTIONAL = {"Pss_Anon": KIB, "Pss_Shmem": KIB, "SwapPss": KIB, "Shared_Hugetlb": KIB, "Private_Hugetlb": KIB}
WHOLE = {"Pss": KIB}  # where the kernel is older than 5.4 and does not say of what kind


class Memory:
    """The processes of a sandbox, found by their namespace: none can leave it, whatever became of its parents and first thread."""

    def __init__(self, first: int, limit: int, folders: list[int]) -> None:
        self.limit = limit
        self._folders = folders  # those in memory, held open
        self._sockets = f"/proc/{first}/net/sockstat"
        with socket.socket(socket.AF_UNIX) as example:
            self._socket_bytes = example.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        # The sandbox's own /proc, which shows its processes and no others.
        self._processes = os.open(f"/proc/{first}/root/proc", os.O_RDONLY | os.O_DIRECTORY)
        self._rate = BYTES_PER_SECOND * len(os.sched_getaffinity(0))
        self._next = time.monotonic() + self._pause(limit)

    def close(self) -> None:
        os.close(self._processes)

    def _pause(self, left: int, least: float = LEAST_SECONDS) -> float:
        """The less is left, the sooner comes the next look: no burst in between can go far beyond the limit."""
        return min(max(left / self._rate, least), MOST_SECONDS)

    def seconds_to_next_look(self) -> float:
        return max(self._next - time.monotonic(), 0.0)

    def is_exceeded(self) -> bool:
        """Look, if it is time to."""
        start = time.monotonic()
        if start < self._next:
            return False
        used = self._sockets_and(lambda name: self._of(name, "status", OWN | KERNEL))
        for pause in (0.0, 0.01):
            # Pages that processes share were counted for each: the kernel divides them, which takes it longer. And once more,
            # because a child that is about to execute another program has all of its parent's for a moment.
            if used > self.limit:
                time.sleep(pause)
                used = self._sockets_and(self._share)
        now = time.monotonic()
        self._next = now + self._pause(self.limit - used, max(LEAST_SECONDS, 4 * (now - start)))
        return used > self.limit

    def _sockets_and(self, count: Callable[[str], int]) -> int:
        names = (name for name in os.listdir(self._processes) if name.isdigit())
        return self._in_sockets() + self._in_files() + sum(map(count, names))

    def _in_files(self) -> int:
        rooms = map(os.fstatvfs, self._folders)
        return sum((room.f_blocks - room.f_bfree) * room.f_frsize for room in rooms)

    def _in_sockets(self) -> int:
        """As if every socket were full, with what the kernel keeps beside its bytes: no file says how full it is."""
        with contextlib.suppress(OSError):
            return int(Path(self._sockets).read_text().split()[2]) * 2 * self._socket_bytes
        return 0

    def _share(self, process: str) -> int:
        share = self._of(process, "smaps_rollup", PROPORTIONAL) or self._of(process, "smaps_rollup", WHOLE)
        # Where this process may not look into another user's: all that it maps.
        return (share or self._of(process, "status", OWN)) + self._of(process, "status", KERNEL)

    def _of(self, process: str, file: str, units: dict[str, int]) -> int:
        """The sum of these lines in bytes; nothing of a process that is gone. Where the first thread has ended, another knows."""
        with contextlib.suppress(OSError):
            if found := self._sum(f"{process}/{file}", units):
                return found
            folder = os.open(f"{process}/task", os.O_RDONLY, dir_fd=self._processes)
            try:
                sums = (self._sum(f"{process}/task/{thread}/{file}", units) for thread in os.listdir(folder))
                return next(filter(None, sums), 0)
            finally:
                os.close(folder)
        return 0

    def _sum(self, path: str, units: dict[str, int]) -> int:
        try:
            with open(os.open(path, os.O_RDONLY, dir_fd=self._processes)) as lines:
                parts = (line.partition(":") for line in lines)
                return sum(int(value.split()[0]) * units[name] for name, _, value in parts if name in units)
        except OSError:
            return 0
