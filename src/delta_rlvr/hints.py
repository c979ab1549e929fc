"""Suggestions for misspelled names and paths in error messages."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path

from delta_rlvr.files import RUN
from delta_rlvr.words import counted


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?", or "" where no known name is close."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def near_file(path: Path, fits: Callable[[Path], bool] = Path.is_file) -> str:
    """Return "; did you mean ...?" for a missing file, or "": the closest name in the closest folder."""
    near = _nearest(path, fits)
    return "" if near is None else f"; did you mean {str(near)!r}?"


def near_path(path: Path) -> str:
    """Return the hint of `near_file` for a path that may be a file or a folder."""
    return near_file(path, Path.exists)


def several_runs(folder: Path) -> str | None:
    """What to say of a folder that is not a run but holds runs, as a comparison's does; None for any other."""
    names = [] if (folder / RUN).exists() else sorted(file.parent.name for file in folder.glob(f"*/{RUN}"))
    if not names:
        return None
    first = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{folder} is a folder of {counted(len(names), 'run')} ({first}): name one"


def _nearest(path: Path, fits: Callable[[Path], bool]) -> Path | None:
    if fits(path.expanduser()):
        return path
    if not path.name:  # the root, or the current folder
        return None
    beside = _nearest(path.parent, Path.is_dir)
    if beside is None:
        return None
    if fits((beside / path.name).expanduser()):
        return beside / path.name
    # Names are compared without their endings: nope.jsonl is not close to unicode.jsonl.
    names = [one.name for one in beside.expanduser().iterdir() if fits(one)]
    stems = difflib.get_close_matches(
        path.name.partition(".")[0] or path.name, {name.partition(".")[0] or name for name in names}, n=1, cutoff=0.7
    )
    close = difflib.get_close_matches(
        path.name, [name for name in names if name.startswith(tuple(stems))], n=1, cutoff=0
    )
    return beside / close[0] if stems and close else None
