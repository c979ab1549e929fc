"""Two real steps of a run in a temporary folder: whether they work, how long they take and how much memory they need."""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.runs import RunReader, read_run
from delta_rlvr.runs.recorder import no_signal
from delta_rlvr.specs import shortened
from delta_rlvr.training.request import RunRequest
from delta_rlvr.training.session import train

STEPS = 2
_ROLLOUT = ("seconds_generate", "seconds_logps", "seconds_reward", "seconds_credit")


@dataclass(frozen=True)
class Trial:
    """The measurements of two steps."""

    seconds: float
    """Seconds per step of the run."""
    response_seconds: float
    """Seconds to sample and judge one response."""
    peak: int
    """Peak memory in bytes: of the GPU, or of the process on a CPU."""
    note: str | None
    """Why there was no signal to learn from, if neither step had any."""


def two_steps(request: RunRequest, config: DeltaTrainerConfig) -> Trial:
    """Take two steps with the settings of the run, whose config is `config`."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory(prefix="delta-rlvr-doctor-") as folder:
        short = request.but(
            steps=STEPS,
            output=str(Path(folder) / "run"),
            eval_problems=0,
            eval_every=None,
            report=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            push_to_hub=False,
            load_best_model_at_end=False,
        )
        train(short)  # prints nothing; errors are raised
        run = read_run(Path(folder) / "run")
        lines = run.metrics
        # Only steps with new rollouts have these metrics.
        rolled = [line for line in lines if "signal_groups" in line]
        taught = any(no_signal(line) is None for line in rolled)
        note = None if taught or not rolled else no_signal(rolled[0], _example(run))
    updates, responses = config.updates_per_batch, config.generation_batch_size or 1
    return Trial(seconds_per_step(lines, updates), seconds_per_batch(lines, updates) / responses, _peak(), note)


def _example(run: RunReader) -> str:
    """Return one response and its verdict: the folder will be deleted."""
    for step in run.rollout_steps:
        for line in run.rollouts(step):
            response = shortened(line["response"].strip(), 80)
            return f"one of them: '{response}', {line.get('reason') or 'no reason given'}"
    return "no response was kept"


def seconds_per_step(lines: Sequence[Mapping[str, Any]], updates: float) -> float:
    """Return the time of a step. A rollout batch lasts `updates` steps, so its rollout time is spread over all of them, although
    fewer were taken here. (Below 1, each step has several rollout batches.)"""
    rollouts = [sum(line[phase] for phase in _ROLLOUT) for line in lines]
    batches = max(1.0, len(lines) / max(1.0, updates))
    rollout = sum(rollouts) / batches / max(1.0, updates)
    return rollout + sum(line["seconds_update"] for line in lines) / len(lines)


def seconds_per_batch(lines: Sequence[Mapping[str, Any]], updates: float) -> float:
    """Return the time to sample and judge the responses of one rollout batch."""
    batches = max(1.0, len(lines) / updates)
    return sum(line["seconds_generate"] + line["seconds_reward"] for line in lines) / batches


def _peak() -> int:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held if sys.platform == "darwin" else held * 1024
