"""Where bubblewrap does not work, the grader refuses: no score, and words that say what to do."""

from __future__ import annotations

import pytest

from delta_rlvr.rewards.code import (
    Run,
    SandboxError,
    SandboxUnavailable,
    StdioTests,
    grade_code,
    grade_code_batch,
)
from delta_rlvr.rewards.code.sandbox import bubblewrap


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
    assert "sandbox='weak'" in str(caught.value)
    assert "apt-get install bubblewrap" in str(caught.value) or "--security-opt" in str(caught.value)


def test_a_sandbox_that_breaks_later_is_an_error_and_not_a_score(tmp_path, monkeypatch):
    bubblewrap.check()
    fake_bwrap(tmp_path, "echo 'bwrap: No space left' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SandboxError, match="the sandbox did not start: bwrap: No space left"):
        grade_code_batch(["print(1)"] * 3, [StdioTests((Run("", "1"),))] * 3)
