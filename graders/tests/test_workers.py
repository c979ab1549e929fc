"""What happens around the workers: kills, interrupts and forks, at the worst moments."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest

from rlvr_graders import grade_math
from rlvr_graders import workers as workers_module
from rlvr_graders.workers import WorkerPool

NEXT = (r"\boxed{\sqrt{8}+x}", r"x+2\sqrt{2}")
SLOW = r"\boxed{\zeta(\frac{1}{2}+10^{14}i)}"  # minutes inside one call of mpmath


@pytest.fixture
def pool(monkeypatch):
    pool = WorkerPool(size=1)
    monkeypatch.setitem(workers_module._pools, "math", pool)
    yield pool
    pool.close()


@pytest.mark.parametrize(
    ("kills", "reason"), [(3, "correct"), (99, "every grading worker was lost: killed by signal 9")]
)
def test_a_worker_that_is_killed_over_an_answer_is_no_verdict_on_it(pool, monkeypatch, kills, reason):
    real, killed = workers_module._Worker._read, []

    def read(worker, timeout, stop):
        if worker._ready and len(killed) < kills:
            worker._process.kill()
            killed.append(worker)
        return real(worker, timeout, stop)

    monkeypatch.setattr(workers_module._Worker, "_read", read)
    monkeypatch.setattr("rlvr_graders.pairs.ATTEMPTS", 4)
    verdict = grade_math(*NEXT)
    assert verdict.reason == reason
    assert verdict.failed == (reason != "correct")


@pytest.mark.parametrize("moment", ["is_ready", "ask"])
def test_ctrl_c_at_any_moment_leaves_the_pool_whole(pool, monkeypatch, moment):
    """A worker that was lost on the way from the free ones to its call would leave a pool of one that waits for ever."""
    grade_math(*NEXT)

    def interrupted(*_):
        raise KeyboardInterrupt

    for target in (moment, "_keep_spare"):
        with monkeypatch.context() as patch:
            patch.setattr(WorkerPool if target == "_keep_spare" else workers_module._Worker, target, interrupted)
            with pytest.raises(KeyboardInterrupt):
                grade_math(*NEXT)
        assert len(pool._free) == len(pool._all)
    assert grade_math(*NEXT).score == 1.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_workers_at_work_end_with_a_process_that_is_told_to_end(number):
    source = f"""
import threading
from rlvr_graders import grade_math
from rlvr_graders.workers import shared_pool
grade_math(*{NEXT!r})
print(*shared_pool().pids(), flush=True)
grade_math({SLOW!r}, "\\\\sqrt{{5}}", timeout=60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as grader:
        pids = [int(pid) for pid in grader.stdout.readline().split()]
        assert pids
        deadline = time.monotonic() + 20
        while all(psutil.Process(pid).cpu_times().user < 1.0 for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)  # until one is at work
        grader.send_signal(number)
        assert grader.wait(5) != 0
        deadline = time.monotonic() + 10
        while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [pid for pid in pids if psutil.pid_exists(pid)] == []


def test_a_pool_that_is_shut_down_while_a_call_waits_gives_way_to_a_new_one(pool):
    pool.close()
    workers_module._pools["math"] = pool
    attempts = []

    def shared(grader):
        attempts.append(grader)
        return pool if len(attempts) == 1 else replacement

    replacement = WorkerPool(size=1)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rlvr_graders.pairs.shared_pool", shared)
            assert grade_math(*NEXT).score == 1.0
    finally:
        replacement.close()
    assert len(attempts) == 2
