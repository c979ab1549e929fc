"""How a run ends before its end: what is kept, and what to do next, in one line."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from delta_rlvr.adapters.trl.resume import find_checkpoints
from delta_rlvr.exit_codes import WorkFailed
from delta_rlvr.runs.layout import RUN
from delta_rlvr.words import command_line

_LITTLE = 16 * 2**20  # bytes; a disk with less is full, whatever the library that failed calls it


@contextmanager
def how_to_go_on(folder: Path) -> Iterator[None]:
    """Say, when a run is interrupted or the disk is full, which checkpoint is kept and which command goes on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_kept(folder)) from None
    except Exception as error:
        if not disk_is_full(error, folder):
            raise
        free = shutil.disk_usage(folder).free // 2**20
        raise WorkFailed(
            f"the disk is full ({free} MB left for {folder}): {_first_line(error)}; free some space, or set --save_total_limit. "
            f"{_kept(folder)}"
        ) from error


def disk_is_full(error: BaseException, folder: Path) -> bool:
    """Whether an error comes from a full disk: torch and safetensors have errors of their own for it."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    if "No space left on device" in str(error):
        return True
    return "PytorchStreamWriter failed" in str(error) and shutil.disk_usage(folder).free < _LITTLE


@contextmanager
def room_for_the_end(folder: Path) -> Iterator[None]:
    """Where a full disk ends a run, delete the checkpoint that it tore: it is worth nothing, and its room lets run.json say what
    happened."""
    try:
        yield
    except Exception as error:
        if disk_is_full(error, folder):
            for step in find_checkpoints(folder).torn:
                shutil.rmtree(folder / f"checkpoint-{step}", ignore_errors=True)
        raise


def _kept(folder: Path) -> str:
    whole = find_checkpoints(folder).whole
    again = command_line("delta-rlvr", "train", "--output", folder, "--resume")
    if not whole:
        start = f"; start again with: {again}" if (folder / RUN).exists() else ""
        return f"no checkpoint was written yet (--save_steps says how often){start}"
    return f"checkpoint-{whole[-1]} is kept; go on with: {again}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
