"""Progress of a batch of gradings: a bar, or a function of the caller's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeAlias

Progress: TypeAlias = bool | Callable[[int, int], None]
"""True for a bar on the terminal, or a function (done, total)."""


def reporter(progress: Progress, total: int, stack: ExitStack) -> Callable[[int], None]:
    """What to call with the number of gradings done; the bar ends with the stack."""
    if callable(progress):
        return lambda done: progress(done, total)
    if not progress:
        return lambda done: None
    try:
        from rich.progress import Progress as Bar
    except ImportError as error:
        raise ImportError("progress=True needs rich: pip install rich, or pass a function (done, total)") from error
    bar = stack.enter_context(Bar())
    task = bar.add_task("grading", total=total)
    return lambda done: bar.update(task, completed=done)
