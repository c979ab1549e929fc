"""Inside the tester's sandbox: runs the data set's own test source against a stand-in for the candidate.

The candidate lives in another sandbox. The stand-in sends the arguments there and gives back what comes, rebuilt as
plain built-in values, so nothing that the candidate wrote runs in the process that judges it.
"""

from __future__ import annotations

import builtins

from rlvr_graders.code.sandbox.inside import compiled, describe, read_message, write_message
from rlvr_graders.code.sandbox.wire import decode, encode

TYPE_CHECKING = False  # typing's own constant, without the milliseconds that importing typing takes
if TYPE_CHECKING:
    from typing import Any


def receive(message: tuple[Any, ...], positional: tuple[Any, ...], named: dict[str, Any], in_place: bool) -> Any:
    """The candidate's return value, or its exception: a built-in one, or a class of the same name and built-in base."""
    if message[0] == "value":
        if in_place:
            copy_back(positional, named, *decode(message[3]))
        return decode(message[2])
    _, _, base, name, text = message
    kind = getattr(builtins, base)  # the grader has seen to it that this is an ordinary exception
    if name != base or kind is KeyError:  # which would put quotes around its text once more
        kind = type(name, (kind,), {"__str__": lambda _: text})
    try:
        error = kind(text)
    except TypeError:  # UnicodeDecodeError and its like want more than a text
        error = Exception(name + ": " + text)
    raise error


def copy_back(positional: Any, named: Any, new_positional: Any, new_named: Any) -> None:
    """For tests that look at an argument after the call: give lists, dicts and sets their new contents."""
    pairs = [*zip(positional, new_positional, strict=False), *((named[key], new_named.get(key)) for key in named)]
    for old, new in pairs:
        if isinstance(old, list) and isinstance(new, list):
            old[:] = new
        elif (isinstance(old, dict) and isinstance(new, dict)) or (isinstance(old, set) and isinstance(new, set)):
            old.clear()
            old.update(new)


def run_tests(job: dict[str, Any], requests: int, replies: int) -> tuple[Any, ...]:
    """("passed", calls) or ("failed", base, type, text): the test source's own opinion."""
    calls = 0  # counted, because a test that makes none tests nothing

    def candidate(*positional: Any, **named: Any) -> Any:
        nonlocal calls
        write_message(replies, ("call", calls, encode((positional, named))))
        calls += 1
        return receive(read_message(requests), positional, named, job["in_place"])

    candidate.__name__ = candidate.__qualname__ = job["entry"]
    names = {"__name__": "tests", "__builtins__": builtins}
    try:
        exec(compiled(job["setup"], "setup.py"), names)
    except BaseException as error:
        return ("unusable", *describe(error))
    names[job["entry"]] = candidate
    try:
        exec(compiled(job["source"], "tests.py"), names)
    except BaseException as error:
        return ("failed", *describe(error))
    return ("passed", calls)


def serve_assertions(job: dict[str, Any], requests: int, replies: int) -> None:
    write_message(replies, ("ready",))
    write_message(replies, run_tests(job, requests, replies))
