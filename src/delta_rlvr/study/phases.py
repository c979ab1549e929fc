"""What a study is doing at the moment and, where that is asked for, how long each kind of work takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class Phases:
    """Names the work that is under way. `with phases("sampling"):` around each kind of it; they do not nest."""

    def __init__(
        self,
        *,
        device: str | torch.device = "cpu",
        timed: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ):
        """`timed` waits for the device at both ends of a phase, so that its seconds are its own; this costs some of the
        overlap between device and host."""
        self.now = "starting"
        self.seconds: dict[str, float] = {}
        """Seconds of the device and the host by phase, if timed."""
        self.tell = tell
        """Receives what a user should know of the work, one sentence at a time."""
        self._device = torch.device(device)
        self._timed = timed
        self.on_enter: Callable[[], None] = lambda: None
        """Called before each phase; it may raise to end the work there."""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.on_enter()
        self.now = name
        if not self._timed:
            yield
            return
        began = self._time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._time() - began

    def _time(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
