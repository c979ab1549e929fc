"""A command that is killed in the middle of its work."""

import os
import signal
import subprocess
import sys

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
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
