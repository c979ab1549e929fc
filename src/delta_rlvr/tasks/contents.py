"""Digests of the files that a method, reward or task names. An edited file keeps its name: digests tell two such runs apart."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

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
    return _code_digest(type(rule))


def rewards_digest(functions: Iterable[Any]) -> str | None:
    """Return the SHA-256 of the code of a script's reward functions, like `rule_digest`; None if no code of theirs is known.

    A model that gives rewards has none."""
    from torch.nn import Module

    digests = []
    for function in functions:
        while isinstance(function, partial):
            function = function.func
        if not isinstance(function, Module):
            digests.append(_code_digest(function if inspect.isroutine(function) else type(function)))
    known = [digest for digest in digests if digest]
    return hashlib.sha256("".join(known).encode()).hexdigest() if known else None


def reward_settings_digest(functions: Iterable[Any]) -> str | None:
    """Return the SHA-256 of the settings of a script's reward functions: those of this library's rewards with their parts, the
    arguments of a `partial`, and numbers outside of a function that it reads. None if there are none; what another object is set to is
    not known."""
    known = [one for one in functions if isinstance(one, partial) or _is_ours(type(one)) or _numbers(one)]
    return hashlib.sha256(repr([_described(one) for one in known]).encode()).hexdigest() if known else None


def _described(value: Any, deep: int = 4) -> Any:
    """Return what tells this setting from another, down to so many objects within objects."""
    if value is None or isinstance(value, str | bytes | int | float | Path):
        return repr(value)
    if isinstance(value, list | tuple):
        return [_described(one, deep) for one in value]
    if isinstance(value, Mapping):
        return [(repr(name), _described(one, deep)) for name, one in value.items()]
    if isinstance(value, partial):
        return [_described(one, deep) for one in (value.func, value.args, value.keywords)]
    code = value if inspect.isroutine(value) or isinstance(value, type) else type(value)
    name = f"{code.__module__}.{code.__qualname__}"
    if not _is_ours(code):
        return name, rewards_digest([value]), _numbers(value)
    state = {} if code is value or not deep else getattr(value, "__dict__", {})  # an object with slots is a row of data
    return name, [(key, _described(one, deep - 1)) for key, one in state.items() if not key.startswith("last_")]


def _numbers(function: Any) -> list[tuple[str, float]]:
    """Return the numbers of its module and of the functions around it that a function reads."""
    if not inspect.isfunction(function):
        return []
    values = {name: function.__globals__.get(name) for name in _names(function.__code__)}
    values |= inspect.getclosurevars(function).nonlocals
    return sorted((name, value) for name, value in values.items() if isinstance(value, int | float))


def _names(code: CodeType) -> set[str]:
    """Return the names in a function's code, with those of its comprehensions and inner functions."""
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return {*code.co_names}.union(*map(_names, inner))


def _is_ours(code: Any) -> bool:
    return str(code.__module__).partition(".")[0] in (__name__.partition(".")[0], "rlvr_graders")


def rows_digest(data: Any) -> str | None:
    """Return the SHA-256 of all rows of a data set in their order; None if it is streamed, or not a `datasets.Dataset`.

    200,000 rows of 2 KB take a second, shuffled ones three."""
    from datasets import Dataset  # takes long to import, and study and credit-bench need nothing of it

    if not isinstance(data, Dataset):
        return None
    summed = hashlib.sha256()
    for rows in data.with_format("arrow").iter(1000):  # nothing is decoded, such as images
        summed.update(repr(rows.to_pydict()).encode("utf-8", "replace"))
    return summed.hexdigest()


def _code_digest(code: Any) -> str | None:
    if code.__module__ is None or code.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return None
    with suppress(TypeError, OSError):
        if code.__module__ == "__main__":
            return hashlib.sha256(inspect.getsource(code).encode()).hexdigest()
        return file_digest(Path(inspect.getfile(code)))
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
