"""What lies in the files that a spelling names: a user rule or a custom reward, a file of problems.

A file keeps its name when it is edited, so that two runs with the same settings may be two experiments; these digests tell.
"""

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
    """SHA-256 of the file that a method, reward or task is read from, of the digests where there are several; None where it names no
    file. (What a file imports is not looked at.)"""
    digests = [file_digest(path) for path in _files(spec) if path.is_file()]
    if len(digests) < 2:
        return digests[0] if digests else None
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def rule_digest(rule: object) -> str | None:
    """SHA-256 of the file that a user rule is written in, of the class alone where that file is the script that runs (which may
    change for other reasons); None for a rule of ours, or one typed at a prompt."""
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
        with suppress(ImportError, ValueError):  # not a module: another kind of name has a colon too
            module = importlib.util.find_spec(where)
            if module is not None and module.origin is not None:
                yield Path(module.origin)
    yield from (data_file(Path(one)) for one in (name, settings.get("heldout", "")) if is_row_file(one))
