"""Progress of an evaluation for people."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from delta_rlvr.evaluate.records import Sample
from delta_rlvr.evaluate.runner import Progress
from delta_rlvr.evaluate.settings import SampleKey
from delta_rlvr.score_units import score_unit
from delta_rlvr.words import duration

_SECONDS_BETWEEN_LINES = 10.0


class ConsoleProgress(Progress):
    """Shows a bar on a terminal, and a line every ten seconds elsewhere."""

    def __init__(self, console: Console, own_reward: bool = False, wording: Callable[[str], str] = str) -> None:
        self.console = console
        self._wording = wording
        self._own_reward = own_reward
        self._bar: Bar | None = None
        self._total = self._done = self._kept = self._failed = 0
        self._score = 0.0
        self._scored = 0
        self._began = self._last = 0.0
        self._reasons: Counter[str] = Counter()

    def start(self, total: int, done: int) -> None:
        self._total, self._done, self._kept = total, done, done
        self._began = self._last = time.monotonic()
        if self.console.is_terminal:
            self._bar = Bar(
                TextColumn("sampling"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[score]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self._bar.start()
            self._bar.add_task("sampling", total=total, completed=done, score="")
        else:
            self.console.print(f"sampling: {done} of {total} samples are done")

    def advance(self, sample: Sample) -> None:
        self._done += 1
        self._scored += 1
        self._score += sample.score or 0.0
        self._show()

    def fail(self, key: SampleKey, reason: str) -> None:
        self._failed += 1
        self._reasons[reason] += 1
        # Each reason is shown at most three times; the result names every failed sample.
        if self._reasons[reason] <= 3:
            self.say(f"{key}: {reason}")
        self._show()

    def say(self, text: str) -> None:
        self.console.print(escape(self._wording(text)), highlight=False, soft_wrap=True)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show(self) -> None:
        score = self._mean() if self._scored else ""
        if self._failed:
            score += f", {self._failed} failed"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done, score=score)
            return
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_LINES or self._done + self._failed >= self._total:
            self._last = now
            fresh = max(self._done - self._kept, 1)
            left = (now - self._began) / fresh * (self._total - self._done)
            self.say(f"sampling: {self._done} of {self._total}, {score}, about {duration(left)} left")

    def _mean(self) -> str:
        mean = score_unit(self._own_reward).shown(self._score / self._scored)
        return f"mean reward {mean}" if self._own_reward else f"{mean} right"
