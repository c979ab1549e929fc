"""The numbered runs of a comparison, made one after another, side by side as processes, or each in a separate job."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from delta_rlvr.exit_codes import WorkFailed
from delta_rlvr.runs import RunReader, read_run
from delta_rlvr.runs.layout import EVALUATIONS, METRICS, RUN
from delta_rlvr.runs.recorder import learnt_nothing
from delta_rlvr.score_units import score_unit
from delta_rlvr.tasks.custom_reward import custom_function
from delta_rlvr.terminal import say
from delta_rlvr.training.progress import Teller, progress_bar
from delta_rlvr.training.request import RunRequest, difference_text, differing, run_settings
from delta_rlvr.training.resuming import request_words
from delta_rlvr.training.session import train
from delta_rlvr.training.tuning import TunedRate
from delta_rlvr.words import duration, rate_text
from rlvr_graders.workers import usable_cores

# Settings in which a finished run may differ from the comparison that reuses it.
_INCIDENTAL = (
    "output",
    "output_dir",
    "logging_dir",
    "report",
    "run_name",
    "save_total_limit",
    "show_methods",
    "all_credit_metrics",
)


@dataclass(frozen=True)
class PlannedRun:
    """A run of a comparison."""

    number: int
    """Counted from 1."""
    method: str
    seed: int
    place: Path
    """The run folder; `Plan.settled` adds the chosen learning rate to its name."""
    rate: float | None = None
    """The learning rate that the run tries; None: that of the request, or the best one tried."""

    @property
    def name(self) -> str:
        tried = "" if self.rate is None else f", learning rate {rate_text(self.rate)}"
        return f"{self.method}, seed {self.seed}{tried}"


@dataclass
class Plan:
    """The runs of a comparison."""

    request: RunRequest
    """The request that all runs share."""
    methods: Sequence[str]
    seeds: Sequence[int]
    folder: Path
    rates: Sequence[float] = ()
    spare: Sequence[int] = ()
    """The seeds that learning rates are tried on."""
    asked: RunRequest = field(default_factory=RunRequest)
    """The request before `compare` added to it."""
    pass_at: int | None = None

    @cached_property
    def tuning(self) -> list[PlannedRun]:
        """The runs that choose learning rates, seed by seed: an interrupted comparison has then about as many of each method."""
        wanted = [(seed, name, rate) for seed in self.spare for name in self.methods for rate in self.rates]
        return [
            PlannedRun(number, name, seed, self._tuning_place(name, rate, seed), rate)
            for number, (seed, name, rate) in enumerate(wanted, 1)
        ]

    @cached_property
    def compared(self) -> list[PlannedRun]:
        """The runs that are compared."""
        wanted = [(seed, name) for seed in self.seeds for name in self.methods]
        return [
            PlannedRun(number, name, seed, place_of(self.folder, name, seed))
            for number, (seed, name) in enumerate(wanted, len(self.tuning) + 1)
        ]

    @property
    def runs(self) -> list[PlannedRun]:
        return [*self.tuning, *self.compared]

    def _tuning_place(self, method: str, rate: float, seed: int) -> Path:
        return place_of(self.folder / "tuning", method, seed, rate)

    def tuned(self, method: str) -> TunedRate:
        """Return the scores of a method at each learning rate."""
        return TunedRate(
            method, {rate: [score(self._tuning_place(method, rate, s)) for s in self.spare] for rate in self.rates}
        )

    def settled(self, run: PlannedRun) -> PlannedRun:
        """Return the run with its final folder: that of a tuned run names its rate, so that another best rate makes other runs."""
        if not self.rates or run.rate is not None:
            return run
        return replace(run, place=place_of(self.folder, run.method, run.seed, self.tuned(run.method).rate))

    def request_of(self, run: PlannedRun) -> RunRequest:
        one = self.request.but(method=run.method, seed=run.seed, output=str(run.place), report=False)
        rate = self.tuned(run.method).rate if self.rates and run.rate is None else run.rate
        return one if rate is None else one.but(learning_rate=rate)

    def words(self) -> Iterator[str]:
        """Yield the words of the command that makes all runs, after `delta-rlvr`."""
        yield from ("compare", "--methods", ",".join(self.methods), "--seeds", str(len(self.seeds)))
        yield from ("--output", str(self.folder))
        if self.rates:
            yield from ("--learning-rates", ",".join(map(repr, self.rates)))
            yield from ("--tuning-seeds", str(len(self.spare)))
        if self.pass_at is not None:
            yield from ("--pass-at", str(self.pass_at))
        yield from request_words(self.asked)


@dataclass
class Making:
    """Makes the runs of a plan."""

    plan: Plan
    teller: Teller
    without_signal: bool = False
    """Whether to continue although a run had nothing to learn from."""
    ask: Callable[[str], bool] | None = None
    """Asks the user whether to continue; None: there is no user."""
    _seconds: list[float] = field(default_factory=list)

    def only(self, number: int) -> None:
        """Make only the run with this number."""
        if not 1 <= number <= len(self.plan.runs):
            raise ValueError(f"only={number}: give the number of a run, 1 to {len(self.plan.runs)}")
        self._make(self.plan.settled(self.plan.runs[number - 1]))

    def all(self, runs: Sequence[PlannedRun], parallel: int) -> None:
        """Make these runs, `parallel` at a time."""
        runs = [self.plan.settled(run) for run in runs]
        if min(parallel, len(runs)) > 1:
            self._side_by_side(runs, parallel)
            return
        for run in runs:
            self._make(run)
            self._check_signal(run)

    def _which(self, run: PlannedRun) -> str:
        return f"run {run.number} of {len(self.plan.runs)}"

    def _is_kept(self, run: PlannedRun, request: RunRequest) -> bool:
        if not (run.place / RUN).exists():
            return False
        info = read_run(run.place).info
        check_same(run.place, info, run_settings(*request.build()))
        if info.get("status") != "finished":
            return False
        say(self.teller.console, f"{self._which(run)}: {run.place} is finished: kept")
        return True

    def _make(self, run: PlannedRun) -> None:
        request, which = self.plan.request_of(run), self._which(run)
        if self._is_kept(run, request):
            return
        left = len(self.plan.runs) - run.number + 1
        seconds = statistics.fmean(self._seconds) * left if self._seconds else None
        remaining = "" if seconds is None else f", about {duration(seconds)} left in all"
        self.teller.console.rule(f"{which}: {run.name}{remaining}")
        began = time.perf_counter()
        # All runs start from the same weights, so the score before training is taken once.
        others = (one.place for one in self.plan.tuning or self.plan.compared if one.place != run.place)
        scored = next((one for one in others if (one / EVALUATIONS / "heldout_before.json").exists()), None)
        request = request.but(resume=(run.place / RUN).exists())
        train(request, self.teller, same_start=scored, compared=f"{which} ({run.name})")
        self._seconds.append(time.perf_counter() - began)

    def _check_signal(self, run: PlannedRun) -> None:
        """Stop the comparison after a run that had nothing to learn from, unless the user wants to continue."""
        trouble = None if self.without_signal else learnt_nothing(read_run(run.place).metrics)
        if trouble is None:
            return
        words = f"{self._which(run)} ({run.name}): {trouble}"
        if self.ask is None or not self.ask(f"{words} Continue?"):
            raise WorkFailed(f"{words} The comparison stops here; `without_signal` lets it continue")
        self.without_signal = True

    # ------------------------------------------------------------------ side by side

    def _side_by_side(self, runs: Sequence[PlannedRun], parallel: int) -> None:
        """Make the runs in processes, each with its own GPU as far as there are GPUs."""
        waiting = [run for run in runs if not self._is_kept(run, self.plan.request_of(run))]
        for run in runs:
            if run not in waiting:
                self._check_signal(run)
        console, steps = self.teller.console, self.plan.request.build()[1].max_steps
        troubles: list[str] = []
        at_work: dict[int, _Process] = {}
        bar = progress_bar(console)
        try:
            with bar:
                while at_work or (waiting and not troubles):
                    for slot in range(parallel):
                        if slot in at_work or not waiting or troubles:
                            continue
                        run = waiting.pop(0)
                        say(console, f"{self._which(run)}: {run.name}")
                        words = [*self.plan.words(), "--only", str(run.number)]
                        task = bar.add_task(run.name, total=steps if steps > 0 else None)
                        at_work[slot] = _Process(run, words, slot, parallel, task)
                    time.sleep(0.1)
                    for slot, process in list(at_work.items()):
                        bar.update(process.task, completed=process.steps())
                        if process.popen.poll() is None:
                            continue
                        bar.remove_task(at_work.pop(slot).task)
                        bar.stop()  # the user may be asked a question
                        troubles += self._end(process)
                        bar.start()
        except BaseException:
            for process in at_work.values():
                process.popen.terminate()  # each finishes its batch and saves a checkpoint
            for process in at_work.values():
                process.popen.wait()
            raise
        if troubles:
            raise WorkFailed("; ".join([*troubles, "the other runs are kept, and the same command resumes"]))

    def _end(self, process: _Process) -> list[str]:
        """Report how a process ended; return what went wrong, if anything."""
        run, code = process.run, process.popen.returncode
        spent = duration(time.perf_counter() - process.began)
        if code:
            return [f"{self._which(run)} ({run.name}) failed with exit code {code}: {process.last_words()}"]
        unit = score_unit(custom_function(self.plan.request.build()[0].reward))
        after = unit.shown(score(run.place))
        say(self.teller.console, f"{self._which(run)}: {run.name}: {unit.score} {after} after {spent}")
        try:
            self._check_signal(run)
        except WorkFailed as error:
            return [str(error)]
        return []


class _Process:
    """A run in a separate process, which writes its own log."""

    def __init__(self, run: PlannedRun, words: Sequence[str], slot: int, parallel: int, task: Any):
        self.run, self.task, self.began = run, task, time.perf_counter()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        environment = dict(os.environ)
        if devices := visible_devices():
            environment["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
        else:
            environment.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // parallel)))
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "delta_rlvr", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )

    def steps(self) -> int:
        try:
            return (self.run.place / METRICS).read_bytes().count(b"\n")
        except OSError:
            return 0

    def last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("delta-rlvr compare: ") if lines else "it printed no error"


def visible_devices() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return given.split(",")[:count] if given else [str(one) for one in range(count)]


def runs_at_a_time(asked: int | None, world_size: int, on_cpu: bool) -> int:
    """Return the requested number; by default one run per GPU, and one on a CPU or if a run has several processes."""
    if asked is not None and asked < 1:
        raise ValueError(f"parallel={asked}: give the number of runs at a time, at least 1")
    if world_size > 1 and (asked or 1) > 1:
        raise ValueError(
            f"parallel={asked}: not possible under torchrun or accelerate launch, whose {world_size} processes share one run"
        )
    if asked is not None:
        return asked
    return 1 if on_cpu or world_size > 1 else max(1, len(visible_devices()))


def folder_name(method: str) -> str:
    """Return a method's name as part of a folder name: characters that a path or a shell cannot have become dashes."""
    return re.sub(r"[^\w.=-]+", "-", method)


def place_of(folder: Path, method: str, seed: int, rate: float | None = None) -> Path:
    """Return the run folder of a method and seed in a comparison, and of a learning rate where rates are chosen."""
    tried = "" if rate is None else f"-lr{rate_text(rate)}"
    return folder / f"{folder_name(method)}{tried}-seed{seed}"


def check_same(place: Path, started: dict[str, Any], settings: dict[str, Any]) -> None:
    """Refuse a run with other settings: it must not stand in the same table."""
    different = differing(started.get("settings", {}), settings, _INCIDENTAL)
    other = [difference_text(name, *map(repr, values)) for name, values in different.items()]
    if other:
        raise ValueError(
            f"{place} was run with other settings ({'; '.join(other)}): use those, delete that folder, or give another `output`"
        )


def scored_run(place: Path) -> RunReader:
    """Return a run; refuse one without a held-out score after training."""
    run = read_run(place)
    if "after" not in (run.info.get("final") or {}):
        raise ValueError(f"{place} has no held-out score: finish that run, or delete its folder")
    return run


def score(place: Path) -> float:
    return float(scored_run(place).info["final"]["after"]["accuracy"])
