"""Values of settings: of the type that their field declares, and within bounds."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

MOST = 1_000_000
"""The largest count that anything is asked for: of steps, problems, samples. More would be silence for hours."""

_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "True or False"),
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    str: ((str, os.PathLike), "a text"),
}
_EXAMPLES = {
    "reward": "its place, as in 'my.py:function'",
    "task": "its name, a file of rows or a data set, as a text",
    "model": "its name or folder, as a text",
}


class Bounds(NamedTuple):
    """From the least to the largest value, both allowed."""

    least: float = 0
    most: float = math.inf


COUNT = Bounds(1, MOST)
HOTTEST = 100
"""Of sampling temperatures."""


def check_types(kind: type, values: Mapping[str, Any]) -> None:
    """Refuse a value that is not what the field of that name of a dataclass declares, where that is of plain types."""
    for name, value in values.items():
        if name not in (kinds := _plain_fields(kind)) or (value is None and name in _may_be_none(kind)):
            continue
        accepted = [one for plain in kinds[name] for one in _KINDS[plain][0]]
        if not isinstance(value, tuple(accepted)) or (isinstance(value, bool) and bool not in accepted):
            wanted = _EXAMPLES.get(name) or " or ".join(_KINDS[plain][1] for plain in kinds[name])
            raise ValueError(f"{name}={value!r:.60}: give {wanted}")


def check_bounds(owner: object, bounds: Mapping[str, Bounds]) -> None:
    """Refuse a value that is out of its bounds; None is within all."""
    for name, (least, most) in bounds.items():
        value = getattr(owner, name)
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name}={value}: give {f'{least} or more' if value < least else f'{most} at most'}")


@cache
def _may_be_none(kind: type) -> set[str]:
    """The fields that may be None, or are by default."""
    hints = get_type_hints(kind)
    return {one.name for one in fields(kind) if one.default is None or NoneType in get_args(hints[one.name])}


@cache
def _plain_fields(kind: type) -> dict[str, tuple[type, ...]]:
    """The fields that hold a bool, a number or a text (or None), with which of these."""
    plain = {}
    for name, hint in get_type_hints(kind).items():
        union = get_origin(hint) in (Union, UnionType)
        kinds = tuple(one for one in (get_args(hint) if union else (hint,)) if one is not NoneType)
        if all(one in _KINDS for one in kinds):
            plain[name] = kinds
    return plain
