"""What runs inside a sandbox: loads the program and answers the grader over a pipe.

Shipped to the sandbox as bytecode, so nothing of this package is mounted there. Everything here shares a process, or
a process tree, with the program under test and is therefore worth nothing as a judge: it reports what the program
returned or printed, and a program that takes this code over can only report some other return value or output. What
was expected never enters the sandbox.

Messages are tuples in `wire` form behind a length of four bytes. The grader sends ("call", number, arguments),
("run", number, input, seconds, bytes of output); the answers are ("started",), ("ready",), ("broken", base, type, text),
("value", number, encoded value, encoded arguments), ("error", number, base, type, text),
("output", number, status, exit code, output, tail of the error stream). `base` is the built-in exception that the
type derives from.
"""

from __future__ import annotations

import builtins
import os
import sys

from rlvr_graders.code.sandbox.wire import decode, encode

TYPE_CHECKING = False  # typing's own constant, without the milliseconds that importing typing takes
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ERROR_TAIL = 2000
empty_input = -1  # a file with nothing in it, whose time of access tells whether a function's program asked for input


def read_exactly(descriptor: int, size: int) -> bytes:
    pieces = []
    while size:
        piece = os.read(descriptor, min(size, 1 << 20))
        if not piece:
            os._exit(0)  # the grader went away: there is nobody left to answer
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def read_message(descriptor: int) -> Any:
    return decode(read_exactly(descriptor, int.from_bytes(read_exactly(descriptor, 4), "big")))


def write_message(descriptor: int, message: tuple[Any, ...]) -> None:
    data = encode(message)
    view = memoryview(len(data).to_bytes(4, "big") + data)
    while view:
        view = view[os.write(descriptor, view) :]


def set_limits(limits: dict[str, int]) -> None:
    """Hard limits, so that the program cannot raise them again."""
    import resource

    for name, value in limits.items():
        kind = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def plain_builtins() -> None:
    """Python starts without `site` here (it costs time), so `exit` and `quit` have to be given back."""
    import _sitebuiltins

    builtins.exit = _sitebuiltins.Quitter("exit", "")  # type: ignore[assignment]
    builtins.quit = _sitebuiltins.Quitter("quit", "")  # type: ignore[assignment]


def describe(error: BaseException) -> tuple[str, str, str]:
    """Built-in base, type and text of an exception whose class may have been written to misbehave."""
    try:
        base = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
        return base, type(error).__name__[:100], str(error)[:ERROR_TAIL]
    except BaseException:
        return "BaseException", "Exception", "an exception that cannot be printed"


def compiled(source: str, name: str) -> Any:
    """The program's code, without the `from __future__` of this file."""
    return compile(source, name, "exec", dont_inherit=True)


def save(source: str, path: str) -> None:
    """The program as a file, for what looks for its source or loads it once more."""
    try:
        with open(path, "w", errors="surrogatepass") as file:
            file.write(source)
    except OSError:  # larger than a file may be
        pass


def load(preamble: str, program: str, entry: str) -> Callable[..., Any]:
    """Run the program's top level as a module of its own and return the function `entry`."""
    module = type(sys)("candidate")
    sys.modules["candidate"] = module
    names = module.__dict__
    # Apart, so that `from __future__` may stand first in the program.
    exec(compiled(preamble, "preamble.py"), names)
    if entry in names:  # `search` of re stays known to the program, but only its own is the answer
        names["__builtins__"] = {**vars(builtins), entry: names.pop(entry)}
    if "class Solution" in program:
        exec("from typing import *", names)  # LeetCode's programs name List without importing it
    path = names["__file__"] = os.getcwd() + "/candidate.py"
    save(program, path)
    code, failure = compiled(program, path), None
    try:
        exec(code, names)
    except Exception as error:
        # Perhaps behind the function: where it tests itself by an example, or has read its input, of which there is none.
        if not isinstance(error, AssertionError) and os.fstat(empty_input).st_atime == 0:
            raise
        failure = error
    function = names.get(entry)
    if function is None and "Solution" in names:
        function = getattr(names["Solution"](), entry, None)  # LeetCode's form
    if not callable(function) and failure is not None:
        raise failure
    if not callable(function):
        raise NameError("the program defines no function " + entry)
    return function


def answer(function: Callable[..., Any], number: int, arguments: bytes, return_arguments: bool) -> tuple[Any, ...]:
    """Call the function and word the answer; whatever it raises, SystemExit included, is its answer too."""
    try:
        positional, named = decode(arguments)
        value = encode(function(*positional, **named))
        return ("value", number, value, encode((positional, named)) if return_arguments else b"")
    except BaseException as error:
        return ("error", number, *describe(error))


def serve_calls(job: dict[str, Any], requests: int, replies: int) -> None:
    try:
        function = load(job["preamble"], job["program"], job["entry"])
    except BaseException as error:
        write_message(replies, ("broken", *describe(error)))
        return
    write_message(replies, ("ready",))
    while True:
        _, number, arguments = read_message(requests)
        write_message(replies, answer(function, number, arguments, job["return_arguments"]))


def start(limits: dict[str, int], folder: str) -> tuple[int, int]:
    """Put the pipes out of the program's way, set the limits, say so: (requests, replies)."""
    global empty_input
    requests, replies = os.dup(0), os.dup(1)
    os.chdir(folder)
    nothing = os.open("/dev/null", os.O_RDWR)
    empty_input = os.open(folder, os.O_RDWR | os.O_TMPFILE)
    os.utime(empty_input, (0, 0))
    for standard, target in enumerate((empty_input, nothing, nothing)):
        os.dup2(target, standard)
    os.close(nothing)
    plain_builtins()
    with open("/proc/self/oom_score_adj", "w") as first_to_end:  # should the machine run out of memory
        first_to_end.write("1000")
    set_limits(limits)
    write_message(replies, ("started",))
    return requests, replies
