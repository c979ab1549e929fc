"""The remote sandbox against a small server that speaks SandboxFusion's /run_code, and the refusals."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from delta_rlvr.rewards.code import (
    AssertionTests,
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
from delta_rlvr.rewards.sandbox import bubblewrap
from rewards.code_problems import PROBLEMS


class Fusion(BaseHTTPRequestHandler):
    """Runs what it is sent as SandboxFusion does, without the sandbox: the programs here are ours."""

    failures: ClassVar[list[dict]] = []
    requests: ClassVar[list[dict]] = []

    def do_POST(self):
        assert self.path == "/run_code"
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append(request)
        reply = self.failures.pop() if self.failures else self.run(request)
        body = json.dumps(reply).encode()
        self.send_response(reply.get("http", 200))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @staticmethod
    def run(request):
        result = {"execution_time": 0.1, "return_code": None, "stdout": "", "stderr": ""}
        try:
            done = subprocess.run(
                [sys.executable, "-c", request["code"]],
                input=request["stdin"],
                capture_output=True,
                text=True,
                timeout=request["run_timeout"],
                check=False,
            )
        except subprocess.TimeoutExpired:
            result["status"] = "TimeLimitExceeded"
        else:
            result |= {
                "status": "Finished",
                "return_code": done.returncode,
                "stdout": done.stdout,
                "stderr": done.stderr,
            }
        status = "Success" if result["return_code"] == 0 else "Failed"
        return {"status": status, "message": "", "compile_result": None, "run_result": result, "files": {}}

    def log_message(self, *_):
        pass


@pytest.fixture
def settings():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Fusion)
    Fusion.failures, Fusion.requests = [], []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield CodeSettings(
        sandbox="server", server_url=f"http://127.0.0.1:{server.server_port}/", seconds_per_test=5
    )
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_server_agrees_with_bubblewrap(name, settings):
    problem = PROBLEMS[name]
    programs = [*problem.right, *problem.wrong]
    remote = grade_code_batch(programs, [problem.tests] * len(programs), settings=settings)
    local = grade_code_batch(programs, [problem.tests] * len(programs))
    assert [verdict.score for verdict in remote] == [verdict.score for verdict in local]
    assert [verdict.score for verdict in remote] == [1.0] * len(problem.right) + [0.0] * len(problem.wrong)


def test_expectations_stay_here(settings):
    answer = "SECRET-1234"
    value = FunctionTests("f", (Call((), answer),))
    printed = StdioTests((Run("", answer),))
    asserted = AssertionTests("f", source=f"assert f() == {answer!r}")
    for tests in (value, printed, asserted):
        assert grade_code("def f():\n    return 1\nprint(1)", tests, settings=settings).score == 0
    with_program = [
        request
        for request in Fusion.requests
        if "return 1" in request["code"] or "cmV0dXJuIDE" in request["code"]
    ]
    assert len(with_program) >= 2
    assert not [request for request in with_program if answer in json.dumps(request)]


def test_calls_that_depend_on_answers_take_more_rounds(settings):
    tests = AssertionTests("step", source="x = 1\nfor _ in range(4):\n    x = step(x)\nassert x == 16\n")
    assert grade_code("def step(x):\n    return 2 * x", tests, settings=settings).score == 1
    assert grade_code("def step(x):\n    return 2 + x", tests, settings=settings).reason == "wrong answer"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def f(x):\n    exit(0)", "ended before answering"),
        ("import os\ndef f(x):\n    os._exit(0)", "ended before answering"),
        ("def f(x):\n    raise ValueError('k')", "raised ValueError: k"),
        ("def g(x):\n    return x", "does not load: raised NameError"),
        ("class E:\n    __eq__ = lambda *a: True\ndef f(x):\n    return E()", "wrong answer"),
        ("def f(x):\n    while True: pass", "timed out after 1 s"),
        ("while True: pass\ndef f(x): 1", "timed out after"),
        ("import os, sys\nos.write(1, b'passed')\ndef f(x): print('x' * 10)", "wrong answer"),
    ],
)
def test_failures(program, reason, settings):
    total = 2 if "timed out" in reason else 20
    settings = CodeSettings(
        sandbox="server", server_url=settings.server_url, seconds_per_test=1, seconds_total=total
    )
    for tests in (FunctionTests("f", (Call((1,), 2),)), AssertionTests("f", source="assert f(1) == 2")):
        verdict = grade_code(program, tests, settings=settings)
        assert verdict.score == 0
        assert verdict.reason.startswith(reason), verdict.reason


def test_a_server_that_fails_is_an_error_and_not_a_score(settings):
    tests, right = StdioTests((Run("", "1"),)), "print(1)"
    broken = {"status": "SandboxError", "message": "no pod", "run_result": None}
    Fusion.failures = [broken, {"http": 500}]
    assert grade_code(right, tests, settings=settings).score == 1  # the third attempt
    Fusion.failures = [broken] * 3
    with pytest.raises(SandboxError, match="failed 3 times; the last time it said: no pod"):
        grade_code(right, tests, settings=settings)
    nobody = CodeSettings(sandbox="server", server_url="http://127.0.0.1:9", server_attempts=1)
    with pytest.raises(SandboxError, match="Connection refused"):
        grade_code_batch([right] * 3, [tests] * 3, settings=nobody)


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
    assert "sandbox='server'" in str(caught.value)
    assert "sandbox='weak'" in str(caught.value)
    assert "apt-get install bubblewrap" in str(caught.value) or "--security-opt" in str(caught.value)


def test_a_sandbox_that_breaks_later_is_an_error_and_not_a_score(tmp_path, monkeypatch):
    bubblewrap.check()
    fake_bwrap(tmp_path, "echo 'bwrap: No space left' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SandboxError, match="the sandbox did not start: bwrap: No space left"):
        grade_code_batch(["print(1)"] * 3, [StdioTests((Run("", "1"),))] * 3)
