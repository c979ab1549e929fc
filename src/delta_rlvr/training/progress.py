"""Progress of a run for people, on the terminal and in a log file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from delta_rlvr.terminal import plain_console, say
from delta_rlvr.words import duration

_LOG_WIDTH = 110  # rich would assume 80 for a file

_COLUMNS = (
    # heading, key of the metrics, format, width
    ("step", "step", "{:d}", 5),
    ("reward", "reward", "{:.3f}", 7),
    ("signal", "signal_groups", "{:.0%}", 7),
    ("length", "length", "{:.1f}", 7),
    ("entropy", "entropy", "{:.3f}", 7),
    ("spread", "weight_signal_std", "{:.3f}", 7),
    ("loss", "loss", "{:+.4f}", 8),
    ("grad", "grad_norm", "{:.3g}", 8),
    ("s/step", "seconds_step", "{:.2f}", 7),
)

LEGEND = "signal: share of prompts whose rewards differ; spread: standard deviation of the coefficients, over tokens with an advantage"


class Teller:
    """Writes sentences to the terminal and to a log file. Sentences from before the file was opened are written to it too."""

    def __init__(self, console: Console | None = None, wording: Callable[[str], str] = str):
        """`console`: None writes to the log only. `wording` rewrites each sentence (the command line turns arguments into flags)."""
        self.console = console or Console(quiet=True)
        self._wording = wording
        self._log: Console | None = None
        self._before_log: list[str] = []

    def __enter__(self) -> Teller:
        return self

    def __exit__(self, *_: object) -> None:
        if self._log is not None:
            self._log.file.close()

    def log_to(self, path: Path) -> None:
        """From now on, append to this file too."""
        # Buffered by line, so that the log of a killed run is complete. `__exit__` closes it.
        file = path.open("a", encoding="utf-8", buffering=1)
        self._log = plain_console(file=file, width=_LOG_WIDTH, color_system=None)
        for text in self._before_log:
            self.log(text)
        self._before_log.clear()

    def say(self, text: str) -> None:
        """Write a sentence to the terminal and the log."""
        text = self._wording(text)
        # rich must not break a command into lines: it could not be copied.
        unbroken = "delta-rlvr " in text or not self.console.is_terminal
        self.console.print(text, markup=False, highlight=False, soft_wrap=unbroken)
        self.log(text)

    def show(self, table: Table) -> None:
        self.console.print(table)
        if self._log is not None:
            self._log.print(table)

    def log(self, text: str) -> None:
        """Write to the log file only."""
        text = self._wording(text)
        if self._log is None:
            self._before_log.append(text)
        else:
            say(self._log, text)


def progress_bar(console: Console) -> Progress:
    """Return a bar that disappears at its end; nothing is shown where output is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class TrainingProgress:
    """Shows one line per step (every few steps where output is not a terminal) and writes all of them to the log."""

    def __init__(
        self, teller: Teller, steps: int, steps_per_batch: int = 1, parts: int = 1, done: int = 0, legend: bool = True
    ):
        self.teller = teller
        self.console = console = teller.console
        self.steps = steps
        self._steps_per_batch, self._parts = steps_per_batch, parts
        self._legend = legend
        self._done_before = done
        self._every = 1 if console.is_terminal else max(1, steps // 20)
        self._started = time.perf_counter()
        self._notes: dict[str, list[int]] = {}  # each note, and the steps that had it
        self._known: dict[str, Any] = {}
        self._bar = progress_bar(console)

    def __enter__(self) -> TrainingProgress:
        self._bar.start()
        self._task = self._bar.add_task("training", total=self.steps, completed=self._done_before)
        say = self.teller.say if self._legend else self.teller.log
        say(LEGEND)
        if self._steps_per_batch > 1:
            shared = f"every {self._steps_per_batch} steps share one batch of responses, and so its reward, signal and length"
            parted = (
                "; each step trains on a part of the batch, so the loss varies between parts" if self._parts > 1 else ""
            )
            say(shared + parted)
        headings = " ".join(f"{heading:>{width}}" for heading, _, _, width in _COLUMNS)
        self._line(headings + "     left", always=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        for note, steps in self._notes.items():
            if len(steps) > 1:
                what = note.partition(":")[0]
                unit = "batches of responses" if self._steps_per_batch > 1 else "steps"
                self.teller.say(f"{what}: the note of step {steps[0]} applied to {len(steps)} {unit} in all")

    def show(self, metrics: Mapping[str, Any]) -> None:
        """Show the metrics of a step. A step without rollouts shows the last values of what it does not measure."""
        self._known |= {key: value for key, value in metrics.items() if value is not None}
        step = int(metrics["step"])
        cells = []
        for _, key, form, width in _COLUMNS:
            value = self._known.get(key)
            cells.append(f"{form.format(value) if value is not None else '-':>{width}}")
        shown = step % self._every == 0 or step in (1, self.steps)
        self._line(" ".join(cells) + f" {self._left(step):>8}", always=shown)
        self._bar.update(self._task, completed=step)
        if note := metrics.get("note"):
            if note not in self._notes:
                self.teller.say(f"step {step}: {note}")
            self._notes.setdefault(note, []).append(step)

    def _line(self, text: str, *, always: bool) -> None:
        if always or self.console.is_terminal:
            say(self.console, text)
        self.teller.log(text)

    def _left(self, step: int) -> str:
        taken = step - self._done_before
        if taken <= 0:
            return "-"
        return duration((time.perf_counter() - self._started) / taken * (self.steps - step))
