"""Values of settings and arguments: of the type that is declared, and within bounds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, wraps
from inspect import signature
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from delta_rlvr.hints import did_you_mean

MOST = 1_000_000
"""The largest count that anything is asked for: of steps, problems, samples. More would be silence for hours."""

_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "True or False"),
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    str: ((str, os.PathLike), "a text"),
    Path: ((str, os.PathLike), "a path"),
}
_RESULT = "what `evaluate_policy` returns, or `EvaluationResult.load(path)`"
_RUNS = "at least one run folder, by its path"
_EXAMPLES = {
    "reward": "its place, as in 'my.py:function'",
    "task": "its name, a file of rows or a data set, as a text",
    "model": "its name or folder, as a text",
    "rule": "a rule object, as in Delta() or get_method('delta').rule",
    "rollouts": "the path of a file",
    "runs": _RUNS,
    "run_paths": _RUNS,
    "state": "RunningCentroids() at first, then the state that came back",
    "document": "the content of a result's file; `EvaluationResult.load(path)` reads one",
    "baseline": _RESULT,
    "candidate": _RESULT,
}

P = ParamSpec("P")
R = TypeVar("R")


class Bounds(NamedTuple):
    """From the least to the largest value, both allowed."""

    least: float = 0
    most: float = math.inf


COUNT = Bounds(1, MOST)
HOTTEST = 100
"""Of sampling temperatures."""


def check_types(kind: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Refuse a value that is not what the field of that name of a dataclass, or the argument of a function, declares."""
    hints = _hints(kind)
    for name, value in values.items():
        if name in hints and not _fits(value, hints[name]):
            raise ValueError(f"{name}={value!r:.60}: give {_EXAMPLES.get(name) or _wanted(hints[name])}")


def check_names(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuse a name that is not among the known ones. `where` begins the message."""
    known = list(known)
    for name in given:
        if name not in known:
            raise ValueError(f"{where} has no setting {name!r}{did_you_mean(name, known)}")


def typed(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a public function by its annotations, and refuse names that it does not have."""
    parameters = signature(function).parameters
    single = {name for name, one in parameters.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}

    @wraps(function)
    def checked(*places: P.args, **named: P.kwargs) -> R:
        if len(single) == len(parameters):
            check_names(named, single, function.__qualname__.removesuffix(".__init__"))
        given = dict(zip(parameters, places, strict=False)) | named
        check_types(function, {name: value for name, value in given.items() if name in single})
        return function(*places, **named)

    return checked


def check_bounds(owner: object, bounds: Mapping[str, Bounds]) -> None:
    """Refuse a value that is out of its bounds; None is within all."""
    for name, (least, most) in bounds.items():
        value = getattr(owner, name)
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name}={value}: give {f'{least} or more' if value < least else f'{most} at most'}")


@cache
def _hints(kind: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    # Some of TRL's and transformers' fields are None by default, and do not declare it.
    own = fields(kind) if is_dataclass(kind) else ()
    return hints | {one.name: hints[one.name] | None for one in own if one.default is None}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is what a type hint says. Shapes and dtypes of tensors are checked elsewhere."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if hint in _KINDS:
        return isinstance(value, _KINDS[hint][0]) and (hint is bool or not isinstance(value, bool))
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inside)
    if origin is Literal:
        return value in inside
    if origin in (Sequence, list, tuple):
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        return listed and (origin is tuple or all(_fits(one, inside[0]) for one in value))
    if origin is Callable:
        return callable(value)
    kind = getattr(hint, "array_type", origin or hint)
    # What transformers declares as an enumeration may be its text.
    return not isinstance(kind, type) or issubclass(kind, Enum) or isinstance(value, kind)


def _wanted(hint: Any) -> str:
    """A type hint in words."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint in _KINDS:
        return _KINDS[hint][1]
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_wanted(one) for one in inside if one is not NoneType))
    if origin is Literal:
        return f"one of {', '.join(map(repr, inside))}"
    if origin in (Sequence, list):
        return f"a list, each {_wanted(inside[0])}"
    name = "function" if origin is Callable else getattr(hint, "array_type", origin or hint).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
