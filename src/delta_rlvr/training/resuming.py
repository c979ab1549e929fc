"""Resuming a run: the checkpoint to start from, changed settings, and the advice when a run is interrupted or fails."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.adapters.trl.recorded import disk_is_full
from delta_rlvr.adapters.trl.resume import find_checkpoints
from delta_rlvr.credit import RuleError
from delta_rlvr.exit_codes import WorkFailed
from delta_rlvr.hints import several_runs
from delta_rlvr.runs import RunFolderError, RunWriter, read_run
from delta_rlvr.runs.layout import CONTENT, MODEL, RUN
from delta_rlvr.tasks.custom_reward import RewardError
from delta_rlvr.training.request import NOT_RESTORED, RunRequest, difference_text, differing, option_of
from delta_rlvr.words import command_line, counted

_FROM_WEIGHTS = f"start a run from its weights, with its {MODEL}/ as `model` and another `output`"


def finished(settings: Mapping[str, Any], config: DeltaTrainerConfig) -> str | None:
    """If the run has taken all its steps, return a sentence that says so and names the requested settings that have no effect."""
    folder = Path(str(config.output_dir))
    info = read_run(folder).info if (folder / RUN).exists() else {}
    before = info.get("settings") or {}
    if config.max_steps > 0:
        left = config.max_steps > int(info.get("steps") or 0)
    else:
        left = config.num_train_epochs != before.get("num_train_epochs")
    # A folder of another run is refused when it is opened.
    other_run = any(before.get(name) != settings[name] for name in ("model", "task", "method", "seed"))
    if info.get("status") != "finished" or left or other_run:
        return None
    asked = [
        difference_text(name, *values)
        if name.endswith(CONTENT)
        else f"`{option_of(name)}` was {values[0]} and stays so"
        for name, values in differing(before, settings, NOT_RESTORED).items()
    ]
    steps = info["steps"]
    further = f"It has no checkpoint to train further from: {_FROM_WEIGHTS}"
    if find_checkpoints(folder).whole:
        again = command_line(*_launched(), "train", "--output", folder, "--resume", "--steps", 2 * steps)
        further = f"To train further: {again}"
    judge = ("--reward", before["reward"]) if before.get("reward") else ()
    asked_of = ("--benchmarks", f"task:{before.get('task')}", *judge)
    score = command_line("delta-rlvr", "evaluate", "--model", folder / MODEL, *asked_of)
    return (
        f"this run is finished, after {counted(steps, 'step')}: nothing is changed{''.join(f'; {one}' for one in asked)}. "
        f"{further}. To score it with other settings: {score}"
    )


def step_to_resume_from(config: DeltaTrainerConfig) -> tuple[int, list[str]]:
    """Return the step of the last complete checkpoint (0: there is none), and sentences about it."""
    folder = Path(str(config.output_dir))
    if not (folder / RUN).exists():
        if kept := sorted(path.name for path in folder.glob("checkpoint-*")):
            raise RunFolderError(
                f"resume=True: {RUN} is missing in {folder}, which has {', '.join(kept[:4])}: restore it, or start a run with "
                "a checkpoint as `model` and another `output`"
            )
        several = several_runs(folder) or f"there is no run in {folder}; give the `output` of the run to resume"
        raise RunFolderError(f"resume=True: {several}")
    checkpoints = find_checkpoints(folder)
    last = checkpoints.whole[-1] if checkpoints.whole else 0
    troubles = (
        (checkpoints.torn, "it is incomplete"),
        (checkpoints.between, "it lies in the middle of a rollout batch"),
        (checkpoints.renamed, "it is of another step, by its complete.json"),
    )
    notes = [f"checkpoint-{step} is skipped: {trouble}" for steps, trouble in troubles for step in steps if step > last]
    if last:
        return last, [*notes, f"resuming from checkpoint-{last}"]
    if (folder / MODEL).exists() or read_run(folder).info.get("status") == "finished":
        raise RunFolderError(
            "; ".join([*notes, f"{folder} has a trained model and no checkpoint to resume from: {_FROM_WEIGHTS}"])
        )
    return last, [*notes, "there is no complete checkpoint yet: the run starts again from its first step"]


def changes(writer: RunWriter) -> list[str]:
    """Return sentences about the settings of a resumed run that differ from its first start."""
    changed = writer.info["resumed"][-1]["settings_changed"]
    return [
        difference_text(name, *values)
        for name, values in changed.items()
        # Older runs did not store digests of their files.
        if name not in NOT_RESTORED and not (name.endswith(CONTENT) and values[0] is None)
    ]


@contextmanager
def saying_how_to_resume(folder: Path, compared: str = "") -> Iterator[None]:
    """Add to an interrupt or error which checkpoint is kept and which command resumes. `compared`: which run of a comparison it is."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_kept(folder, compared)) from None
    except Exception as error:
        if not disk_is_full(error, folder):
            changed = (
                "; add `accept_changed` once the file is mended" if isinstance(error, RuleError | RewardError) else ""
            )
            error.add_note(_kept(folder, compared) + ("" if compared else changed))
            raise
        free = shutil.disk_usage(folder).free // 2**20
        full = "a file may not be so large (`ulimit -f`, a quota)" if "too large" in str(error) else "the disk is full"
        raise WorkFailed(
            f"{full} ({free} MB left for {folder}): {_first_line(error)}; free some space, or set `save_total_limit`; "
            f"{_kept(folder, compared)}"
        ) from error


def _kept(folder: Path, compared: str) -> str:
    whole = find_checkpoints(folder).whole
    if compared:
        kept = f"checkpoint-{whole[-1]} is kept" if whole else "no checkpoint was written yet"
        return f"in {compared}: {kept}; the same command keeps finished runs and resumes this one"
    again = command_line(*_launched(), "train", "--output", folder, "--resume")
    if not whole:
        start = f"; start again with: {again}" if (folder / RUN).exists() else ""
        return f"no checkpoint was written yet (`save_steps` says how often){start}"
    return f"checkpoint-{whole[-1]} is kept; resume with: {again}"


def _launched() -> tuple[str, ...]:
    """Return the words that started this process: delta-rlvr, or torchrun with the number of processes."""
    local, nodes = os.environ.get("LOCAL_WORLD_SIZE"), os.environ.get("GROUP_WORLD_SIZE", "1")
    if local is None or os.environ.get("WORLD_SIZE") == "1":
        return ("delta-rlvr",)
    several = ("--nnodes", nodes) if nodes != "1" else ()
    return ("torchrun", *several, "--nproc_per_node", local, "-m", "delta_rlvr")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def advised_comparison(method: str, request: RunRequest) -> str:
    """Return the command that compares the method with another under the same settings."""
    other = method if method != "dapo" else "delta"
    same = request.without("method", "output", "output_dir", "resume", "accept_changed", "seed")
    return command_line("delta-rlvr", "compare", "--methods", f"dapo,{other}", "--seeds", 6, *request_words(same))


def request_words(request: RunRequest) -> Iterator[str]:
    """Yield the words of a request on the command line."""
    if request.file:
        yield from ("--config", request.file)
    for name, value in request.given.items():
        if value is None:
            continue
        values = value if isinstance(value, list | tuple) else [value]
        yield f"--{name}"
        for one in values:
            whole = isinstance(one, float) and one.is_integer() and abs(one) < 1e6  # 2 steps, not 2.0
            yield json.dumps(one) if isinstance(one, bool | dict) else str(int(one) if whole else one)
