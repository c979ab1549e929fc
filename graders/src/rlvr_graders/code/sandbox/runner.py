"""What the grader asks of a sandbox: calls of a function, runs of a whole program, a test's own source against a program."""

from __future__ import annotations

import builtins
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rlvr_graders.code.cases import AssertionTests
from rlvr_graders.code.sandbox import bubblewrap
from rlvr_graders.code.sandbox.errors import ProgramFailure, SandboxError
from rlvr_graders.code.sandbox.session import Session
from rlvr_graders.code.sandbox.wire import encode
from rlvr_graders.code.settings import CodeSettings

PAUSES = (0.2, 1.0)  # seconds before a second and a third attempt to start a sandbox
ERROR_TAIL = 2000  # characters of an error's text that are looked at
GRACE = 0.25  # of the limit: the inside ends a run itself and says so; only where it cannot does the outside


class Runner:
    """One sandbox for each program, two where the tests are source code of their own.

    Every method raises ProgramFailure where the program fails; closing an iterator ends its sandbox.
    """

    def __init__(self, settings: CodeSettings, stop: threading.Event | None = None) -> None:
        bubblewrap.check(settings.packages)
        self.settings = settings
        self.stop = stop

    @contextlib.contextmanager
    def _sessions(self, *jobs: tuple[str, dict[str, Any]]) -> Iterator[list[Session]]:
        """Sandboxes that have started, side by side. A start that fails is tried again: a machine may be full."""
        with contextlib.ExitStack() as stack:
            for pause in (*PAUSES, None):
                try:
                    started = (Session(mode, job, self.settings, self.stop) for mode, job in jobs)
                    sessions = [stack.enter_context(session) for session in started]
                    for session in sessions:
                        session.begin()
                    break
                except (SandboxError, OSError) as error:
                    stack.close()
                    if pause is None:
                        raise SandboxError(str(error)) from error
                    time.sleep(pause)
            yield sessions

    def calls(
        self, program: str, entry: str, arguments: Iterable[tuple[tuple[Any, ...], int]], preamble: str = ""
    ) -> Iterator[bytes]:
        """Load the program once and yield the function's return values, in `wire` form.

        With each call's arguments comes how many bytes its value may have; a longer one is not read.
        """
        job = {"preamble": preamble, "program": program, "entry": entry, "return_arguments": False}
        with self._sessions(("calls", job)) as (session,):
            clock = Clock(self.settings)
            ready(session, clock)
            for number, (positional, most) in enumerate(arguments):
                answer = call(session, clock, number, encode((positional, {})), most)
                if answer[0] == "error":
                    raise raised(answer[3], answer[4])
                yield answer[2]

    def runs(self, program: str, inputs: Sequence[tuple[str, int]]) -> Iterator[str]:
        """Run the whole program once for each input and yield what it prints; at so many bytes it is ended."""
        with self._sessions(("runs", {"program": program})) as (session,):
            clock = Clock(self.settings)
            ready(session, clock)
            for number, (text, most) in enumerate(inputs):
                seconds = clock.seconds()
                deadline = time.monotonic() + (1 + GRACE) * seconds
                most = min(most, self.settings.output_bytes)
                session.send(("run", number, text.encode("utf-8", "surrogatepass"), seconds, most), deadline)
                answer = clock.timed(seconds, session.receive, deadline, "finish")
                _expect(answer, number, {"output": (str, int, bytes, bytes)})
                yield _output(answer, seconds, most)

    def assertions(self, program: str, tests: AssertionTests) -> None:
        """Run a test's own source against the program, each in a sandbox of its own."""
        entry, in_place = tests.entry_point, tests.in_place
        source = {"preamble": tests.preamble, "program": program, "entry": entry}
        candidate_job = {**source, "return_arguments": in_place}
        tester_job = {"entry": entry, "source": tests.source, "setup": tests.setup, "in_place": in_place}
        with self._sessions(("calls", candidate_job), ("assertions", tester_job)) as (candidate, tester):
            clock = Clock(self.settings)
            ready(candidate, clock)
            tester.receive(clock.end, "get the tests ready")
            left = self.settings.output_bytes
            while True:
                message = tester.receive(clock.end, "finish the tests")
                if message[0] != "call":
                    return last_word(message)
                answer = call(candidate, clock, message[1], message[2])
                left -= sum(len(part) for part in answer[2:])
                if left < 0:
                    raise ProgramFailure(f"too much output: more than {self.settings.output_bytes} bytes")
                if answer[0] == "error" and not _is_ordinary(answer[2]):
                    raise raised(answer[3], answer[4])
                tester.send(answer, clock.end)


