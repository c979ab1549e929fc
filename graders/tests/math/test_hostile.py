"""Hostile answers: a verdict within the limit, bounded memory, no process left, and the next sample graded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from rlvr_graders import grade_math, grade_math_batch, shutdown_workers
from rlvr_graders import workers as workers_module
from rlvr_graders.workers import MEMORY, WorkerPool, shared_pool

NEXT = (r"\boxed{\sqrt{8}+x}", r"x+2\sqrt{2}")
SLOW = r"\boxed{\zeta(\frac{1}{2}+10^{14}i)}"  # minutes inside one call of mpmath

HOSTILE = {
    "tower": r"\boxed{5^{5^{5^{5^5}}}}",
    "higher tower": r"\boxed{" + "2^{" * 28 + "2" + "}" * 28 + "}",
    "100 kB of balanced braces": r"\boxed{" + "{" * 50_000 + "5" + "}" * 50_000 + "}",
    "100 kB of open braces": r"\boxed{5} " + "{" * 100_000,
    "100 kB of open boxes": r"\boxed{" * 15_000,
    "deep brackets": r"\boxed{" + "(" * 1900 + "6" + ")" * 1900 + "}",
    "deep fractions": r"\boxed{" + r"\frac{1}{1+" * 29 + "1" + "}" * 29 + "}",
    "NUL bytes": "\\boxed{\x00\x00x\x00}",
    "only NUL bytes": "\x00" * 100_000,
    "huge integer": r"\boxed{" + "9" * 100_000 + "}",
    "large integer": r"\boxed{" + "9" * 1000 + "}",
    "import": r"\boxed{__import__('os').system('true')}",
    "factorial": r"\boxed{99999999999!}",
    "zeta": SLOW,
    "binomial": r"\boxed{\binom{100000000}{50000000}}",
    "power": r"\boxed{9^{999999999}}",
    "symbolic power": r"\boxed{x^{999999999}}",
    "gamma": r"\boxed{\Gamma(100000000)}",
    "long product": r"\boxed{(a+b+c+d+e+f+g+h)^{200}}",
    "signs": r"\boxed{" + "-" * 3900 + "x}",
    "carets": r"\boxed{" + "^" * 3900 + "}",
    "roots": r"\boxed{" + r"\sqrt" * 200 + "2}",
    "bars": r"\boxed{" + "|" * 1000 + "}",
    "commas": r"\boxed{" + "1," * 1900 + "1}",
    "scientific": r"\boxed{1e999999999}",
    "substitutions": r"\boxed{a \text{ where } "
    + ", ".join(f"{one}={other * 9}" for one, other in pairwise("abcdfghjklmnopqrstuvwxyz"))
    + "}",
    "lone surrogate": "\\boxed{\ud800}",
    "division by zero": r"\boxed{\frac{x}{0}}",
    "backslashes": "\\" * 100_000 + "boxed{6}",
}


@pytest.fixture(scope="module", autouse=True)
def _end_workers() -> object:
    yield
    shutdown_workers()


def test_hostile_answers_get_a_verdict_within_the_limit() -> None:
    grade_math(*NEXT)  # the workers have started
    for name, completion in HOSTILE.items():
        begin = time.monotonic()
        verdict = grade_math(completion, r"5+\sqrt{3}", timeout=0.3)
        seconds = time.monotonic() - begin
        # A worker's own start may come on top of the limit: the one before it was killed.
        assert seconds < 0.3 + 20, f"{name} took {seconds:.1f} s"
        assert verdict.score == 0.0, name
        assert verdict.reason, name
        assert grade_math(*NEXT).score == 1.0, f"the sample after {name!r} was not graded: {grade_math(*NEXT)}"


def test_powers_of_powers_of_a_unit_are_no_unit() -> None:
    begin = time.process_time()
    verdict = grade_math(r"\boxed{y=x" + r"\text{ cm}^2" * 20 + "}", r"50\%")
    assert time.process_time() - begin < 0.25
    assert verdict.reason == "wrong answer"


def test_an_overrun_is_killed_on_time_from_any_thread() -> None:
    grade_math(*NEXT)
    results: list[tuple[float, str]] = []

    def work() -> None:
        begin = time.monotonic()
        verdict = grade_math(SLOW, r"\sqrt{5}", timeout=0.7)
        results.append((time.monotonic() - begin, verdict.reason))

    handler = signal.getsignal(signal.SIGALRM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert signal.getsignal(signal.SIGALRM) is handler, "the caller's signal handlers are not the grader's to touch"
    ((seconds, reason),) = results
    assert reason == "timed out after 0.7 s"
    assert 0.7 <= seconds < 10


def test_many_threads_share_the_workers() -> None:
    with ThreadPoolExecutor(8) as threads:
        jobs = [threads.submit(grade_math, *NEXT) for _ in range(24)]
        jobs += [threads.submit(grade_math, rf"\boxed{{\sqrt{{{n}}}+x}}", r"\sqrt{2}+x") for n in range(3, 19)]
        scores = [job.result().score for job in jobs]
    assert scores == [1.0] * 24 + [0.0] * 16
    assert len(shared_pool().pids()) <= shared_pool().size + 1, "the spare one"


def test_memory_is_bounded() -> None:
    pool = WorkerPool(size=1, memory=400 << 20)
    try:
        request = {"reference": r"\sqrt{2}", "prediction": r"\sqrt{8}"}
        assert pool.ask(request, 20)["reason"] == "wrong answer"
        pid, _ = pool.pids()
        assert psutil.Process(pid).rlimit(psutil.RLIMIT_AS) == (400 << 20, 400 << 20)
        assert psutil.Process(pid).memory_info().rss < 200 << 20
    finally:
        pool.close()
    assert MEMORY <= 2 << 30


def broken_algebra(monkeypatch: pytest.MonkeyPatch, statement: str) -> WorkerPool:
    """A pool whose workers run `statement` where the reference is the square root of 5."""
    patch = f"""
