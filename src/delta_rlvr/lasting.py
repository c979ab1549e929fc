"""Output that may be closed, full, or go away while a command is at work: a terminal that is closed, `| head`."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from delta_rlvr.exit_codes import ExitCode, WorkFailed

_GONE = (errno.EPIPE, errno.EIO)


class OutputFailed(WorkFailed):
    """Standard output cannot be written, as on a full disk."""


class _Lasting:
    """A stream; what is written after its reader has gone is lost, and the work goes on."""

    def __init__(self, stream: Any):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except UnicodeEncodeError:  # a locale without these characters
            known = self._stream.encoding
            return int(self._stream.write(text.encode(known, "backslashreplace").decode(known)))
        except OSError as error:
            self._let_go(error)
            return len(text)

    def close(self) -> None:
        """Stay open, whatever code of the user's does."""

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._let_go(error)

    def _let_go(self, error: OSError) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        if error.errno not in _GONE and self._stream is not sys.__stderr__:  # where it would be told
            raise OutputFailed(f"standard output cannot be written ({error.strerror}): send it elsewhere") from error


@contextmanager
def lasting_output() -> Iterator[None]:
    """Within it, standard output and standard error are such streams."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the shell, as with >&-; this takes its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
            os.set_inheritable(getattr(sys, name).fileno(), True)
    before = sys.stdout, sys.stderr
    lasting: Any = tuple(map(_Lasting, before))
    sys.stdout, sys.stderr = lasting
    try:
        try:
            yield
        finally:
            for one in lasting:
                one.flush()
    except OutputFailed as error:
        print(f"delta-rlvr: {error}", file=sys.stderr)
        raise SystemExit(ExitCode.FAILED) from None
    finally:
        sys.stdout, sys.stderr = before
