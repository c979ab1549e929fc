"""No attack is scored 1, and none leaves a process, a file or a grader that cannot go on."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import psutil
import pytest

from code_attacks import ATTACKS, CHEATS, COSTLY, FORGE, HELP, PROGRAM_ATTACKS
from rlvr_graders.code import (
    AssertionTests,
    Call,
    CodeSettings,
    FunctionTests,
    Run,
    StdioTests,
    grade_code,
    grade_code_batch,
)
from rlvr_graders.code.sandbox import group

# Short where the attack runs into the limit anyway; long enough for a loaded machine where it has to finish.
LIMITS = {"memory_bytes": 512 << 20, "temporary_bytes": 16 << 20, "output_bytes": 4 << 20}
SHORT = CodeSettings(seconds_per_test=0.7, **LIMITS)
LONG = CodeSettings(seconds_per_test=20.0, **LIMITS)
PLACES = ("/tmp", "/dev/shm", "/usr", "/etc", "/", "/dev", "/var", "/run", str(Path.home()))


class Host:
    """What an attack could touch on this machine, and whether it did."""

    def __init__(self, folder):
        self.folder = folder
        self.mark = "atk" + secrets.token_hex(5)
        self.listeners = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
        self.listeners[1].bind("\0" + self.mark)
        self.listeners[1].listen()
        self.before = {process.pid for process in psutil.Process().children(recursive=True)}
        self.descriptors = len(os.listdir("/proc/self/fd"))

    def fill(self, source):
        for name, value in {
            "PORT": str(self.listeners[0].getsockname()[1]),
            "SOCKET": self.mark,
            "HOST_FOLDER": repr(str(self.folder)),
            "MARK": self.mark,
        }.items():
            source = source.replace(name, value)
        return source

    def check_untouched(self):
        named = [process for process in psutil.process_iter(["name"]) if process.info["name"] == self.mark]
        assert named == []
        assert {process.pid for process in psutil.Process().children(recursive=True)} <= self.before
        assert len(os.listdir("/proc/self/fd")) == self.descriptors
        for place in PLACES:
            assert not [name for name in os.listdir(place) if self.mark in name]
        assert [path.name for path in self.folder.iterdir()] == ["tests.json"]
        for listener in self.listeners:
            listener.settimeout(0)
            with pytest.raises(BlockingIOError):
                listener.accept()


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path)
    yield host
    for listener in host.listeners:
        listener.close()


def judge(attack, tests, right, host):
    program = "```python\n" + host.fill(HELP + attack.source) + "\n```"
    settings = SHORT if attack.reason == "timed out" else LONG
    busy, start = time.thread_time(), time.monotonic()
    verdict = grade_code(program, tests, settings=settings)
    if group._parent() is not None:  # elsewhere the grader itself looks at what is in use
        assert time.thread_time() - busy < 0.1
    assert settings is LONG or time.monotonic() - start < 10
    assert verdict.score == 0.0
    assert verdict.reason.startswith(attack.reason), verdict.reason
    host.check_untouched()
    assert grade_code(right, tests, settings=LONG).score == 1.0  # the next sample is graded


@pytest.mark.parametrize("style", ["values", "assertions"])
@pytest.mark.parametrize("name", ATTACKS)
def test_function_attacks(name, style, host):
    answer = "SECRET-" + secrets.token_hex(16)
    (host.folder / "tests.json").write_text(answer)
    if style == "values":
        tests = FunctionTests("secret", (Call((0,), answer), Call((1,), answer[::-1])))
    else:
        source = f"def check(f):\n    assert f(0) == {answer!r}\n    assert {answer[::-1]!r} == f(1)\n\ncheck(secret)\n"
        tests = AssertionTests("secret", source=source)
    right = f"def secret(n):\n    return {answer!r}[::-1 if n else 1]"
    judge(ATTACKS[name], tests, right, host)


@pytest.mark.parametrize("name", PROGRAM_ATTACKS)
def test_program_attacks(name, host):
    answer = "SECRET-" + secrets.token_hex(16)
    (host.folder / "tests.json").write_text(answer)
    tests = StdioTests((Run("0\n", answer),))
    judge(PROGRAM_ATTACKS[name], tests, f"print({answer!r})", host)


FIRST, SECOND = ("SECRET-" + secrets.token_hex(16) for _ in range(2))
PAIRS = f"[(0, {FIRST!r}), (1, {SECOND!r})]"
JUDGES = {
    "text": FunctionTests("secret", (Call((0,), FIRST), Call((1,), SECOND))),
    "list": FunctionTests("secret", (Call((0,), [7] * 20_000),), absolute_tolerance=1e-6),
    "set": FunctionTests("secret", (Call((0,), {FIRST, 3}), Call((1,), {SECOND})), comparison="set"),
    "fraction": FunctionTests("secret", (Call((0,), Fraction(1, 3)),)),
    "all of map": AssertionTests("secret", f"assert all(map(lambda p: secret(p[0]) == p[1], {PAIRS}))"),
    "list of map": AssertionTests("secret", f"assert list(map(secret, (0, 1))) == {[FIRST, SECOND]}"),
    "zip of map": AssertionTests("secret", f"for p, q in zip({PAIRS}, map(secret, (0, 1))):\n    assert p[1] == q"),
    "generator": AssertionTests("secret", f"assert all(secret(n) == want for n, want in {PAIRS})"),
}
RIGHT = f"def secret(n):\n    return [{FIRST!r}, {SECOND!r}][n]"


@pytest.mark.parametrize("judge", JUDGES)
def test_no_cheat_is_rewarded_or_reaches_the_grader(judge):
    by_value = isinstance(JUDGES[judge], FunctionTests)
    cheats = CHEATS | (COSTLY if by_value else {})  # the rest are compared where they can be killed
    programs = [f"```python\n{FORGE}{source}\n```" for source in cheats.values()]
    settings = CodeSettings(seconds_per_test=20.0, workers=2, **LIMITS)
    start = time.process_time()
    verdicts = grade_code_batch(programs, [JUDGES[judge]] * len(programs), settings=settings)
    assert time.process_time() - start < 30  # the grader's own, for all of them
    assert [name for name, verdict in zip(cheats, verdicts, strict=True) if verdict.score] == []
    for verdict in verdicts:
        assert not verdict.failed
        assert not verdict.reason.startswith("timed out")
        assert verdict.reason.isprintable()
        assert len(verdict.reason) < 400
    if judge == "text" or not by_value:
        assert grade_code(RIGHT, JUDGES[judge]).reason == "correct"


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def f():\n    return 'x' * 16_000_000", FunctionTests("f", (Call((), 1),))),
        ("def f():\n    return 'x' * 16_000_000", AssertionTests("f", "for _ in range(100):\n    f()")),
        ("print('x' * 16_000_000)", StdioTests((Run("", "1"),))),
        ("while True: print('x' * 16_000_000)", StdioTests((Run("", "1"),))),
    ],
)
def test_a_large_answer_keeps_the_grader_busy_for_milliseconds(program, tests):
    grade_code("def f(): pass", FunctionTests("f", (Call((), 1),)))
    start = time.thread_time()
    assert grade_code(program, tests).score == 0.0
    assert time.thread_time() - start < 0.1


def test_nothing_of_a_run_lives_on_into_the_next():
    """A process that left its session stays until the run's end, and no longer."""
    program = (
        "import os, time\nprocesses = filter(str.isdigit, os.listdir('/proc'))\n"
        "print(sum(open(f'/proc/{process}/cmdline').read() > '' for process in processes), flush=True)\n"
        "if os.fork() == 0:\n    os.setsid()\n    os.closerange(0, 64)\n    time.sleep(60)"
    )
    assert grade_code(program, StdioTests((Run("", "3"),) * 3)).reason == "correct"


def test_the_grader_keeps_no_memory():
    """Twenty answers of 3 MB each: kept ones would show as 60 MB."""
    tests = FunctionTests("f", (Call((), 1),))
    big = "def f():\n    return 'x' * 3_000_000"
    grade_code(big, tests, settings=LONG)
    before = psutil.Process().memory_info().rss
    for _ in range(20):
        assert grade_code(big, tests, settings=LONG).reason == "wrong answer on test 1 of 1"
    assert psutil.Process().memory_info().rss - before < 20 << 20


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("network by socket", "SystemError: connected"),
        ("network by ctypes", "SystemError: connected"),
        ("looks for the test file", "SECRET-"),
    ],
)
def test_the_attacks_work_where_nothing_stops_them(name, said, host):
    """The control: in an ordinary process (and only harmless ones are tried so) these do what they are meant to."""
    (host.folder / "tests.json").write_text("SECRET-" + secrets.token_hex(16))
    program = host.fill(HELP + ATTACKS[name].source) + "\nprint(secret(0))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert said in done.stdout + done.stderr
