"""On a remote server: the same work without a pipe. Answers are printed, each on a line behind a mark."""

from __future__ import annotations

import base64
import os
import signal

from delta_rlvr.rewards.sandbox.inside import answer, describe, load
from delta_rlvr.rewards.sandbox.inside_assertions import receive, run_tests
from delta_rlvr.rewards.sandbox.wire import decode, encode

TYPE_CHECKING = False  # typing's own constant, without the milliseconds that importing typing takes
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Late(BaseException):
    """A call overran its limit."""


class Guess:
    """Stands for an answer that is not known yet, so that the tests go on to their next call."""

    def _same(self, *_: Any, **__: Any) -> Guess:
        return self

    def _yes(self, *_: Any) -> bool:
        return True

    __getattr__ = __call__ = __getitem__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = (
        _same
    )
    __truediv__ = __rtruediv__ = __mod__ = __neg__ = __abs__ = __round__ = _same
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = _yes  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


class Replay:
    """Answers the tests' calls from a list; where it ends, the rest of the run only collects calls."""

    def __init__(self, known: list[Any], in_place: bool, put: Callable[[tuple[Any, ...]], None]) -> None:
        self.known, self.in_place, self.put = known, in_place, put
        self.count, self.guessing = 0, False

    def __call__(self, *positional: Any, **named: Any) -> Any:
        arguments = encode((positional, named))
        at, self.count = self.count, self.count + 1
        self.put(("call", at, arguments))
        if not self.guessing and at < len(self.known) and self.known[at][0] == arguments:
            return receive(self.known[at][1], positional, named, self.in_place)
        self.guessing = True
        return Guess()


def main(data: bytes) -> None:
    job = decode(data)
    out = os.dup(1)
    os.dup2(os.open("/dev/null", os.O_RDWR), 1)

    def put(message: tuple[Any, ...]) -> None:
        line = ("\n" + job["mark"]).encode() + base64.b64encode(encode(message)) + b"\n"
        while line:
            line = line[os.write(out, line) :]

    if job["mode"] == "calls":
        make_calls(job, put)
    else:
        calls = Replay(job["known"], job["in_place"], put)
        verdict = run_tests(job, calls)
        put(("unknown",) if calls.guessing else verdict)
    os._exit(0)


def make_calls(job: dict[str, Any], put: Callable[[tuple[Any, ...]], None]) -> None:
    def overran(*_: Any) -> None:
        raise Late

    signal.signal(signal.SIGALRM, overran)
    try:
        function = load(job["program"], job["entry"])
    except BaseException as error:
        put(("broken", *describe(error)))
        return
    for number, arguments in enumerate(job["calls"]):
        signal.setitimer(signal.ITIMER_REAL, job["seconds"])
        reply = answer(function, number, arguments, job["return_arguments"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        put(("late",) if reply[0] == "error" and reply[2] == "Late" else reply)
        if reply[0] == "error" and reply[2] == "Late":
            return
