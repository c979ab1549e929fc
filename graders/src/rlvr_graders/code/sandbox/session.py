"""One sandboxed interpreter, seen from the grader: start it, exchange messages within limits, end all of it."""

from __future__ import annotations

import contextlib
import json
import marshal
import math
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rlvr_graders.code.sandbox import bubblewrap, seccomp
from rlvr_graders.code.sandbox.errors import ProgramFailure, SandboxError, SandboxLost, Stopped
from rlvr_graders.code.sandbox.group import new_group
from rlvr_graders.code.sandbox.memory import Memory
from rlvr_graders.code.sandbox.wire import WireError, decode, encode
from rlvr_graders.code.settings import CodeSettings
from rlvr_graders.workers import write

START_SECONDS = 60.0  # a machine under load may be slow to start a process; that is not the program's fault
SLICE_SECONDS = 0.1  # how often a wait looks at the stop signal and at what is in use
ERROR_BYTES = 1 << 14  # the text of an error is cut before it has so many
DRIBBLE = 512  # bytes: who sends a message in smaller pieces waits, so that reading them keeps nobody busy
MESSAGE_ITEMS = 8  # the longest message has six; a value travels in one as bytes
PACKAGE = "rlvr_graders.code.sandbox."
MODULES = {
    "calls": ("wire", "inside", "inside_main"),
    "runs": ("wire", "inside", "inside_runs", "inside_main"),
    "assertions": ("wire", "inside", "inside_assertions", "inside_main"),
}
# Reads our own modules as bytecode from the pipe and hands over; `exec` at the top level is what a whole-program run
# returns to, so that the program ends as a program does.
BOOT = """
import marshal, posix, sys
def take(size):
    data = b""
    while len(data) < size:
        data += posix.read(0, size - len(data)) or posix._exit(3)
    return data
for name, code in marshal.loads(take(int(take(8)))):
    sys.modules[name] = type(sys)(name)
    exec(code, sys.modules[name].__dict__)
exec(sys.modules["rlvr_graders.code.sandbox.inside_main"].main())
"""


@cache
def _modules(mode: str) -> bytes:
    """Our side of the pipe as bytecode: nothing of this package has to be mounted in the sandbox."""
    files = {name: Path(__file__).parent / f"{name}.py" for name in MODULES[mode]}
    code = [(PACKAGE + name, compile(file.read_text(), file.name, "exec")) for name, file in files.items()]
    data = marshal.dumps(code)
    return b"%8d" % len(data) + data


