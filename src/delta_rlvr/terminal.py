"""What is printed to people: a console, sentences on it, warnings as sentences, tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table


def make_console(width: int = 150) -> Console:
    """As wide as its terminal. A file has no width: tables should not wrap at 80 there."""
    console = Console()
    if not console.is_terminal:
        console.width = width
    return console


def say(console: Console, text: str) -> None:
    """A sentence as it is; one that names a path is not broken."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def plain_warnings(say: Callable[[str], None]) -> Iterator[None]:
    """Warnings as sentences, each of them once: not as a line of code across the lines of progress."""
    said: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def add_columns(table: Table, headings: Iterable[str], *, left: Iterable[str] = (), **options: Any) -> None:
    """Columns with numbers, but for those named in `left`."""
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right", **options)
