"""What the sandbox shows and bounds; and where bubblewrap does not work, a refusal that says what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr_graders.code import (
    Call,
    CodeSettings,
    FunctionTests,
    Run,
    SandboxError,
    SandboxUnavailable,
    StdioTests,
    grade_code,
    grade_code_batch,
)
from rlvr_graders.code.sandbox import bubblewrap, seccomp
from rlvr_graders.code.sandbox.session import Session


@pytest.fixture
def fresh_check():
    bubblewrap.check.cache_clear()
    yield
    bubblewrap.check.cache_clear()


def fake_bwrap(folder, script):
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "`bwrap` is not on the PATH"),
        ("echo bubblewrap 0.6.1", "this is bubblewrap 0.6.1"),
        (
            '[ "$1" = --version ] && echo bubblewrap 0.8.0 && exit\n'
            'echo "bwrap: Creating new namespace failed: Operation not permitted" >&2; exit 1',
            "cannot make a sandbox here. It said: bwrap: Creating new namespace failed",
        ),
    ],
)
def test_without_a_working_bubblewrap_it_refuses(script, words, tmp_path, monkeypatch, fresh_check):
    if script is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        fake_bwrap(tmp_path, script)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SandboxUnavailable, match=words) as caught:
        grade_code("print(1)", StdioTests((Run("", "1"),)))
    assert "apt-get install bubblewrap" in str(caught.value) or "--security-opt" in str(caught.value)


def test_a_sandbox_that_breaks_later_is_an_error_and_not_a_score(tmp_path, monkeypatch):
    bubblewrap.check(None)
    fake_bwrap(tmp_path, "echo 'bwrap: No space left' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SandboxError, match="the sandbox did not start: bwrap: No space left"):
        grade_code_batch(["print(1)"] * 3, [StdioTests((Run("", "1"),))] * 3)


def seen(expression, settings=None):
    """What a program in the sandbox says of it: the text of the exception that it raises."""
    program = f"import os, sys\ndef f():\n    raise ValueError({expression})"
    reason = grade_code(program, FunctionTests("f", (Call((), 1),)), settings=settings).reason
    return reason.removeprefix("raised ValueError: ").removesuffix(" (test 1 of 1)")


def test_a_program_sees_its_interpreter_and_nothing_else():
    assert seen("sorted(os.listdir('/'))") in (
        "['bin', 'dev', 'etc', 'lib', 'lib64', 'packages', 'proc', 'tmp', 'usr']",
        "['bin', 'dev', 'etc', 'lib', 'lib64', 'packages', 'proc', 'root', 'tmp', 'usr']",
    ) or not os.path.islink("/lib")  # other systems have other folders
    prefix = os.path.realpath(sys.base_prefix)
    for folder in ("/usr/local", "/usr/src", "/usr/include", "/usr/share/doc", "/usr/sbin", "/opt", "/home", "/var"):
        if not prefix.startswith(folder):
            assert seen(f"os.path.exists({folder!r})") == "False", folder
    assert seen("set(os.listdir('/usr/bin')) - {'setpriv', os.path.basename(sys.executable)}") == "set()"
    assert seen("os.path.exists('/bin/sh') or os.system('true') == 0") == "False"
    assert seen("[p for p in sys.path if 'site-packages' in p or 'dist-packages' in p]") == "[]"


def test_what_a_program_needs_of_the_system_is_there():
    needed = "__import__('ssl') and __import__('sqlite3') and __import__('ctypes') and __import__('decimal')"
    assert seen(f"bool({needed})") == "True"
    assert seen("str(__import__('zoneinfo').ZoneInfo('Europe/Paris'))") == "Europe/Paris"
    assert seen("__import__('numpy').ones(2).sum()") == "2.0"
    assert seen("__import__('multiprocessing').Pool(2).map(abs, [-1])") == "[1]"


READ_EVERY_ENVIRONMENT = """
import os
def f():
    seen = b""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try: seen += open(f"/proc/{process}/environ", "rb").read()
        except PermissionError: pass
    raise ValueError(f"{len(seen) > 0} {b'SECRET' in seen}")
