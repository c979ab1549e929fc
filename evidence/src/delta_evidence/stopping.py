"""When a study ends before its last run: on a signal, or when its time is up."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from delta_rlvr.exit_codes import ExitCode


class Stopped(Exception):
    """The study ends here. What was trained so far is in its checkpoint."""


class Stop:
    """Takes note of SIGINT and SIGTERM while it is entered, and of a limit in seconds from when it was made.

    A first signal asks for an end at the next place where nothing is lost; a second SIGINT interrupts at once.
    """

    def __init__(self, seconds: float | None = None, tell: Callable[[str], None] = lambda _: None):
        if seconds is not None and seconds <= 0:
            raise ValueError(f"seconds={seconds:g}: give more than 0")
        self.signal: int | None = None
        """The signal that came, if one did."""
        self._end = None if seconds is None else time.monotonic() + seconds
        self._tell = tell
        self._before: dict[int, Any] = {}

    def due(self, needed: float = 0.0) -> bool:
        """Whether to stop now, as a signal came or `needed` more seconds would be too many."""
        return self.signal is not None or (self._end is not None and time.monotonic() + needed > self._end)

    def exit_code(self, done: bool) -> int:
        """Of a command that ended by itself: by the signal that came, or by whether all was `done`."""
        if self.signal is not None:
            return 128 + self.signal
        return ExitCode.DONE if done else ExitCode.INCOMPLETE

    def check(self, needed: float = 0.0) -> None:
        """Stop here where that is due."""
        if self.due(needed):
            raise Stopped

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others cannot set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
        self._tell("stopping as soon as nothing is lost by it; interrupt again to stop at once")
