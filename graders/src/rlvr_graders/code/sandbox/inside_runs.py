"""Inside the sandbox: the program as a whole, from standard input to standard output, once for each test.

A fork for each test gives every test a fresh program (and the program its `exit()`) for a millisecond instead of an
interpreter's start. The child leaves through the interpreter's own shutdown, so threads are joined and files flushed.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from rlvr_graders.code.sandbox.inside import ERROR_TAIL, compiled, describe, read_message, save, write_message

TYPE_CHECKING = False  # typing's own constant, without the milliseconds that importing typing takes
if TYPE_CHECKING:
    from typing import Any

CHUNK = 1 << 16


def serve_runs(job: dict[str, Any], requests: int, replies: int) -> Any:
    """Answer run requests for ever; returns only in a child, with the code that it has to execute."""
    try:
        path = os.getcwd() + "/main.py"
        code = compiled(job["program"], path)
    except BaseException as error:
        write_message(replies, ("broken", *describe(error)))
        return None
    write_message(replies, ("ready",))
    while True:
        _, number, text, seconds, most_output = read_message(requests)
        save(job["program"], path)
        pipes = [os.pipe() for _ in range(3)]
        child = os.fork()
        if child == 0:
            become_program(path, pipes, requests, replies)
            return code
        write_message(replies, ("output", number, *watch(child, pipes, text, seconds, most_output)))


def become_program(path: str, pipes: list[tuple[int, int]], requests: int, replies: int) -> None:
    os.setsid()
    for standard, pipe in enumerate(pipes):
        os.dup2(pipe[0 if standard == 0 else 1], standard)
    for descriptor in [requests, replies, *(end for pipe in pipes for end in pipe)]:
        os.close(descriptor)
    names = sys.modules["__main__"].__dict__
    for name in [name for name in names if not name.startswith("__")]:
        del names[name]
    names["__file__"] = path


def watch(child: int, pipes: list[tuple[int, int]], text: bytes, seconds: float, most_output: int) -> tuple[Any, ...]:
    """Feed the child, collect what it says, end it in time: (status, exit code, output, tail of its errors)."""
    (input_end, feed), (output, output_end), (errors, errors_end) = pipes
    for descriptor in (input_end, output_end, errors_end):
        os.close(descriptor)
    for descriptor in (feed, output, errors):
        os.set_blocking(descriptor, False)
    gone = os.pidfd_open(child)
    waiting = select.poll()
    waiting.register(feed, select.POLLOUT)
    for descriptor in (output, errors, gone):
        waiting.register(descriptor, select.POLLIN)
    received = {output: bytearray(), errors: bytearray()}
    unsent, status, deadline = memoryview(text), "", time.monotonic() + seconds
    while not status:
        left = deadline - time.monotonic()
        if left <= 0:
            status = "timeout"
            break
        for descriptor, _ in waiting.poll(left * 1000):
            if descriptor == gone:
                status = "ended"
            elif descriptor == feed:
                unsent = push(feed, unsent)
                if not unsent:
                    waiting.unregister(feed)
                    os.close(feed)
                    feed = -1
            elif pull(descriptor, received[descriptor]) == 0:
                waiting.unregister(descriptor)
        del received[errors][:-CHUNK]
        if len(received[output]) > most_output:
            status = "overflow"
    # All that this sandbox has but this process and its first: none of this run lives on into the next.
    os.kill(-1, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    until = time.monotonic() + 1
    while not alone() and time.monotonic() < until:
        time.sleep(0.001)
    if status == "ended":
        while pull(output, received[output]) > 0 and len(received[output]) <= most_output:
            pass
        while pull(errors, received[errors]) > 0 and len(received[errors]) <= 2 * CHUNK:
            pass
        if len(received[output]) > most_output:
            status = "overflow"
    for descriptor in (feed, output, errors, gone):
        if descriptor >= 0:
            os.close(descriptor)
    return status, code, bytes(received[output][: most_output + 1]), bytes(received[errors][-ERROR_TAIL:])


def alone() -> bool:
    """Whether no other process is left; a killed one may take its time to end."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return True
    return False


def push(descriptor: int, unsent: memoryview) -> memoryview:
    """What is left to send after one write; nothing, once the program has closed its input."""
    try:
        return unsent[os.write(descriptor, unsent[:CHUNK]) :] if unsent else unsent
    except BlockingIOError:
        return unsent
    except BrokenPipeError:
        return memoryview(b"")


def pull(descriptor: int, into: bytearray) -> int:
    """Append one read: how many bytes came, 0 at the end of the stream, -1 where nothing waits."""
    try:
        piece = os.read(descriptor, CHUNK)
    except BlockingIOError:
        return -1
    into += piece
    return len(piece)
