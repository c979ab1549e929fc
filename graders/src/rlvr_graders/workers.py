"""A pool of worker processes with a hard limit on time and memory, usable from any thread.

A worker that overruns is killed and replaced; no signal handler is installed here, so the limit holds off the main thread
too. Workers are plain subprocesses, not forks: they carry no copy of the parent's memory, threads or CUDA context.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

MEMORY = 1 << 30
"""Address space of one worker, in bytes. With mpmath loaded it needs about 30 MB."""
START_LIMIT = 120.0
"""Seconds a worker may take to import mpmath; a fifth of a second on an idle core."""
SLICE = 0.1
"""Seconds after which one who waits looks whether it is still wanted."""
TASKS_BEFORE_RENEWAL = 5000
"""A worker is replaced after so many tasks, so that its caches stay bounded."""
_PROGRAM = ("-m", "rlvr_graders.worker")


class WorkerOverran(Exception):
    """The time limit passed without an answer, or the caller wants none any more; the worker has been killed."""


class WorkerDied(Exception):
    """The worker ended without an answer; the message says how."""


class WorkerLost(WorkerDied):
    """No answer is to blame: it ended before it was ready, or was killed (the system was short of memory or processes)."""


class _Worker:
    """One process and the pipes to it."""

    def __init__(self, memory: int, grader: str) -> None:
        self._grader = grader
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        # -P: the folder in which training was started must not stand on sys.path, where a file of the user's (random.py)
        # would hide a module that the grader imports.
        # A session of its own: Ctrl-C at the terminal reaches the parent alone, which then cleans up.
        self._process = subprocess.Popen(
            [sys.executable, "-P", *_PROGRAM, str(memory), grader],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,
            bufsize=0,
        )
        self._rest = b""
        self._ready = False
        self.tasks = 0

    def ask(self, request: dict[str, Any], timeout: float, stop: threading.Event | None) -> dict[str, Any]:
        if not self._ready:  # starting up is not on the sample's clock
            try:
                self._read(START_LIMIT, stop)
            except WorkerOverran:
                raise WorkerLost(f"not ready within {START_LIMIT:.0f} s") from None
            except WorkerDied as error:
                raise self._start_failure(str(error)) from None
            self._ready = True
        self.tasks += 1
        assert self._process.stdin is not None
        words = memoryview(json.dumps({**request, "timeout": timeout}).encode() + b"\n")
        try:
            while words:  # a signal may cut a write short
                words = words[write(self._process.stdin.fileno(), words) :]
        except BrokenPipeError:
            raise self._ending() from None
        return self._read(timeout, stop)

    def _read(self, timeout: float, stop: threading.Event | None) -> dict[str, Any]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or (stop and stop.is_set()):
                raise WorkerOverran
            poll = select.poll()  # not select(): its descriptors end at 1024
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(min(left, SLICE) * 1000):
                continue
            chunk = os.read(descriptor, 65536)
            if not chunk:
                raise self._ending()
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ending(self) -> WorkerDied:
        code = self._process.wait()
        kind = WorkerLost if code == -signal.SIGKILL else WorkerDied  # which no answer can bring about by itself
        return kind(f"killed by signal {-code}" if code < 0 else f"exit status {code}")

    def is_ready(self) -> bool:
        """Whether it has started, or says so by now."""
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)  # type: ignore[arg-type]
        return self._ready or bool(poll.poll(0))

    def _start_failure(self, ending: str) -> Exception:
        self._errors.seek(0)
        errors = self._errors.read()[-2000:].decode(errors="replace").strip()
        if "No module named" in errors:  # the one that no second attempt mends
            missing = errors.rsplit("No module named", 1)[1].strip()
            extra = "" if self._grader == "math" else f"[{self._grader}]"
            return RuntimeError(f"the {self._grader} grader needs {missing}: pip install rlvr-graders{extra}")
        return WorkerLost(f"{ending}: {errors[-300:] or 'no message'}")

    def end(self) -> None:
        """Kills the process and collects it, so that no zombie stays."""
        self._process.kill()
        self._process.wait()
        self.let_go()

    def let_go(self) -> None:
        """Closes this side's ends of the pipes without touching the process."""
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()


