"""Writing files and folders: atomically, as strict JSON, and locked against a second process."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, Any, BinaryIO

from delta_rlvr.exit_codes import ExitCode

try:
    import fcntl
except ImportError:  # Windows: no lock against a second process
    fcntl = None  # type: ignore[assignment]


RUN = "run.json"
"""The file that describes a run, in its folder (`runs.layout` has the other names)."""


class InUse(Exception):
    """Another process writes to the same folder or file; the message says which and what to do."""

    exit_code = ExitCode.BAD_INPUT


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Write to a draft beside `path` and move it into place: a reader gets the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    with naming(path):
        try:
            with draft.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            with suppress(OSError):
                draft.unlink()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of the system within it names this file: not none, nor a draft of it."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            error.filename = str(path)
        raise


def replaces(path: Path, ours: bytes, what: str, option: str = "output") -> bool:
    """Return whether a file of ours would be replaced, which is all of the pattern `ours`; refuse to replace anything else."""
    if path.is_file() and re.fullmatch(ours, path.read_bytes()):
        return True
    if path.exists():
        raise ValueError(f"{option}={str(path)!r} already exists and is not {what}: give another `{option}`")
    return False


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: Any, *, indent: int | None = 1) -> None:
    """Write a value as a JSON file atomically."""
    write_text(path, dump(value, indent=indent))


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, which is read again only when it has changed."""
    return _file_digest(path, path.stat().st_mtime_ns)


@cache
def _file_digest(path: Path, _changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hold(file: IO[Any], refusal: str) -> None:
    """Lock an open file, or raise `InUse` with this message. The lock ends with the process, even when it is killed."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(refusal) from None
        except OSError:  # a file system without locks
            return


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes. It is made where it is missing, and removed again if it stays empty."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    path = folder / ".lock"
    try:
        with _held(path) as file:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}, since {now()}\n")
            file.flush()
            try:
                yield
            finally:
                with suppress(OSError):
                    path.unlink()
    finally:
        with suppress(OSError):
            for one in made:
                one.rmdir()


def in_use(folder: Path) -> bool:
    """Return whether another process has locked a folder."""
    try:
        with (folder / ".lock").open("r+") as file:
            hold(file, "")
    except InUse:
        return True
    except OSError:
        return False
    return False


def _held(path: Path) -> IO[str]:
    """Return the locked file; again from the start if its owner deleted it meanwhile."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
        try:
            file.seek(0)
            owner = file.read().strip() or "another process"
            hold(file, f"{path.parent} is in use by {owner}: wait until it ends, or give another `output`")
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()


def dump(value: Any, *, indent: int | None = None) -> str:
    """Return strict JSON: null for NaN and infinity; arrays and tensors as numbers and lists."""
    separators = (",", ":") if indent is None else None
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)


def plain(value: Any) -> Any:
    """Return `value` with JSON's own types only. Paths, enums and other objects become text."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        # A lone surrogate (half of a pair, from a token cut in two) has no UTF-8 form.
        return value.encode("utf-8", "replace").decode("utf-8") if not value.isascii() else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays, torch tensors
        return plain(value.tolist())
    return str(value)


def is_number(value: Any) -> bool:
    """Return whether a value from a file is a finite number; true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
