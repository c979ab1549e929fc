"""On a remote server: the same work without a pipe. Answers are printed, each on a line behind a mark."""

# mypy: disable-error-code="no-untyped-def"
import base64
import os
import signal

from delta_rlvr.rewards.sandbox.inside import answer, describe, load
from delta_rlvr.rewards.sandbox.inside_assertions import receive, run_tests
from delta_rlvr.rewards.sandbox.wire import decode, encode


class Late(BaseException):
    """A call overran its limit."""


class Guess:
    """Stands for an answer that is not known yet, so that the tests go on to their next call."""

    def _same(self, *_, **__):  # noqa: ANN
        return self

    def _yes(self, *_):  # noqa: ANN
        return True

    __getattr__ = __call__ = __getitem__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = (
        _same
    )
    __truediv__ = __rtruediv__ = __mod__ = __neg__ = __abs__ = __round__ = _same
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = _yes  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __iter__(self):  # noqa: ANN
        return iter(())

    def __len__(self):  # noqa: ANN
        return 0


class Replay:
    """Answers the tests' calls from a list; where it ends, the rest of the run only collects calls."""

    def __init__(self, known, in_place, put):  # noqa: ANN
        self.known, self.in_place, self.put = known, in_place, put
        self.count, self.guessing = 0, False

    def __call__(self, *positional, **named):  # noqa: ANN
        arguments = encode((positional, named))
        at, self.count = self.count, self.count + 1
        self.put(("call", at, arguments))
        if not self.guessing and at < len(self.known) and self.known[at][0] == arguments:
            return receive(self.known[at][1], positional, named, self.in_place)
        self.guessing = True
        return Guess()


def main(data):  # noqa: ANN
    job = decode(data)
    out = os.dup(1)
    os.dup2(os.open("/dev/null", os.O_RDWR), 1)

    def put(message):  # noqa: ANN
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


def make_calls(job, put):  # noqa: ANN
    def overran(*_):  # noqa: ANN
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
