"""Two real steps of a run, in a folder that is deleted afterwards: do they work, how long do they take, what do they hold?"""

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
    """What two steps showed."""

    seconds: float
    """Per step of the run."""
    response_seconds: float
    """Per response: sampling and judging."""
    peak: int
    """Bytes that were held at the worst moment: on the GPU, or by the process."""
    note: str | None
    """Why no step taught anything, where none did."""


def two_steps(request: RunRequest, config: DeltaTrainerConfig) -> Trial:
    """Take them with the settings of the run. `config`: that of the run itself."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory(prefix="delta-rlvr-doctor-") as folder:
        short = request.but(
            **{
                "steps": STEPS,
                "output": str(Path(folder) / "run"),
                "eval_problems": 0,
                "eval_every": None,
                "report": False,
            },
            **{"logging_steps": 1, "save_strategy": "no", "report_to": "none"},
            **{"push_to_hub": False, "load_best_model_at_end": False},
        )
        train(short)  # without a word, but for the reason of an error, which is raised
        run = read_run(Path(folder) / "run")
        lines = run.metrics
        # A step that goes on with the batch of the one before it says nothing of its own.
        rolled = [line for line in lines if "signal_groups" in line]
        taught = any(no_signal(line) is None for line in rolled)
        note = None if taught or not rolled else no_signal(rolled[0], _example(run))
    updates, responses = config.updates_per_batch, config.generation_batch_size or 1
    return Trial(seconds_per_step(lines, updates), seconds_per_batch(lines, updates) / responses, _peak(), note)


def _example(run: RunReader) -> str:
    """A response and what it got, because its folder will be gone."""
    for step in run.rollout_steps:
        for line in run.rollouts(step):
            response = shortened(line["response"].strip(), 80)
            return f"one of them: '{response}', {line.get('reason') or 'no reason given'}"
    return "no response was kept"


def seconds_per_step(lines: Sequence[Mapping[str, Any]], updates: float) -> float:
    """A rollout batch lasts `updates` steps: its rollouts are counted once for all of them, though fewer were taken here. (Below one,
    every step has whole rollout batches of its own.)"""
    rollouts = [sum(line[phase] for phase in _ROLLOUT) for line in lines]
    batches = max(1.0, len(lines) / max(1.0, updates))
    rollout = sum(rollouts) / batches / max(1.0, updates)
    return rollout + sum(line["seconds_update"] for line in lines) / len(lines)


def seconds_per_batch(lines: Sequence[Mapping[str, Any]], updates: float) -> float:
    """What it takes to sample and judge the responses of one rollout batch."""
    batches = max(1.0, len(lines) / updates)
    return sum(line["seconds_generate"] + line["seconds_reward"] for line in lines) / batches


def _peak() -> int:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held if sys.platform == "darwin" else held * 1024
