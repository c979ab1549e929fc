"""The exit codes, the same for all commands (docs/training.md has the table)."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    """The command did its work."""
    FAILED = 1
    """The input was accepted, and something went wrong later."""
    BAD_INPUT = 2
    """A wrong option or file or a missing package: no run was started. argparse uses this code, too."""
    INCOMPLETE = 3
    """Part of the result is missing, and a message names it: the same command tries that part again."""
    INTERRUPTED = 130
    """Ended by Ctrl-C (128 + SIGINT, as in a shell); what was written is kept."""
    TERMINATED = 143
    """Ended by SIGTERM (128 + 15); what was written is kept."""


class WorkFailed(Exception):
    """Work failed after it had started; the message says why."""

    exit_code = ExitCode.FAILED


def exit_code_of(error: Exception) -> ExitCode | None:
    """Return the exit code of an error that the user can fix, or None for a bug: Python prints its traceback and exits with 1.

    The package's own errors have the attribute `exit_code`.
    """
    own: ExitCode | None = getattr(error, "exit_code", None)
    if own is not None:
        return own
    if isinstance(error, (ValueError, ImportError, *_ABOUT_A_PATH)):
        return ExitCode.BAD_INPUT
    if isinstance(error, (FloatingPointError, OSError)):  # training that diverged; a full disk, a connection
        return ExitCode.FAILED
    return None


_ABOUT_A_PATH = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)


def in_words(error: BaseException) -> str:
    """What an error says to a person. The system's own are a number and a few words."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    if error.filename is None:
        return error.strerror
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"{error.filename}: a file is where a folder should be; give another `output`"
    if error.errno in _CANNOT_WRITE:
        return f"cannot write to {error.filename} ({error.strerror}): give another `output`"
    return f"{error.filename}: {error.strerror}"


_CANNOT_WRITE = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG)


def ending_signals() -> list[int]:
    """The signals that end a command as Ctrl-C does: SIGTERM, and SIGHUP of a terminal that is closed, unless `nohup` keeps it off."""
    hangups: list[int] = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # Windows has none
    return [signal.SIGTERM, *(one for one in hangups if signal.getsignal(one) is not signal.SIG_IGN)]


@contextmanager
def at_work() -> Iterator[None]:
    """Turn errors that mean bad input elsewhere into `WorkFailed`: inside, the input has been accepted."""
    try:
        yield
    except Exception as error:
        if exit_code_of(error) is ExitCode.BAD_INPUT:
            failed = WorkFailed(in_words(error))
            for note in getattr(error, "__notes__", ()):
                failed.add_note(note)
            raise failed from error
        raise
