"""Programs that are killed in the middle of their work."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

PROGRAM = """
import os, pkgutil, signal, sys
from delta_rlvr.cli import main

place, _, name = sys.argv[1].rpartition("." if "." in sys.argv[1].partition(":")[2] else ":")
owner, left = pkgutil.resolve_name(place), int(sys.argv[2])
work = getattr(owner, name)

def work_or_die(*given, **settings):
    global left
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return work(*given, **settings)

setattr(owner, name, work_or_die)
main(sys.argv[3:])
"""


def killed(function, calls, command):
    """Run a command of the CLI until a function ("module:name" or "module:Class.name") was called so often; its next call kills."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, function, str(calls), *command],
        env=_environment(),
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


@contextmanager
def running(code, *arguments):
    """A program and the first line that it says, killed at the end."""
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, env=_environment(), stdout=subprocess.PIPE, text=True) as program:
        try:
            yield program, program.stdout.readline().strip()
        finally:
            program.kill()


def _environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