from rlvr_graders.math.algebra import ValueAlgebra
from rlvr_graders.math.expression import parse
import os, signal
sound = ValueAlgebra.equal
def equal(self, reference, prediction):
    if reference == parse(("\\\\sqrt", "{{", "5", "}}")):
        {statement}
    return sound(self, reference, prediction)
ValueAlgebra.equal = equal
from rlvr_graders.worker import main
import sys
main(int(sys.argv[1]), sys.argv[2])
"""
    monkeypatch.setattr(workers_module, "_PROGRAM", ("-c", patch))
    pool = WorkerPool(size=1)
    monkeypatch.setitem(workers_module._pools, "math", pool)
    return pool


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("filled = [bytearray(1 << 26) for _ in range(1000)]", "out of memory"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the grader's worker crashed on it: killed by signal 11"),
        ("os._exit(3)", "the grader's worker crashed on it: exit status 3"),
        ("raise ZeroDivisionError('oh')", "could not be compared: ZeroDivisionError: oh"),
        ("return equal(self, reference, prediction)", "unparsable answer: nested too deeply"),
    ],
)
def test_whatever_happens_in_a_worker_is_a_verdict_and_the_next_sample_is_graded(
    monkeypatch: pytest.MonkeyPatch, statement: str, reason: str
) -> None:
    pool = broken_algebra(monkeypatch, statement)
    try:
        verdict = grade_math(r"\boxed{\sqrt{6}}", r"\sqrt{5}", timeout=20)
        assert (verdict.score, verdict.reason) == (0.0, reason)
        assert verdict.failed == (not reason.startswith("unparsable"))
        assert grade_math(*NEXT).score == 1.0
    finally:
        pool.close()


@pytest.mark.parametrize(("deaths", "score"), [(3, 1.0), (99, 0.0)])
def test_a_kill_while_a_worker_starts_never_ends_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deaths: int, score: float
) -> None:
    program = f"""
import os, pathlib, signal, sys
born = pathlib.Path({str(tmp_path)!r}, str(os.getpid()))
born.touch()
if len(list(born.parent.iterdir())) <= {deaths}:
    os.kill(os.getpid(), signal.SIGKILL)
from rlvr_graders.worker import main
main(int(sys.argv[1]), sys.argv[2])
"""
    monkeypatch.setattr(workers_module, "_PROGRAM", ("-c", program))
    monkeypatch.setattr("rlvr_graders.pairs.ATTEMPTS", 4)
    pool = WorkerPool(size=1)
    monkeypatch.setitem(workers_module._pools, "math", pool)
    try:
        verdict = grade_math(*NEXT)
        assert verdict.score == score
        assert score or (verdict.failed and "every grading worker was lost: killed by signal 9" in verdict.reason)
    finally:
        pool.close()


def test_no_process_is_left_behind() -> None:
    grade_math_batch([NEXT[0], SLOW], [NEXT[1], r"\sqrt{5}"], timeout=0.5)
    pids = shared_pool().pids()
    assert pids
    shutdown_workers()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    children = psutil.Process().children(recursive=True)
    assert [child.pid for child in children if child.status() == psutil.STATUS_ZOMBIE] == []
    assert grade_math(*NEXT).score == 1.0, "grading starts new workers after a shutdown"


SCRIPT = r"""
import os, signal, sys, threading, time
{preamble}
from rlvr_graders import grade_math, grade_math_batch
from rlvr_graders.workers import shared_pool
NEXT = (r"\boxed{{\sqrt{{8}}+x}}", r"x+2\sqrt{{2}}")
SLOW = r"\boxed{{\zeta(\frac{{1}}{{2}}+10^{{14}}i)}}"
{body}
"""


def script(body: str, preamble: str = "") -> subprocess.CompletedProcess[str]:
    source = SCRIPT.format(body=body, preamble=preamble)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, env=environment)


def gone(pids: list[int], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
            return True
        time.sleep(0.05)
    return False


def test_workers_end_with_their_parent_even_when_it_is_killed() -> None:
    body = """
