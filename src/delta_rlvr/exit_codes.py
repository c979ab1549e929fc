"""What a command's exit code means: the same for all of them (docs/training.md has the table)."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    """It did what was asked."""
    FAILED = 1
    """It failed at work: the input was accepted, and something went wrong later."""
    BAD_INPUT = 2
    """An option, a file or a missing package: nothing was begun. argparse ends with it, too."""
    INCOMPLETE = 3
    """It ended, and part of the result is missing and named: the same command tries that part again."""
    INTERRUPTED = 130
    """Ctrl-C, as a shell counts it (128 + SIGINT); what was written is kept."""
    TERMINATED = 143
    """The same by SIGTERM."""


class WorkFailed(Exception):
    """Work that had begun could not go on; the message says why."""

    exit_code = ExitCode.FAILED


def exit_code_of(error: Exception) -> ExitCode | None:
    """What an error that a person can put right ends with; None for a bug, which shows its traceback (and Python exits with 1).

    Kinds of error of our own say it themselves (`exit_code`).
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
    """From here on the input is accepted: an error that would be called bad input elsewhere is a failure of the work."""
    try:
        yield
    except Exception as error:
        if exit_code_of(error) is ExitCode.BAD_INPUT:
            failed = WorkFailed(in_words(error))
            for note in getattr(error, "__notes__", ()):
                failed.add_note(note)
            raise failed from error
        raise