def write(descriptor: int, data: bytes | memoryview) -> int:
    """As `os.write`: a broken pipe is an error, even in a process that has told SIGPIPE to end it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
    try:
        return os.write(descriptor, data)
    finally:
        if signal.SIGPIPE not in before and signal.SIGPIPE in signal.sigpending():
            signal.sigwait({signal.SIGPIPE})
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def usable_cores() -> int:
    """Cores that this process may run on; not every system can say more than how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPool:
    """Up to `size` workers at work, started when they are first needed, and a spare: where one is killed, the next is ready."""

    def __init__(self, size: int | None = None, memory: int = MEMORY, grader: str = "math") -> None:
        self.size = size or usable_cores()
        self._memory, self._grader = memory, grader
        self._free: list[_Worker] = []
        self._all: list[_Worker] = []
        self._change = threading.Condition()
        self._closed = False

    def ask(self, request: dict[str, Any], timeout: float, stop: threading.Event | None = None) -> dict[str, Any]:
        """The answer of a worker within `timeout` seconds; `WorkerOverran` or `WorkerDied` otherwise. Waits for a free worker.

        `stop`, once another thread sets it, ends the waiting.
        """
        taken: list[_Worker] = []
        keep = False
        try:
            self._take(taken, stop)
            answer = taken[0].ask(request, timeout, stop)
            keep = taken[0].tasks < TASKS_BEFORE_RENEWAL and answer.get("failure") != "out of memory"
            return answer
        finally:  # whatever ended it (an overrun, Ctrl-C at any moment), a worker in an unknown state is not used again
            for worker in taken:
                self._give(worker, keep)

    def pids(self) -> list[int]:
        """Process ids of the workers there are now."""
        with self._change:
            return [worker._process.pid for worker in self._all]

    def _take(self, taken: list[_Worker], stop: threading.Event | None) -> None:
        with self._change:
            while not (stop and stop.is_set()):
                if self._closed:
                    raise WorkerLost("the pool of grading workers has been shut down")
                if len(self._all) - len(self._free) < self.size:
                    if not self._free:
                        self._start()
                    taken.append(next((worker for worker in self._free if worker.is_ready()), self._free[0]))
                    self._free.remove(taken[0])
                    self._keep_spare()
                    return
                self._change.wait(SLICE if stop else None)
        raise WorkerOverran

    def _start(self) -> None:
        try:
            worker = _Worker(self._memory, self._grader)
        except OSError as error:  # no memory or no process left for it
            raise WorkerLost(str(error)) from error
        self._all.append(worker)
        self._free.append(worker)

    def _keep_spare(self) -> None:
        """Starts the next worker while the caller goes on: after an overrun nobody need wait for it."""
        if not self._free and not self._closed:
            with suppress(WorkerLost):
                self._start()

    def _give(self, worker: _Worker, keep: bool) -> None:
        with self._change:
            if keep and not self._closed:
                self._free.insert(0, worker)
            else:
                for workers in (
                    self._all,
                    self._free,
                ):  # still among the free ones where Ctrl-C came while it was taken
                    if worker in workers:
                        workers.remove(worker)
                worker.end()
                self._keep_spare()
            self._change.notify()

    def close(self) -> None:
        """Ends every worker. Calls under way fail with `WorkerDied`."""
        with self._change:
            self._closed = True
            for worker in self._free:
                worker.end()
            for worker in self._all:
                if worker not in self._free:
                    worker._process.kill()  # its own thread collects it
            self._free, self._all = [], []
            self._change.notify_all()

    def forget(self) -> None:
        """For a forked child: drops the parent's workers without touching them."""
        for worker in self._all:
            worker.let_go()
        self._free, self._all = [], []


_pools: dict[str, WorkerPool] = {}
_pool_lock = threading.Lock()


def shared_pool(grader: str = "math") -> WorkerPool:
    """The pool of this process for a grader: as many workers as it may use cores."""
    with _pool_lock:
        if grader not in _pools:
            _pools[grader] = WorkerPool(grader=grader)
        return _pools[grader]


def shutdown_workers() -> None:
    """Ends the workers of this process now rather than at its exit; the next grading starts new ones."""
    with _pool_lock:
        pools = list(_pools.values())
        _pools.clear()
    for pool in pools:
        pool.close()


def _after_fork() -> None:
    global _pool_lock
    _pool_lock = threading.Lock()
    for pool in _pools.values():
        pool.forget()
    _pools.clear()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(shutdown_workers)
