"""Run a protocol, stack by stack, and keep what each run came to: an interrupted study goes on with the stacks that are missing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

from delta_rlvr.evaluate.results import versions
from delta_rlvr.exit_codes import at_work
from delta_rlvr.runs.files import atomic, dump, now, plain
from delta_rlvr.study.judging import Judge
from delta_rlvr.study.learning.heldout import HeldoutSettings, heldout_accuracies
from delta_rlvr.study.learning.protocol import Protocol
from delta_rlvr.study.learning.training import BatchStatistics, Run, StackedTraining, TrainingSettings
from delta_rlvr.study.rollouts import Collector, make_collector
from delta_rlvr.study.stack.policy import StackedPolicy
from delta_rlvr.tasks import Task, get_task, load_policy

RUNS = "runs.jsonl"
PROTOCOL = "protocol.json"


@dataclass(frozen=True)
class Machine:
    """Where and how the stacks run. But for `compute_dtype`, none of it changes a result beyond the rounding of sums."""

    device: str = "cpu"
    compute_dtype: torch.dtype = torch.float32
    """Of the matrix products. Outcomes of two precisions do not stand in one folder."""
    runs_at_once: int = 16
    """Runs of one stack."""
    rows_at_once: int = 2048
    """Rows (responses, over all runs) of one forward and backward."""
    workers: int = 1
    """Processes that judge responses."""

    def __post_init__(self) -> None:
        for name in ("runs_at_once", "rows_at_once", "workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: give at least 1")

    @property
    def precision(self) -> str:
        """The compute dtype's name."""
        return str(self.compute_dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    run: Run
    before: float
    """Held-out accuracy before training."""
    after: float
    curve: list[float]
    """Accuracy on each rollout batch, before noise: problems that the run had not seen."""
    entropy: list[float]
    length: list[float]
    signal_groups: list[float]
    weight_sd: list[float]
    gradient_norm: list[float]
    """Of the batch's first update."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Outcome:
        return cls(**{**values, "run": Run(**values["run"])})


class Study:
    """A protocol and the folder that its outcomes are kept in."""

    def __init__(self, protocol: Protocol, folder: Path):
        self.protocol = protocol
        self.folder = folder
        written = self._written()
        if written is None:
            return
        before = written["protocol"]
        now_written = plain(asdict(protocol))
        # A setting that is newer than the folder had its default then.
        for key, kind in (("training", TrainingSettings), ("heldout", HeldoutSettings)):
            before[key] = {**plain(asdict(kind())), **before.get(key, {})}
        # More seeds or arms may be added; what the runs that are there were made with may not change.
        fixed = ("model", "first_seed", "reward_noise", "training", "heldout")
        changed = [key for key in fixed if before.get(key) != now_written[key]]
        if changed:
            raise ValueError(
                f"{folder} holds runs with another {', '.join(changed)}: use the same protocol, or give another --output"
            )

    def _written(self) -> dict[str, Any] | None:
        place = self.folder / PROTOCOL
        return json.loads(place.read_text(encoding="utf-8")) if place.exists() else None

    def write_protocol(self, machine: Machine) -> None:
        """Beside the outcomes: what they were made with."""
        # Folders that are older than this entry do not tell.
        before = (self._written() or {}).get("compute_dtype", machine.precision)
        if before != machine.precision:
            raise ValueError(
                f"{self.folder} holds runs in {before}, not {machine.precision}: give --dtype {before}, or another --output"
            )
        told = {
            "protocol": asdict(self.protocol),
            "compute_dtype": machine.precision,
            "versions": versions(),
            "written": now(),
        }
        with atomic(self.folder / PROTOCOL) as file:
            file.write(dump(told, indent=1).encode())

    def outcomes(self) -> list[Outcome]:
        """What is there so far."""
        place = self.folder / RUNS
        if not place.exists():
            return []
        found = []
        for number, line in enumerate(place.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                found.append(Outcome.from_dict(json.loads(line)))
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(
                    f"{place}, line {number} is no outcome ({error}): delete that line"
                ) from error
        return found

    def missing(self) -> list[Run]:
        done = {outcome.run for outcome in self.outcomes()}
        return [run for run in self.protocol.runs() if run not in done]

    def go(self, machine: Machine, tell: Callable[[str], None], *, export: Iterable[str] = ()) -> None:
        """Run what is missing. `export`: arms whose trained weights are written to the folder as transformers models."""
        exported = set(export)
        unknown = sorted(exported - self.protocol.arms.keys())
        if unknown:
            raise ValueError(
                f"export: {', '.join(unknown)} is not among the arms {', '.join(self.protocol.arms)}"
            )
        self.write_protocol(machine)
        model, tokenizer = load_policy(self.protocol.model)
        stacks = _stacks(self.missing(), machine.runs_at_once)
        with at_work(), Judge(tokenizer, machine.workers) as judge:
            before = start_scores(self.protocol, model, tokenizer, judge, machine) if stacks else {}
            for number, runs in enumerate(stacks, start=1):
                began = time.perf_counter()
                told = ", ".join(dict.fromkeys(run.task for run in runs))
                tell(f"stack {number}/{len(stacks)}: {len(runs)} runs on {told}")
                outcomes, policy = run_stack(
                    self.protocol, runs, model, tokenizer, judge, machine, before, tell
                )
                for place, run in enumerate(runs):
                    if run.arm in exported:
                        policy.load_into(place, model)
                        # Settings are part of the name: tasks may differ in nothing else.
                        name = quote(f"{run.arm}-{run.task}-seed{run.seed}", safe="")
                        model.save_pretrained(self.folder / "models" / name)
                        tokenizer.save_pretrained(self.folder / "models" / name)
                if exported:
                    model, _ = load_policy(self.protocol.model)
                self._keep(outcomes)
                tell(f"stack {number}/{len(stacks)} done in {time.perf_counter() - began:.0f} s")

    def _keep(self, outcomes: Sequence[Outcome]) -> None:
        # A run is kept once, also where two processes made it.
        new = {outcome.run for outcome in outcomes}
        kept = [*(outcome for outcome in self.outcomes() if outcome.run not in new), *outcomes]
        with atomic(self.folder / RUNS) as file:
            file.writelines(dump(outcome.as_dict()).encode() + b"\n" for outcome in kept)


def start_scores(
    protocol: Protocol, model: Any, tokenizer: Any, judge: Judge, machine: Machine
) -> dict[str, float]:
    """Held-out accuracy on each task before training: the same for every run."""
    tasks = [get_task(name) for name in protocol.tasks]
    collector = _collector(model, tasks, tokenizer, judge, machine)
    return dict(zip(protocol.tasks, _score(protocol, collector, tasks), strict=True))


def run_stack(
    protocol: Protocol,
    runs: Sequence[Run],
    model: Any,
    tokenizer: Any,
    judge: Judge,
    machine: Machine,
    before: Mapping[str, float],
    tell: Callable[[str], None],
) -> tuple[list[Outcome], StackedPolicy]:
    """Train and score the runs of one stack side by side."""
    tasks = [get_task(run.task) for run in runs]
    collector = _collector(model, tasks, tokenizer, judge, machine)
    training = StackedTraining(collector, runs, protocol.training, rows_at_once=machine.rows_at_once)
    batches = protocol.training.batches

    def show(number: int, statistics: list[BatchStatistics]) -> None:
        if (number + 1) % max(1, batches // 8) == 0:
            mean = sum(found.accuracy for found in statistics) / len(statistics)
            tell(f"  batch {number + 1}/{batches}: accuracy {mean:.3f} on average")

    seen = training.train(show)
    after = _score(protocol, collector, training.tasks)
    outcomes = [
        _outcome(run, before[run.task], last, row) for run, last, row in zip(runs, after, seen, strict=True)
    ]
    return outcomes, collector.policy


def _collector(
    model: Any, tasks: Sequence[Task], tokenizer: Any, judge: Judge, machine: Machine
) -> Collector:
    """One copy of the model for each task."""
    if len({task.one_line for task in tasks}) > 1:
        raise ValueError(
            "tasks whose responses end with their line cannot stand in one stack with others: give two protocols"
        )
    return make_collector(
        model,
        tokenizer,
        runs=len(tasks),
        one_line=tasks[0].one_line,
        judge=judge,
        device=machine.device,
        compute_dtype=machine.compute_dtype,
        rows_at_once=machine.rows_at_once,
    )


def _score(protocol: Protocol, collector: Collector, tasks: Sequence[Task]) -> list[float]:
    settings = protocol.training
    return heldout_accuracies(
        collector,
        tasks,
        protocol.heldout,
        limits=[settings.max_tokens or task.max_tokens for task in tasks],
        temperature=settings.temperature,
    )


def _stacks(runs: Sequence[Run], size: int) -> list[list[Run]]:
    """In the protocol's order, in stacks of like size rather than with a small last one."""
    if not runs:
        return []
    each = -(-len(runs) // -(-len(runs) // size))
    return [list(runs[start : start + each]) for start in range(0, len(runs), each)]


def _outcome(run: Run, before: float, after: float, seen: Sequence[BatchStatistics]) -> Outcome:
    def column(name: str) -> list[float]:
        return [float(f"{getattr(found, name):.4g}") for found in seen]

    return Outcome(
        run,
        before,
        after,
        curve=column("accuracy"),
        entropy=column("entropy"),
        length=column("length"),
        signal_groups=column("signal_groups"),
        weight_sd=column("weight_sd"),
        gradient_norm=[float(f"{found.gradient_norms[0]:.4g}") for found in seen],
    )