print(grade_math(*NEXT).score)
print(*shared_pool().pids(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    result = script(body)
    score, pids = result.stdout.splitlines()
    assert score == "1.0"
    assert result.returncode == -signal.SIGKILL
    assert gone([int(pid) for pid in pids.split()])


def test_ctrl_c_ends_the_batch_and_the_grader_still_works() -> None:
    body = """
grade_math(*NEXT)
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    grade_math_batch([SLOW + str(n) for n in range(6)] + [SLOW.replace("14", "15")], [r"\\sqrt{5}"] * 7, timeout=30)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begin < 2)
print(grade_math(*NEXT).score)
print(*shared_pool().pids())
"""
    result = script(body)
    lines = result.stdout.splitlines()
    assert lines[:2] == ["interrupted True", "1.0"], result.stderr
    assert gone([int(pid) for pid in lines[2].split()])
    assert "Traceback" not in result.stderr


def test_a_forked_child_gets_workers_of_its_own() -> None:
    body = """
grade_math(*NEXT)
mine = shared_pool().pids()
child = os.fork()
if child == 0:
    right = grade_math(*NEXT).score == 1.0 and not set(mine) & set(shared_pool().pids())
    from rlvr_graders import shutdown_workers
    shutdown_workers()
    os._exit(0 if right else 1)
status = os.waitpid(child, 0)[1]
print(status, grade_math(*NEXT).score, shared_pool().pids() == mine)
"""
    assert script(body).stdout.split() == ["0", "1.0", "True"]


def test_spawned_processes_can_grade(tmp_path: Path) -> None:
    # A file, because spawn imports the main module again.
    source = """
import multiprocessing
from rlvr_graders import grade_math
def work(n):
    return grade_math(r"\\boxed{\\sqrt{8}+x}", r"x+2\\sqrt{2}").score
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(work, range(4)))
"""
    file = tmp_path / "spawned.py"
    file.write_text(source)
    result = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "[1.0, 1.0, 1.0, 1.0]", result.stderr


def test_workers_never_import_torch_even_when_the_parent_has() -> None:
    body = """
grade_math(*NEXT)
for pid in shared_pool().pids():
    maps = open(f"/proc/{pid}/maps").read()
    print("torch" in maps, "mpmath" not in sys.modules)
"""
    result = script(body, preamble="import torch")
    assert set(result.stdout.splitlines()) == {"False True"}, result.stderr


def test_files_where_training_was_started_hide_no_module(tmp_path: Path) -> None:
    for name in ("math", "random", "fractions", "mpmath", "code"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this file must not be imported')")
    source = f"from rlvr_graders import grade_math; print(grade_math(*{NEXT!r}).score)"
    result = subprocess.run(
        [sys.executable, "-P", "-c", source], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert result.stdout.strip() == "1.0", result.stderr


def test_a_lower_limit_on_memory_than_ours_stays() -> None:
    body = """
import resource
limit = 768 << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(grade_math(*NEXT).score)
"""
    assert script(body).stdout.strip() == "1.0"


def test_a_missing_mpmath_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "mpmath":
            raise ModuleNotFoundError("No module named 'mpmath'")
sys.meta_path.insert(0, Hidden())
from rlvr_graders.worker import main
main(int(sys.argv[1]), sys.argv[2])
"""
    monkeypatch.setattr(workers_module, "_PROGRAM", ("-c", hidden))
    pool = WorkerPool(size=1)
    monkeypatch.setitem(workers_module._pools, "math", pool)
    try:
        with pytest.raises(RuntimeError, match=r"pip install rlvr-graders"):
            grade_math(*NEXT)
        assert grade_math(r"\boxed{5}", "5").score == 1.0, "plain answers need no worker"
    finally:
        pool.close()
