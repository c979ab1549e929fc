"""A run that goes on: from which checkpoint, with which settings, or not at all because it is finished."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.adapters.trl.own_run import MODEL
from delta_rlvr.adapters.trl.resume import find_checkpoints
from delta_rlvr.commands.options import NOT_RESTORED, differing, flag_of, told_difference
from delta_rlvr.runs import RunFolderError, RunWriter, read_run
from delta_rlvr.runs.layout import CONTENT, RUN
from delta_rlvr.words import command_line


def finished(settings: Mapping[str, Any], config: DeltaTrainerConfig) -> str | None:
    """Where the run to go on with has taken all its steps: a sentence that says so, and what the command line asks of it in vain."""
    folder = Path(str(config.output_dir))
    info = read_run(folder).info if (folder / RUN).exists() else {}
    before = info.get("settings") or {}
    if config.max_steps > 0:
        left = config.max_steps > int(info.get("steps") or 0)
    else:
        left = config.num_train_epochs != before.get("num_train_epochs")
    # Another run is refused where the folder is opened.
    other_run = any(before.get(name) != settings[name] for name in ("model", "task", "method", "seed"))
    if info.get("status") != "finished" or left or other_run:
        return None
    asked = [
        told_difference(name, *values)
        if name.endswith(CONTENT)
        else f"{flag_of(name)} was {values[0]} and stays so"
        for name, values in differing(before, settings, NOT_RESTORED).items()
    ]
    steps = info["steps"]
    again = command_line("delta-rlvr", "train", "--output", folder, "--resume", "--steps", 2 * steps)
    judge = ("--reward", before["reward"]) if before.get("reward") else ()
    asked_of = ("--benchmarks", f"task:{before.get('task')}", *judge)
    score = command_line("delta-rlvr", "evaluate", "--model", folder / MODEL, *asked_of)
    return (
        f"this run is finished, after {steps} steps: nothing is changed{''.join(f'; {one}' for one in asked)}. To train on: {again}. "
        f"To score it in another way: {score}"
    )


def step_to_go_on_from(config: DeltaTrainerConfig) -> tuple[int, list[str]]:
    """The step of the last whole checkpoint (0: there is none yet), and sentences about it."""
    folder = Path(str(config.output_dir))
    if not (folder / RUN).exists():
        raise RunFolderError(
            f"--resume: there is no run in {folder}; give the --output of the run to go on with"
        )
    checkpoints = find_checkpoints(folder)
    last = checkpoints.whole[-1] if checkpoints.whole else 0
    troubles = (
        (checkpoints.torn, "it was not written to its end"),
        (checkpoints.between, "it lies in the middle of a rollout batch"),
    )
    said = [
        f"checkpoint-{step} is skipped: {trouble}"
        for steps, trouble in troubles
        for step in steps
        if step > last
    ]
    if last:
        return last, [*said, f"going on from checkpoint-{last}"]
    return last, [*said, "there is no whole checkpoint yet: the run starts again from its first step"]


def changes(writer: RunWriter) -> list[str]:
    """What the command line gives a resumed run that differs from what it was started with."""
    changed = writer.info["resumed"][-1]["settings_changed"]
    return [
        told_difference(name, *values)
        for name, values in changed.items()
        # A run that is older than these digests does not tell what lay in its files.
        if name not in NOT_RESTORED and not (name.endswith(CONTENT) and values[0] is None)
    ]
