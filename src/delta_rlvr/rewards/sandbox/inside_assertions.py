"""Inside the tester's sandbox: runs the data set's own test source against a stand-in for the candidate.

The candidate lives in another sandbox. The stand-in sends the arguments there and gives back what comes, rebuilt as
plain built-in values, so nothing that the candidate wrote runs in the process that judges it.
"""

# mypy: disable-error-code="no-untyped-def"
import builtins

from delta_rlvr.rewards.sandbox.inside import describe, read_message, write_message
from delta_rlvr.rewards.sandbox.wire import decode, encode


class Calls:
    """How the stand-in reaches the candidate; counts the calls, because a test that makes none tests nothing."""

    def __init__(self, requests, replies, in_place):  # noqa: ANN
        self.requests, self.replies, self.in_place = requests, replies, in_place
        self.count = 0

    def __call__(self, *positional, **named):  # noqa: ANN
        self.count += 1
        write_message(self.replies, ("call", self.count, encode((positional, named))))
        return receive(read_message(self.requests), positional, named, self.in_place)


def receive(message, positional, named, in_place):  # noqa: ANN
    """The candidate's return value, or its exception as the built-in of the same name."""
    if message[0] == "value":
        if in_place:
            copy_back(positional, named, *decode(message[3]))
        return decode(message[2])
    _, _, name, text = message
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            error = kind(text)
        except TypeError:  # UnicodeDecodeError and its like want more than a text
            error = RuntimeError(name + ": " + text)
        raise error
    raise RuntimeError(name + ": " + text)


def copy_back(positional, named, new_positional, new_named):  # noqa: ANN
    """For tests that look at an argument after the call: give lists, dicts and sets their new contents."""
    pairs = [*zip(positional, new_positional), *((named[key], new_named.get(key)) for key in named)]  # noqa: B905
    for old, new in pairs:
        if isinstance(old, list) and isinstance(new, list):
            old[:] = new
        elif (isinstance(old, dict) and isinstance(new, dict)) or (
            isinstance(old, set) and isinstance(new, set)
        ):
            old.clear()
            old.update(new)


def run_tests(job, call):  # noqa: ANN
    """("passed", calls) or ("failed", type, text): the test source's own opinion."""
    names = {"__name__": "tests", "__builtins__": builtins}
    try:
        if job["setup"]:
            exec(compile(job["setup"], "setup.py", "exec"), names)
    except BaseException as error:
        return ("unusable", *describe(error))
    names[job["entry"]] = call
    try:
        exec(compile(job["source"], "tests.py", "exec"), names)
    except BaseException as error:
        return ("failed", *describe(error))
    return ("passed", call.count)


def serve_assertions(job, requests, replies):  # noqa: ANN
    write_message(replies, ("ready",))
    write_message(replies, run_tests(job, Calls(requests, replies, job["in_place"])))
