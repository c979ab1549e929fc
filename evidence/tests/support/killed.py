"""Programs that are killed in the middle of their work."""

import os
import pkgutil
import signal
import subprocess
import sys
from contextlib import contextmanager

from command_line import FORKS
from delta_rlvr.cli import main


def killed(function, calls, command):
    """Run a command of the CLI until a function ("module:name" or "module:Class.name") was called so often; its next call kills."""
    process = FORKS.Process(target=_run_and_die, args=(function, calls, command))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"it ended by itself, with exit code {process.exitcode}"


def _run_and_die(function, left, command):
    place, _, name = function.rpartition("." if "." in function.partition(":")[2] else ":")
    owner = pkgutil.resolve_name(place)
    work = getattr(owner, name)

    def work_or_die(*given, **settings):
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return work(*given, **settings)

    setattr(owner, name, work_or_die)
    main(command)


@contextmanager
def running(code, *arguments):
    """A program and the first line that it says, killed at the end."""
    command = [sys.executable, "-c", code, *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield program, program.stdout.readline().strip()
        finally:
            program.kill()
