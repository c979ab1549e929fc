"""What a grader asks of a sandbox, whichever kind it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from delta_rlvr.rewards.code_settings import CodeSettings
from delta_rlvr.rewards.sandbox.errors import ProgramFailure


class Runner(Protocol):
    """Runs programs. Every method raises ProgramFailure where the program fails; closing an iterator ends it."""

    def calls(self, program: str, entry: str, arguments: Sequence[tuple[Any, ...]]) -> Iterator[bytes]:
        """Load the program once and yield the function's return values, in `wire` form."""

    def runs(self, program: str, inputs: Sequence[str]) -> Iterator[str]:
        """Run the whole program once for each input and yield what it prints."""

    def assertions(self, program: str, entry: str, source: str, setup: str, in_place: bool) -> None:
        """Run a test's own source against the program, each in a sandbox of its own."""


def make_runner(settings: CodeSettings, stop: threading.Event | None = None) -> Runner:
    if settings.sandbox == "server":
        from delta_rlvr.rewards.sandbox.server import ServerRunner

        return ServerRunner(settings, stop)
    from delta_rlvr.rewards.sandbox.local import LocalRunner

    return LocalRunner(settings, stop)


def raised(kind: str, text: str) -> ProgramFailure:
    """The failure for an exception that the program let out."""
    if kind == "MemoryError":
        return ProgramFailure("ran out of memory")
    if kind == "SystemExit":
        return ProgramFailure("ended before answering: it called exit")
    line = text.strip().splitlines()[0][:200] if text.strip() else ""
    return ProgramFailure(f"raised {kind}: {line}" if line else f"raised {kind}")


def broken(kind: str, text: str) -> ProgramFailure:
    """The failure for a program that could not be loaded."""
    return ProgramFailure(f"does not load: {raised(kind, text)}")


def last_word(message: tuple[Any, ...]) -> None:
    """Read the tester's last word; it comes from a sandbox that the candidate cannot reach."""
    if message[0] == "passed":
        if message[1] == 0:
            raise ProgramFailure("the tests cannot judge: they never call the program")
        return
    _, kind, text = message
    if message[0] == "unusable":
        raise ProgramFailure(f"the tests cannot run: their setup {raised(kind, text)}")
    if kind == "AssertionError":
        line = text.strip().splitlines()[0][:200] if text.strip() else ""
        raise ProgramFailure(f"wrong answer: {line}" if line else "wrong answer")
    raise raised(kind, text)