"""


def test_the_trainers_environment_stays_outside(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "SECRET-KEY")
    verdict = grade_code(READ_EVERY_ENVIRONMENT, FunctionTests("f", (Call((), 1),)))
    assert verdict.reason == "raised ValueError: True False (test 1 of 1)"
    # Its first process is bubblewrap's own; under root another user's, and only seen from here.
    # (A program without f would end at once, and its process with it.)
    job = {"preamble": "", "program": "def f(): pass", "entry": "f", "return_arguments": False}
    with Session("calls", job, CodeSettings(), None) as session:
        session.begin()
        assert b"SECRET" not in Path(f"/proc/{session._first}/environ").read_bytes()


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
@pytest.mark.parametrize("make", ["open(name, 'w').close()", "os.mkdir(name)", "os.link(first, name)"])
def test_the_number_of_files_is_bounded(folder, make):
    program = (
        f"import os\ndef f():\n    first = '{folder}/first'\n    open(first, 'w').close()\n"
        f"    for number in range(10**8):\n        name = f'{folder}/{{number}}'\n        {make}"
    )
    settings = CodeSettings(seconds_per_test=30, files=1000)
    verdict = grade_code(program, FunctionTests("f", (Call((), 1),)), settings=settings)
    assert verdict.reason.startswith("made more than 1000 files")


def test_a_low_hard_limit_of_memory_is_kept_and_does_no_harm():
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))\n"
        "from rlvr_graders.code import *\n"
        "tests = FunctionTests('f', (Call((2,), 4),))\n"
        "print(grade_code('def f(x):\\n    return 2 * x', tests).reason)\n"
        "print(grade_code('def f(x):\\n    return bytearray(900 << 20)', tests).reason)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "correct\nran out of memory (test 1 of 1)\n", done.stderr


POOLS = {
    "threads": "from concurrent.futures import ThreadPoolExecutor\nimport time\ndef f():\n"
    "    with ThreadPoolExecutor(200) as pool:\n        return sum(pool.map(lambda n: time.sleep(0.1) or n, range(200)))",
    "processes": "import multiprocessing\ndef same(n): return n\ndef f():\n"
    "    with multiprocessing.get_context('fork').Pool(64) as pool:\n        return sum(pool.map(same, range(200)))",
    "children of a large process": "import os\ndef f():\n    held = bytearray(b'x') * (300 << 20)\n"
    "    for _ in range(8):\n        if os.fork() == 0:\n            import time\n            time.sleep(60)\n"
    "    import time\n    time.sleep(0.5)\n    return 19900",
    "programs started by a large process": "import subprocess, sys\ndef f():\n    held = bytearray(b'x') * (300 << 20)\n"
    "    for _ in range(10): subprocess.run([sys.executable, '-S', '-c', ''])\n    return 19900",
    "shared values": "import multiprocessing\ndef f():\n    values = multiprocessing.Array('d', 1000)\n"
    "    queue = multiprocessing.Queue()\n    queue.put(len(values))\n    return 18900 + queue.get()",
    "asyncio": "import asyncio\nasync def g():\n    await asyncio.sleep(0)\n    return 19900\ndef f(): return asyncio.run(g())",
}


@pytest.mark.parametrize("name", POOLS)
def test_what_programs_do_with_processes_and_threads_works(name):
    settings = CodeSettings(memory_bytes=(2048 if name == "threads" else 512) << 20, seconds_per_test=30)
    assert (
        grade_code(POOLS[name], FunctionTests("f", (Call((), sum(range(200))),)), settings=settings).reason == "correct"
    )


HEADERS = {0: "x86_64-linux-gnu/asm/unistd_64.h", 1: "asm-generic/unistd.h"}


@pytest.mark.parametrize("column", HEADERS)
def test_the_filter_has_the_kernels_numbers(column):
    header = Path("/usr/include", HEADERS[column])
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    numbers = dict(re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", header.read_text()))
    listed = {**seccomp.DENIED, **{name: rule[0] for name, rule in seccomp.ARGUMENTS.items()}}
    wrong = {
        name: known
        for name, both in listed.items()
        if (known := numbers.get(name)) is not None and known != str(both[column])
    }
    assert wrong == {}
