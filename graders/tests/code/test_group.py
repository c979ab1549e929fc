"""The control group of a sandbox: where it is looked for, and that the kernel holds the limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr_graders.code import Call, CodeSettings, FunctionTests, grade_code
from rlvr_graders.code.sandbox import group

VERSION_1 = "39 32 0:30 {root} /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
VERSION_2 = "35 25 0:28 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
OTHERS = "40 32 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
needs_group = pytest.mark.skipif(group._parent() is None, reason="no control group may be made here")


@pytest.mark.parametrize(
    ("groups", "mounts", "expected"),
    [
        ("4:memory:/jobs/7\n0::/\n", VERSION_1.format(root="/"), ["/sys/fs/cgroup/memory/jobs/7"]),
        # In a container: what is mounted is its own group, and the path is the whole machine's.
        ("4:memory:/docker/ab\n0::/\n", VERSION_1.format(root="/docker/ab"), ["/sys/fs/cgroup/memory"]),
        ("0::/user.slice/run-1.scope\n", VERSION_2.format(root="/"), ["/sys/fs/cgroup/user.slice/run-1.scope"]),
        ("0::/\n", VERSION_2.format(root="/"), ["/sys/fs/cgroup"]),
        ("0::/other\n", VERSION_2.format(root="/docker/ab"), []),  # not mounted here
        ("2:cpu:/\n", "", []),
    ],
)
def test_where_the_own_group_lies(groups, mounts, expected):
    assert group._own_folders(groups, OTHERS + mounts) == [Path(path) for path in expected]


@needs_group
def test_the_kernel_holds_the_limit_and_says_so():
    made = group.new_group(64 << 20)
    try:
        fill = [*made.words, sys.executable, "-c", "bytearray(16 << 20); import os; print(os.getpid())"]
        assert subprocess.run(fill, capture_output=True, check=True).stdout
        assert not made.is_exceeded()
        fill[-1] = "bytearray(200 << 20)"
        assert subprocess.run(fill, capture_output=True, check=False).returncode == -9
        assert made.is_exceeded()
    finally:
        made.close()
    assert not made.path.exists()


BURST = """
import os, time
def double(n):
    for _ in range(100):
        if os.fork() == 0:
            hold = bytearray(24 << 20)
            time.sleep(30)
    time.sleep(1)
    return 2 * n
"""


@needs_group
def test_a_burst_between_two_looks_meets_the_limit(monkeypatch):
    """A hundred processes that fill 2.4 GB at once, and a look at what they use that never comes."""
    from rlvr_graders.code.sandbox import memory

    monkeypatch.setattr(memory.Memory, "is_exceeded", lambda self: False)
    settings = CodeSettings(memory_bytes=256 << 20, seconds_per_test=20.0, seconds_total=20.0)
    verdict = grade_code(BURST, FunctionTests("double", (Call((3,), 6),)), settings=settings)
    assert verdict.reason == "used more than 268435456 bytes of memory (test 1 of 1)"
    assert not list(group._parent().glob(f"{group.NAME}{os.getpid()}-*"))
