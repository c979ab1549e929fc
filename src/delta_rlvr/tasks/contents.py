"""Digests of the files that a method, reward or task names. An edited file keeps its name: digests tell two such runs apart."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from delta_rlvr.files import file_digest
from delta_rlvr.specs import split_spec
from delta_rlvr.tasks.sources.rows import data_file, is_row_file


def content_digest(spec: str) -> str | None:
    """Return the SHA-256 of the file that a method, reward or task is read from, or of the digests of several files. None if it names
    no file. Imports of the file are not included."""
    digests = [file_digest(path) for path in _files(spec) if path.is_file()]
    if len(digests) < 2:
        return digests[0] if digests else None
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def rule_digest(rule: object) -> str | None:
    """Return the SHA-256 of the file of a user rule; None for a rule of this package or one without source.

    In the script that runs, only the class counts: the rest of it may change."""
    kind = type(rule)
    if kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return None
    with suppress(TypeError, OSError):
        if kind.__module__ == "__main__":
            return hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()
        return file_digest(Path(inspect.getfile(kind)))
    return None


def _files(spec: str) -> Iterator[Path]:
    name, settings = split_spec(spec)
    where = name.rpartition(":")[0]
    if where.endswith(".py"):
        yield Path(where).expanduser().resolve()
    elif where:
        with suppress(ImportError, ValueError):  # not a module, as in reasoning-gym:NAME
            module = importlib.util.find_spec(where)
            if module is not None and module.origin is not None:
                yield Path(module.origin)
    yield from (data_file(Path(one)) for one in (name, settings.get("heldout", "")) if is_row_file(one))
