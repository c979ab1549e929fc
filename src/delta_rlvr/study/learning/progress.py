"""Where a study stands and how long it will still take, at least every ten seconds."""

from __future__ import annotations

import threading
import time
from typing import Self

from delta_rlvr.spelling import duration
from delta_rlvr.study.phases import Phases

EVERY = 10.0  # seconds


class Progress:
    """Tells from a thread of its own, so that one long step does not keep it silent."""

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
