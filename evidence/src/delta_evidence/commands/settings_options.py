"""Options that stand for fields of a settings record."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any


def add_settings(parser: Any, defaults: Any, *rows: tuple[str, Callable[[str], Any], str]) -> None:
    """Options (name, type, help) for fields of a settings record; the help ends with the record's default."""
    for flag, kind, words in rows:
        value = getattr(defaults, flag.removeprefix("--").replace("-", "_"))
        shown = f"{value:g}" if isinstance(value, float) else value
        parser.add_argument(flag, type=kind, help=f"{words} (default: {shown})")


def given_settings(options: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """What the command line sets of these."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}
