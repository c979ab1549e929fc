"""Both measured truths for every method: agreement with measured credit, and fidelity of the update, kept in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import torch
from jaxtyping import Float
from torch import Tensor

from delta_evidence.bench import Bench, PlannedBatch, read
from delta_evidence.judging import Judge, knows_decisive
from delta_evidence.measured.agreement import choose
from delta_evidence.measured.cell import Cell
from delta_evidence.measured.continuations import Continuations, Response, StackContinuations, responses_of
from delta_evidence.measured.fidelity import (
    GRADIENT_STREAM,
    PARTS,
    UPDATE_STREAM,
    batch_gradient,
    gradient_batches,
    inner_products,
    methods_at_once,
    update_products,
)
from delta_evidence.measured.measure import measure
from delta_evidence.measured.served import ServedContinuations
from delta_evidence.measured.settings import MeasuredSettings
from delta_evidence.phases import Phases, ProgressLines
from delta_evidence.rollouts import make_collector
from delta_evidence.stack.memory import free_memory
from delta_evidence.stopping import Stop, Stopped
from delta_rlvr.evaluate.server_sampler import ServerSettings
from delta_rlvr.files import atomic, write_json
from delta_rlvr.models import load_policy
from delta_rlvr.tasks import Task, get_task

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BATCHES_AT_ONCE = 8
"""Rollout batches whose responses are continued together, at most: all of them are held in memory."""

T = TypeVar("T")


@dataclass
class MeasuredBench(Bench[MeasuredSettings]):
    """Runs into a folder. Continuations that were judged are not sampled again."""

    workers: int = 1
    server: ServerSettings | None = None
    """Where continuations come from, if not from the policy in this process; `settings.served` is the model's name there."""
    stop: Stop = field(default_factory=Stop)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers={self.workers}: give at least 1")
        served = self.settings.served
        if (self.server.model if self.server is not None else None) != served:
            raise ValueError(f"served={served!r}: give the server of this model, or none for None")
        self.phases = Phases(device=self.device, timed=True, tell=self.say)
        self.progress = ProgressLines(self.phases)

    def prepare(self) -> None:
        """Refuse tasks without a verifiable reward and a folder of other settings; leave ours there."""
        for name in self.settings.tasks:
            task = get_task(name)
            check_verifiable(task)
            self.settings.compared(knows_decisive(task))
        self.keep_settings(free=("policies", "tasks", "batches", "rows_at_once", "pass_rows", "methods"))

    def fidelities(self) -> list[dict[str, Any]]:
        """What was measured of the planned updates."""
        settings = self.settings
        paths = [self._fidelity_path(policy, task) for policy in settings.policies for task in settings.tasks]
        return [read(path) for path in paths if path.is_file()]

    def go(self) -> bool:
        """Measure what is missing; False where the time was up, or a signal came, before all was done."""
        try:
            with self.progress:
                for policy in self.settings.policies:
                    self._policy(policy)
        except Stopped:
            return False
        return True

    def _policy(self, policy: str) -> None:
        units = {
            name: [unit for unit in self.missing() if (unit.policy, unit.task) == (policy, name)]
            for name in self.settings.tasks
        }
        unfinished = [name for name in units if units[name] or not self._fidelity_done(policy, name)]
        if not unfinished:
            return
        self.progress.begin(f"policy {policy}", 0)
        model, tokenizer = load_policy(policy)
        with Judge(tokenizer, self.workers) as judge:
            for name in unfinished:
                task = get_task(name)
                collector = make_collector(
                    model,
                    tokenizer,
                    runs=1,
                    one_line=task.one_line,
                    judge=judge,
                    device=self.device,
                    compute_dtype=DTYPES[self.settings.dtype],
                    rows_at_once=self.settings.pass_rows,
                    phases=self.phases,
                )
                cell = Cell(self.settings, policy, name, task, collector)
                for start in range(0, len(units[name]), BATCHES_AT_ONCE):
                    self._labels(cell, units[name][start : start + BATCHES_AT_ONCE])
                if not self._fidelity_done(policy, name):
                    self._fidelity(cell)
                del cell, collector
                free_memory()

    # ------------------------------------------------------------------ credit of tokens

    def _labels(self, cell: Cell, units: Sequence[PlannedBatch]) -> None:
        """Rollout batches whose responses are continued together: few places from one response, many from all of them."""
        settings, where = self.settings, f"{cell}, {len(units)} batches of rollouts"
        rollouts = {
            unit.number: cell.collect(unit.number, start=unit.number * settings.prompts)
            for unit in self._one_by_one(where, units)
        }
        rows = {number: choose(batch, settings.responses) for number, batch in rollouts.items()}
        responses = {number: responses_of(batch, rows[number], cell.limit) for number, batch in rollouts.items()}
        task_folder = units[0].path.parent.name, quote(cell.task_name, safe="")
        with self.phases("continuations"):
            credits = measure(
                responses,
                self._continuations(cell, responses),
                budget=settings.budget,
                tolerance=settings.tolerance,
                folder=self.folder.joinpath("continuations", *task_folder),
                planned=lambda chunks: self.progress.begin(where, chunks),
                done=self._done,
            )
        for unit in self._one_by_one(where, units):
            batch, own = rollouts[unit.number], rows[unit.number]
            document = cell.agreement(unit, batch, own, credits[unit.number])
            if own:
                tokens = cell.measured_tokens(batch, own, responses[unit.number], credits[unit.number])
                write_json(self.folder / "responses" / unit.path.relative_to("batches"), tokens, indent=None)
                self.say(
                    f"{cell}, batch {unit.number + 1}: {len(own)} responses, about {settings.budget * len(own)} continuations, "
                    f"{document['facts']['sure_share']:.0%} of the tokens have a credit that is not 0 by its interval"
                )
            write_json(self.folder / unit.path, document, indent=None)

    def _continuations(self, cell: Cell, responses: Mapping[int, Sequence[Response]]) -> Continuations:
        settings = self.settings
        if self.server is not None and any(responses.values()):
            return ServedContinuations(
                self.server,
                cell.collector.tokenizer,
                cell.task,
                responses,
                seed=settings.seed,
                temperature=settings.temperature,
                say=self.say,
            )
        return StackContinuations(
            cell.continuing,
            cell.task,
            responses,
            seed=settings.seed,
            temperature=settings.temperature,
            rows_at_once=settings.rows_at_once,
        )

    # ------------------------------------------------------------------ fidelity of updates

    def _fidelity(self, cell: Cell) -> None:
        settings, path = self.settings, self._fidelity_path(cell.policy, cell.task_name)
        gradient, facts = self._gradient(cell, path.with_suffix(".gradient"))
        if path.is_file():
            document = read(path)
        else:
            document = {
                "policy": cell.policy,
                "task": cell.task_name,
                "facts": facts,
                "gradient": inner_products(gradient, gradient).tolist(),
                "methods": {},
            }
        missing = [method.name for method in cell.methods if method.name not in document["methods"]]
        at_once = methods_at_once(cell.collector.policy, settings.update_batches)
        parts = [missing[start : start + at_once] for start in range(0, len(missing), at_once)]
        self.progress.begin(f"{cell}, updates of {len(missing)} methods", settings.update_batches * (1 + len(parts)))
        batches, weights = [], []
        for number in range(settings.update_batches):
            self.stop.check()
            batches.append(cell.collect(number, UPDATE_STREAM))
            with self.phases("weights"):
                weights.append(cell.weights(batches[-1], number))
            self.progress.advance(1)
        for names in parts:
            with self.phases("updates"):
                document["methods"] |= update_products(
                    cell.collector.policy,
                    batches,
                    [{name: by_name[name] for name in names} for by_name in weights],
                    gradient,
                    group=settings.group,
                    pass_rows=settings.pass_rows,
                    on_batch=lambda: self._done(1),
                )
            write_json(path, document, indent=None)
        path.with_suffix(".gradient").unlink(missing_ok=True)
        self.say(f"{cell}: updates of {len(cell.methods)} methods compared with the gradient")

    def _gradient(self, cell: Cell, path: Path) -> tuple[Float[Tensor, "part parameters"], dict[str, float]]:
        """The gradient of the expected reward on the first batch's prompts; kept while updates are compared with it."""
        settings, policy = self.settings, cell.collector.policy
        if path.is_file():
            kept = torch.load(path, map_location=self.device, weights_only=True)
            return kept["parts"], kept["facts"]
        numbers, group = gradient_batches(settings.gradient_rollouts)
        size = sum(weight.numel() for weight in policy.parameters())
        parts = torch.zeros(PARTS, size, device=self.device)
        batch = cell.batch(GRADIENT_STREAM)
        accuracy = 0.0
        for number in self._one_by_one(f"{cell}, gradient of the expected reward", range(numbers)):
            (rollouts,) = cell.collector.collect(
                [batch], group=group, number=number, temperature=settings.temperature, ragged=True
            )
            with self.phases("gradient"):
                update = batch_gradient(policy, rollouts, group=group, pass_rows=settings.pass_rows)
                parts[number % PARTS] += update * (PARTS / (numbers * len(rollouts.mask)))
            accuracy += rollouts.correct.mean().item()
        facts = {"accuracy": accuracy / numbers}
        with atomic(path) as file:
            torch.save({"parts": parts, "facts": facts}, file)
        return parts, facts

    def _fidelity_path(self, policy: str, task: str) -> Path:
        return self.folder / "fidelity" / quote(policy, safe="") / f"{quote(task, safe='')}.json"

    def _fidelity_done(self, policy: str, task: str) -> bool:
        """Whether no update is wanted, or every method's is there."""
        if not self.settings.update_batches:
            return True
        path = self._fidelity_path(policy, task)
        wanted = {one.name for one in self.settings.compared(knows_decisive(get_task(task)))}
        return path.is_file() and wanted <= set(read(path)["methods"])

    # ------------------------------------------------------------------ progress

    def _one_by_one(self, where: str, pieces: Sequence[T]) -> Iterator[T]:
        """Pieces of work, shown as progress; it ends between two of them where a stop is due."""
        self.progress.begin(where, len(pieces))
        for piece in pieces:
            self.stop.check()
            yield piece
            self.progress.advance(1)

    def _done(self, chunks: int) -> None:
        self.progress.advance(chunks)
        self.stop.check()


def check_verifiable(task: Task) -> None:
    """Refuse a task that cannot tell a right response from a wrong one."""
    problem = task.problems("train", 1)[0]
    try:
        task.grade(problem, "")
    except (ValueError, TypeError, KeyError, NotImplementedError) as error:
        raise ValueError(
            f"task {task.name!r} has no verifiable reward ({error}): measured credit is credit for a verdict"
        ) from error
