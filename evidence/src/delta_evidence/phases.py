"""What a study is doing at the moment, how long each kind of work takes, and how long all of it will still take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

import torch

from delta_rlvr.words import duration

EVERY = 10.0
"""Seconds between two lines about the progress."""


@dataclass
class Phases:
    """Names the work that is under way. `with phases("sampling"):` around each kind of it; they do not nest."""

    device: str | torch.device = "cpu"
    timed: bool = False
    """Wait for the device at both ends of a phase, so that its seconds are its own; this costs some of the overlap between device and
    host."""
    tell: Callable[[str], None] = lambda _: None
    """Receives what a user should know of the work, one sentence at a time."""
    on_enter: Callable[[], None] = lambda: None
    """Called before each phase; it may raise to end the work there."""
    now: str = "starting"
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of the device and the host by phase, if timed."""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.on_enter()
        self.now = name
        if not self.timed:
            yield
            return
        began = self._time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._time() - began

    def _time(self) -> float:
        if torch.device(self.device).type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


class ProgressLines:
    """Tells where a study stands from a thread of its own, so that one long step does not keep it silent."""

    def __init__(self, phases: Phases):
        self.where = "preparing"
        """What the lines begin with."""
        self.left = 0
        """Rollout batches to go, over all runs."""
        self._made = 0
        self.phases = phases
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self, where: str, left: int) -> None:
        """Another kind of work, whose pieces take another time."""
        self.where, self.left, self._made, self._began = where, left, 0, time.monotonic()

    def advance(self, batches: int) -> None:
        """So many more rollout batches are done."""
        self._made += batches
        self.left -= batches

    def line(self) -> str:
        line = f"  {self.where}, {self.phases.now}"
        if not self._made:
            return line
        seconds = (time.monotonic() - self._began) / self._made * self.left
        return f"{line}; about {duration(seconds)} left"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(EVERY):
            self.phases.tell(self.line())
