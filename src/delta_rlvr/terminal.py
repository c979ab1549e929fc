"""Printing to a console: sentences, warnings and tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table


def plain_console(**options: Any) -> Console:
    """Return a console of rich that leaves texts such as ":Zero:", which may be part of a name, as they are."""
    return Console(emoji=False, **options)


def make_console(width: int = 150) -> Console:
    """Return a console as wide as its terminal; in a file, where tables would wrap at 80, of `width` characters."""
    console = plain_console()
    if not console.is_terminal:
        console.width = width
    return console


def say(console: Console, text: str) -> None:
    """Print a sentence as it is, without markup and on one line, so that paths in it can be copied."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def plain_warnings(say: Callable[[str], None]) -> Iterator[None]:
    """Show each warning once, as a sentence, without the file and line of code that Python adds."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def add_columns(table: Table, headings: Iterable[str], *, left: Iterable[str] = (), **options: Any) -> None:
    """Add columns to a table, aligned to the right except for those named in `left`."""
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right", **options)
