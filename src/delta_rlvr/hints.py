"""What a misspelled name or path was probably meant to be, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for an error message; empty where nothing is close."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def near_file(path: Path) -> str:
    """The same for a file that is not there: the nearest name beside it, in the nearest folder."""
    return _near(path, Path.is_file)


def near_path(path: Path) -> str:
    """The same for what may be a folder, too."""
    return _near(path, Path.exists)


def _near(path: Path, fits: Callable[[Path], bool]) -> str:
    near = _nearest(path, fits)
    return "" if near is None else f"; did you mean {str(near)!r}?"


def _nearest(path: Path, fits: Callable[[Path], bool]) -> Path | None:
    if fits(path.expanduser()):
        return path
    if not path.name:  # the root, or the folder that we are in
        return None
    beside = _nearest(path.parent, Path.is_dir)
    if beside is None:
        return None
    if fits((beside / path.name).expanduser()):
        return beside / path.name
    # Without what all of them may end in: nope.jsonl is not near unicode.jsonl.
    names = [one.name for one in beside.expanduser().iterdir() if fits(one)]
    stems = difflib.get_close_matches(
        path.name.partition(".")[0] or path.name, {name.partition(".")[0] or name for name in names}, n=1
    )
    close = difflib.get_close_matches(
        path.name, [name for name in names if name.startswith(tuple(stems))], n=1, cutoff=0
    )
    return beside / close[0] if stems and close else None