class Clock:
    """The limit of each test and of all of them together."""

    def __init__(self, settings: CodeSettings) -> None:
        self.settings = settings
        self.end = time.monotonic() + settings.seconds_total

    def seconds(self) -> float:
        """What the next test may take."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise ProgramFailure(f"timed out: all tests together took more than {self.settings.seconds_total:g} s")
        return min(self.settings.seconds_per_test, left)

    def timed(self, seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call `function`, and word a failure that comes after the limit as what it is."""
        start = time.monotonic()
        try:
            return function(*arguments)
        except ProgramFailure as failure:
            if time.monotonic() - start >= seconds and str(failure).startswith("timed out"):
                raise ProgramFailure(f"timed out after {seconds:.3g} s") from None
            raise


def ready(session: Session, clock: Clock) -> None:
    """Wait until the program's top level has run."""
    seconds = clock.seconds()
    message = clock.timed(seconds, session.receive, time.monotonic() + seconds, "load")
    if message[0] == "broken" and [type(item) for item in message] == [str] * 4:
        raise ProgramFailure(f"does not load: {raised(message[2], message[3])}")
    if message != ("ready",):
        raise ProgramFailure("wrote something else to the grader's pipe")


def call(session: Session, clock: Clock, number: int, arguments: bytes, most: int | None = None) -> tuple[Any, ...]:
    """One call of the program's function: its answer, checked for form but not for truth."""
    seconds = clock.seconds()
    deadline = time.monotonic() + seconds
    session.send(("call", number, arguments), deadline)
    answer: tuple[Any, ...] = clock.timed(seconds, session.receive, deadline, "answer", most)
    _expect(answer, number, {"value": (bytes, bytes), "error": (str, str, str)})
    return answer


def _expect(answer: tuple[Any, ...], number: int, forms: dict[str, tuple[type, ...]]) -> None:
    """An answer that a program forged must at least have the form of one."""
    form = forms.get(answer[0])
    if form is None or tuple(map(type, answer[1:])) != (int, *form) or answer[1] != number:
        raise ProgramFailure("wrote something else to the grader's pipe")


def _output(answer: tuple[Any, ...], seconds: float, most_output: int) -> str:
    _, _, status, code, output, errors = answer
    if status == "timeout":
        raise ProgramFailure(f"timed out after {seconds:.3g} s")
    if status == "overflow":
        raise ProgramFailure(f"too much output: more than {most_output} bytes")
    if code != 0:
        lines = errors[-ERROR_TAIL:].decode("utf-8", "replace").strip().splitlines()
        if lines and lines[-1].startswith("MemoryError"):
            raise ProgramFailure("ran out of memory")
        detail = f": {lines[-1][:200]}" if lines else ""
        how = f"ended by signal {-code}" if code < 0 else f"ended with status {code}"
        raise ProgramFailure(how + detail)
    return str(output.decode("utf-8", "replace"))


def _is_ordinary(base: str) -> bool:
    """Whether the tests may see the exception. Others mean more than an error where the tests stand: StopIteration
    ends their loop over `map(function, inputs)` and passes for success."""
    kind = getattr(builtins, base, None)
    special = (StopIteration, StopAsyncIteration, MemoryError)
    return isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, special)


def raised(kind: str, text: str) -> ProgramFailure:
    """The failure for an exception that the program let out."""
    if kind == "MemoryError":
        return ProgramFailure("ran out of memory")
    if kind == "SystemExit":
        return ProgramFailure("ended before answering: it called exit")
    return ProgramFailure(f"raised {kind[:100]}{_first_line(text)}")


def _first_line(text: str) -> str:
    lines = text[:ERROR_TAIL].strip().splitlines()
    return f": {lines[0][:200]}" if lines else ""


def last_word(message: tuple[Any, ...]) -> None:
    """Read the tester's last word; it comes from a sandbox that the candidate cannot reach."""
    if message[0] == "passed":
        if message[1] == 0:
            raise ProgramFailure("the tests cannot judge: they never call the program")
        return
    _, _, kind, text = message
    if message[0] == "unusable":
        raise ProgramFailure(f"the tests cannot run: their setup {raised(kind, text)}")
    if kind == "AssertionError":
        raise ProgramFailure(f"wrong answer{_first_line(text)}")
    raise raised(kind, text)
