"""A control group for each sandbox, where one may be made: the kernel itself then holds the memory limit, however short a burst is."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import time
from functools import cache
from pathlib import Path

NAME = "rlvr-grader-"
STALE_SECONDS = 60.0
# What is written into a new group, by the file that says which version of control groups it is, and where kills are counted.
FORMS = {
    "memory.max": (("memory.max", "memory.swap.max"), "memory.events"),
    "memory.limit_in_bytes": (("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), "memory.oom_control"),
}
MOVE_SELF = 'echo 0 > "$0" && exec "$@"'
_numbers = itertools.count()


class Group:
    """A group with a limit; `words` start a command in it."""

    def __init__(self, parent: Path, limit: int) -> None:
        self.path = parent / f"{NAME}{os.getpid()}-{next(_numbers)}-{time.monotonic_ns()}"
        self.path.mkdir()
        self._killed = -1
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            limits, events = next(form for mark, form in FORMS.items() if (self.path / mark).exists())
            (self.path / limits[0]).write_text(str(limit))
            with contextlib.suppress(
                FileNotFoundError
            ):  # a machine that does not count swap has none, or cannot bound it
                (self.path / limits[1]).write_text("0" if limits[1] == "memory.swap.max" else str(limit))
            self._killed = os.open(self.path / events, os.O_RDONLY)
            undo.pop_all()

    @property
    def words(self) -> list[str]:
        """What stands before a command that is to run in the group."""
        return ["/bin/sh", "-c", MOVE_SELF, str(self.path / "cgroup.procs")]

    def is_exceeded(self) -> bool:
        """Whether the kernel has ended a process of it because of the limit."""
        kills = re.search(rb"^oom_kill (\d+)", os.pread(self._killed, 4096, 0), re.MULTILINE)
        return kills is not None and int(kills[1]) > 0

    def close(self) -> None:
        """Its processes are gone."""
        if self._killed >= 0:
            os.close(self._killed)
            self._killed = -1
        for pause in (0.001, 0.01, 0.1, 1.0, 0.0):  # the kernel needs a moment after the last of them
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(pause)


def new_group(limit: int) -> Group | None:
    """None where none may be made: then the memory of its processes is looked at again and again."""
    parent = _parent()
    return None if parent is None else Group(parent, limit)


@cache
def _parent() -> Path | None:
    """The folder to make groups in: that of this process, or the one above it, where version 2 has them."""
    for folder in _own_folders(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()):
        for parent in (folder, folder.parent):
            if not os.access(parent, os.W_OK):
                continue
            _remove_stale(parent)
            with contextlib.suppress(OSError, StopIteration):
                group = Group(parent, 1 << 30)
                try:
                    if subprocess.run([*group.words, "true"], capture_output=True, check=False).returncode == 0:
                        return parent
                finally:
                    group.close()
    return None


def _own_folders(groups: str, mounts: str) -> list[Path]:
    """Where this process's groups that count memory lie in the file system: of version 2 (`0::/path`) and of 1 (`4:memory:/path`)."""
    folders = []
    for line in mounts.splitlines():
        where, _, how = line.partition(" - ")
        root, point = where.split()[3:5]
        kind, _, options = how.split(maxsplit=2)
        of = {"cgroup2": r"0::(.*)", "cgroup": r"\d+:memory:(.*)"}.get(kind)
        if of is None or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        path = re.search(f"^{of}$", groups, re.MULTILINE)
        if path and path[1].startswith(root):
            folders.append(Path(point) / path[1][len(root) :].lstrip("/"))
    return folders


def _remove_stale(parent: Path) -> None:
    """Groups of graders that were killed: they are empty by now, and one that is not cannot be removed."""
    for folder in parent.glob(f"{NAME}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > STALE_SECONDS:
                folder.rmdir()