class Session:
    """A started interpreter with one job. Use as a context manager: leaving it ends every process and file of it.

    The constructor does not wait for the start, so that two can start side by side; `begin` does.
    """

    def __init__(self, mode: str, job: Mapping[str, Any], settings: CodeSettings, stop: threading.Event | None) -> None:
        self.settings = settings
        self.stop = stop
        self._buffer = bytearray()
        self._checked = time.monotonic()
        self._info: int | None = None  # where bubblewrap says which process is the first of the sandbox,
        self._first: int | None = None  # whose end is the end of all of them,
        self._first_handle: int | None = None  # and a hold on it, because a number may be used again
        self._memory: Memory | None = None
        self._group = new_group(settings.memory_bytes)
        self._writable: list[int] = []  # its folders in memory, held open to count what lies in them
        places = {"packages": bubblewrap.PACKAGES, "folder": bubblewrap.WORK}
        whole = {**job, "mode": mode, "limits": self._limits(), **places}
        try:
            self._process = self._launch()
        except BaseException:
            self._close_group()
            raise
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # both are pipes
        assert stdout is not None
        self._to, self._from = stdin.fileno(), stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._payload = _modules(mode) + self._framed(whole)

    def begin(self) -> None:
        """Hand over the job and wait until the sandbox has its limits; nothing of the program has run before."""
        deadline = time.monotonic() + START_SECONDS
        try:
            self._find_first()
            self._write(self._payload, deadline)
            started = self.receive(deadline, "start the sandbox")
        except ProgramFailure as failure:
            raise SandboxError(f"the sandbox did not start: {self._complaint() or failure}") from None
        if started != ("started",):
            raise SandboxError(f"the sandbox did not report its start but {started!r}")
        # A program that has ended already took its files with it.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            assert self._first is not None  # it has reported its start
            if self._group is None:
                self._memory = Memory(self._first, self.settings.memory_bytes, self._writable)
            for folder in bubblewrap.WRITABLE:
                path = f"/proc/{self._first}/root{folder}"
                self._writable.append(os.open(path, os.O_PATH | os.O_DIRECTORY))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- messages ------------------------------------------------------------------------------------------------

    def send(self, message: tuple[Any, ...], deadline: float) -> None:
        self._write(self._framed(message), deadline)

    def receive(self, deadline: float, doing: str, most: int | None = None) -> tuple[Any, ...]:
        """The next message. ProgramFailure where none comes in time, where it is not one, or where a right answer takes `most`
        bytes and it takes more, with room for the words of an error."""
        size = int.from_bytes(self._read(4, deadline, doing), "big")
        if size > self.settings.output_bytes + 4096:
            raise ProgramFailure(f"too much output: more than {self.settings.output_bytes} bytes")
        if most is not None and size > most + ERROR_BYTES:
            raise ProgramFailure("wrong answer")
        try:
            message = decode(self._read(size, deadline, doing), MESSAGE_ITEMS)
        except WireError:
            message = None
        if not isinstance(message, tuple) or not message or not isinstance(message[0], str):
            raise ProgramFailure("wrote something else to the grader's pipe")
        return message

    @staticmethod
    def _framed(message: object) -> bytes:
        data = encode(message)
        return len(data).to_bytes(4, "big") + data

    def _write(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(self._to, select.POLLOUT, deadline, "read its input")
            try:
                view = view[write(self._to, view[: 1 << 20]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._ended() from None

    def _read(self, size: int, deadline: float, doing: str) -> bytes:
        pause = 0.0
        while len(self._buffer) < size:
            self._wait(self._from, select.POLLIN, deadline, doing)
            try:
                piece = os.read(self._from, 1 << 16)  # what a pipe holds
            except BlockingIOError:
                continue
            if not piece:
                raise self._ended()
            self._buffer += piece
            if len(piece) < DRIBBLE and len(self._buffer) < size:
                pause = min(2 * pause + 0.001, SLICE_SECONDS)
                time.sleep(pause)
        with memoryview(self._buffer) as view:
            data = bytes(view[:size])
        del self._buffer[:size]
        return data

    def _ended(self) -> Exception:
        self._check_memory()  # the kernel may have done it
        if self._process.poll() == -signal.SIGKILL:  # bubblewrap, which the program cannot reach
            return SandboxLost("the sandbox was killed")
        return ProgramFailure("ended before answering")

    def _wait(self, descriptor: int, event: int, deadline: float, doing: str) -> None:
        waiting = select.poll()
        waiting.register(descriptor, event)
        while True:
            now = time.monotonic()
            if now >= deadline:
                raise ProgramFailure(f"timed out: did not {doing} in time")
            if self.stop is not None and self.stop.is_set():
                raise Stopped
            self._check_use(now)
            soon = SLICE_SECONDS if self._memory is None else self._memory.seconds_to_next_look()
            # In whole milliseconds, upwards: a poll of 0 would spin.
            if waiting.poll(math.ceil(min(SLICE_SECONDS, soon, deadline - now) * 1000)):
                return

    def _check_use(self, now: float) -> None:
        """What no limit of a process bounds: the memory of all of them together, and the number of files."""
        if self._memory is not None and self._memory.is_exceeded():
            raise self._too_much()
        if now - self._checked < SLICE_SECONDS:
            return
        self._checked = now
        self._check_memory()
        for folder in self._writable:
            room = os.fstatvfs(folder)
            if room.f_files - room.f_ffree > self.settings.files:
                raise ProgramFailure(f"made more than {self.settings.files} files")

    def _check_memory(self) -> None:
        if self._group is not None and self._group.is_exceeded():
            raise self._too_much()

    def _too_much(self) -> ProgramFailure:
        return ProgramFailure(f"used more than {self.settings.memory_bytes} bytes of memory")

    # -- the process ---------------------------------------------------------------------------------------------

    def _limits(self) -> dict[str, int]:
        settings = self.settings
        return {
            "AS": settings.memory_bytes,
            "CPU": int(settings.seconds_total) + 2,
            "NPROC": settings.processes,
            "FSIZE": settings.file_bytes,
            "NOFILE": settings.open_files,
            "STACK": 128 << 20,
            "CORE": 0,
            "MEMLOCK": 0,
            "MSGQUEUE": 0,
            "SIGPENDING": 1024,
        }

    def _launch(self) -> subprocess.Popen[bytes]:
        program = [*bubblewrap.python_command(), "-c", BOOT]
        ends = [*os.pipe(), *os.pipe()]
        info, info_end, rules, rules_end = ends
        try:
            filter_program = seccomp.filter_program()
            os.write(rules_end, filter_program or b"")
            os.close(ends.pop())
            words = bubblewrap.command(
                self.settings.packages,
                self.settings.temporary_bytes,
                info=info_end,
                seccomp=rules if filter_program else None,
            )
            words = [*(self._group.words if self._group else []), *words, *program]
            process = _popen(words, (info_end, rules))
            ends.remove(info)
            self._info = info
            return process
        finally:
            for end in ends:
                os.close(end)

    def _find_first(self) -> None:
        if self._info is None:
            return
        words = b""
        waiting = select.poll()
        waiting.register(self._info, select.POLLIN)
        # Not to the end of the file: a process that was forked meanwhile may hold the other end open.
        while not words.rstrip().endswith(b"}") and waiting.poll(START_SECONDS * 1000):
            if not (piece := os.read(self._info, 4096)):
                break
            words += piece
        os.close(self._info)
        self._info = None
        if not words:
            return
        first = json.loads(words)["child-pid"]
        # It may have ended already; its message pipe will say so.
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            handle = os.pidfd_open(first)
            # Only bubblewrap's own child: had that ended, the number could by now be anybody's.
            if _parent(first) == self._process.pid:
                self._first, self._first_handle = first, handle
            else:
                os.close(handle)

    def _complaint(self) -> str:
        """What bubblewrap wrote to its error stream; only asked before any of the program has run."""
        self._process.kill()
        assert self._process.stderr is not None
        waiting = select.poll()
        waiting.register(self._process.stderr, select.POLLIN)
        return self._process.stderr.read(4096).decode(errors="replace").strip() if waiting.poll(1000) else ""

    def close(self) -> None:
        """End every process of the sandbox and wait until they are gone."""
        self._find_first()
        if self._first_handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first_handle, signal.SIGKILL)
            waiting = select.poll()
            waiting.register(self._first_handle, select.POLLIN)
            # Readable once the kernel has ended every process of its namespace.
            gone = waiting.poll(START_SECONDS * 1000)
            os.close(self._first_handle)
            self._first_handle = None
            if not gone:
                raise SandboxError(f"process {self._first} of a sandbox could not be ended")
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        for folder in self._writable:
            os.close(folder)
        self._writable = []
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        self._close_group()

    def _close_group(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None


def _popen(words: list[str], descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
    # A session of its own: a Ctrl-C at the terminal is for the grader, which then ends its sandboxes in order.
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env={"PATH": os.environ.get("PATH", os.defpath)},  # a program may see its first process: bubblewrap
        pass_fds=descriptors,
        start_new_session=True,
    )


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
