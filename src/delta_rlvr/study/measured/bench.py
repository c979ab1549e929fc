"""Both measured truths for every method: agreement with measured credit, and fidelity of the update, kept in a folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.evaluate.server_sampler import ServerSettings
from delta_rlvr.files import atomic, write_json
from delta_rlvr.objectives import Method
from delta_rlvr.study.judging import Judge, knows_decisive
from delta_rlvr.study.learning.progress import Progress
from delta_rlvr.study.learning.stopping import Stop, Stopped
from delta_rlvr.study.measured.agreement import LABELS, Labels, choose, planted_agreement
from delta_rlvr.study.measured.continuations import Continuations, Response, StackContinuations, responses_of
from delta_rlvr.study.measured.estimate import MeasuredCredit
from delta_rlvr.study.measured.fidelity import (
    GRADIENT_STREAM,
    PARTS,
    UPDATE_STREAM,
    add_gradient,
    gradient_batches,
    inner_products,
    methods_at_once,
    update_products,
)
from delta_rlvr.study.measured.measure import measure
from delta_rlvr.study.measured.served import ServedContinuations
from delta_rlvr.study.measured.settings import MeasuredSettings
from delta_rlvr.study.phases import Phases
from delta_rlvr.study.planted.bench import Say
from delta_rlvr.study.planted.conditions import CLEAN
from delta_rlvr.study.planted.settings import Unit, check_same_settings
from delta_rlvr.study.planted.updates import method_weights
from delta_rlvr.study.rollouts import Batch, Collector, Rollouts, make_collector
from delta_rlvr.study.stack.memory import free_memory
from delta_rlvr.study.stack.model_weights import shape_of
from delta_rlvr.study.stack.sampling import StackedSampler
from delta_rlvr.study.weighing import Weigher
from delta_rlvr.tasks import Task, get_task, load_policy
from delta_rlvr.tasks.token_texts import token_texts

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BATCHES_AT_ONCE = 8
"""Rollout batches whose responses are continued together, at most: all of them are held in memory."""


@dataclasses.dataclass(frozen=True)
class _Cell:
    """One policy on one task."""

    policy: str
    task_name: str
    task: Task
    decisive: bool
    methods: list[Method]
    collector: Collector
    sampler: StackedSampler
    """Of continuations."""


class MeasuredBench:
    """Runs into a folder: what is there is not measured again, and continuations that were judged are not sampled again."""

    def __init__(
        self,
        settings: MeasuredSettings,
        folder: Path,
        *,
        device: str = "cpu",
        workers: int = 1,
        server: ServerSettings | None = None,
        stop: Stop | None = None,
        say: Say = lambda _: None,
    ):
        """`server`: where continuations come from, if not from the policy in this process; `settings.served` is the model's name
        there."""
        if (server.model if server is not None else None) != settings.served:
            raise ValueError(f"served={settings.served!r}: give the server of this model, or none for None")
        self.server = server
        self.settings, self.folder, self.say = settings, folder, say
        self.device, self.workers, self.stop = torch.device(device), workers, stop or Stop()
        self.phases = Phases(device=device, timed=True, tell=say)
        self.progress = Progress(say, self.phases)

    def prepare(self) -> None:
        """Refuse tasks without a verifiable reward and a folder of other settings; leave ours there."""
        for name in self.settings.tasks:
            task = get_task(name)
            check_verifiable(task)
            self.settings.compared(knows_decisive(task))
        check_same_settings(
            self.folder / "settings.json",
            dataclasses.asdict(self.settings),
            free=("policies", "tasks", "batches", "rows_at_once", "pass_rows", "methods"),
        )

    def documents(self) -> list[dict[str, Any]]:
        """What was measured of the planned batches."""
        return [
            json.loads(path.read_text())
            for unit in self.settings.units
            if (path := self.folder / unit.path).is_file()
        ]

    def fidelities(self) -> list[dict[str, Any]]:
        """What was measured of the planned updates."""
        return [
            json.loads(path.read_text())
            for policy in self.settings.policies
            for task in self.settings.tasks
            if (path := self._fidelity_path(policy, task)).is_file()
        ]

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
        missing = [
            name
            for name in self.settings.tasks
            if not all((self.folder / unit.path).is_file() for unit in self._units(policy, name))
            or (self.settings.update_batches and not self._fidelity_done(policy, name))
        ]
        if not missing:
            return
        self.progress.begin(f"policy {policy}", 0)
        model, tokenizer = load_policy(policy)
        shape_of(model)  # refuses what cannot be stacked, in words
        with Judge(tokenizer, self.workers) as judge:
            for name in missing:
                task = get_task(name)
                decisive = knows_decisive(task)
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
                cell = _Cell(
                    policy,
                    name,
                    task,
                    decisive,
                    self.settings.compared(decisive),
                    collector,
                    collector.sampler.another(),
                )
                units = [one for one in self._units(policy, name) if not (self.folder / one.path).is_file()]
                for start in range(0, len(units), BATCHES_AT_ONCE):
                    self._labels(cell, units[start : start + BATCHES_AT_ONCE])
                if self.settings.update_batches and not self._fidelity_done(policy, name):
                    self._fidelity(cell)
                del cell, collector
                free_memory()

    def _units(self, policy: str, task: str) -> list[Unit]:
        return [unit for unit in self.settings.units if (unit.policy, unit.task) == (policy, task)]

    # ------------------------------------------------------------------ credit of tokens

    def _labels(self, cell: _Cell, units: Sequence[Unit]) -> None:
        """Rollout batches whose responses are continued together: few places from one response, many from all of them."""
        settings = self.settings
        where = f"{cell.policy}, {cell.task_name}, {len(units)} batches of rollouts"
        self.progress.begin(where, len(units))
        rollouts = {}
        for unit in units:
            self._look()
            rollouts[unit.number] = self._collect(
                cell, settings.seed, unit.number, unit.number * settings.prompts
            )
            self.progress.advance(1)
        rows = {number: choose(batch, settings.responses) for number, batch in rollouts.items()}
        responses = {
            number: responses_of(batch, rows[number], self._limit(cell)) for number, batch in rollouts.items()
        }
        with self.phases("continuations"):
            credits = measure(
                responses,
                self._continuations(cell, responses),
                budget=settings.budget,
                tolerance=settings.tolerance,
                folder=self.folder
                / "continuations"
                / units[0].path.parent.name
                / quote(cell.task_name, safe=""),
                planned=lambda chunks: self.progress.begin(where, chunks),
                done=self._done,
            )
        self.progress.begin(where, len(units))
        for unit in units:
            self._look()
            number = unit.number
            document = self._agreement(
                cell, unit, rollouts[number], rows[number], responses[number], credits[number]
            )
            self._keep(self.folder / unit.path, document)
            self.progress.advance(1)

    def _continuations(self, cell: _Cell, responses: Mapping[int, Sequence[Response]]) -> Continuations:
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
            cell.collector,
            cell.task,
            responses,
            seed=settings.seed,
            temperature=settings.temperature,
            rows_at_once=settings.rows_at_once,
            sampler=cell.sampler,
            tell=self.say,
        )

    def _agreement(
        self,
        cell: _Cell,
        unit: Unit,
        rollouts: Rollouts,
        rows: Sequence[int],
        responses: Sequence[Response],
        credits: Sequence[MeasuredCredit],
    ) -> dict[str, Any]:
        """Every method's weights on a rollout batch compared with the credit of its measured responses."""
        document: dict[str, Any] = {
            **dataclasses.asdict(unit),
            "facts": {
                "accuracy": rollouts.correct.mean().item(),
                "mixed_groups": (rollouts.correct.view(-1, self.settings.group).std(1) > 0)
                .float()
                .mean()
                .item(),
            },
            "records": [],
        }
        if not rows:
            return document
        with self.phases("weights"):
            weights = self._weights(cell, rollouts, unit.number)
        labels = Labels(rollouts, rows, credits)
        document["facts"] |= labels.facts()
        flags = None
        if cell.decisive:
            assert rollouts.decisive is not None
            flags = [rollouts.decisive[row][rollouts.mask[row]].cpu().numpy() for row in rows]
            document["facts"] |= planted_agreement(flags, rollouts.correct[rows].tolist(), credits)
        document["records"] = [
            {"method": LABELS, "condition": CLEAN.name, **labels.reliability()},
            *(
                {"method": name, "condition": CLEAN.name, **labels.agreement(rho)}
                for name, rho in weights.items()
            ),
        ]
        tokens = [
            {
                "row": row,
                "group": int(rollouts.groups[row]),
                "prompt": str(rollouts.problems[row].prompt),
                "response": rollouts.texts[row],
                "reward": one.reward,
                "tokens": token_texts(cell.collector.tokenizer, one.tokens),
                "entropy": rollouts.entropy[row][rollouts.mask[row]].tolist(),
                **({"decisive": flags[place].astype(int).tolist()} if flags is not None else {}),
                **credit.as_lists(),
            }
            for place, (row, one, credit) in enumerate(zip(rows, responses, credits, strict=True))
        ]
        self._keep(self.folder / "responses" / unit.path.relative_to("batches"), tokens)
        self.say(
            f"{unit.policy}, {unit.task}, batch {unit.number + 1}: {len(rows)} responses, "
            f"about {self.settings.budget * len(rows)} continuations, "
            f"{document['facts']['sure_share']:.0%} of the tokens have a credit that is not 0 by its interval"
        )
        return document

    # ------------------------------------------------------------------ fidelity of updates

    def _fidelity(self, cell: _Cell) -> None:
        settings = self.settings
        path = self._fidelity_path(cell.policy, cell.task_name)
        document = json.loads(path.read_text()) if path.is_file() else None
        gradient, facts = self._gradient(cell)
        if document is None:
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
        self.progress.begin(
            f"{cell.policy}, {cell.task_name}, updates of {len(missing)} methods",
            settings.update_batches * (1 + len(parts)),
        )
        batches, weights = [], []
        for number in range(settings.update_batches):
            self._look()
            batches.append(self._collect(cell, settings.seed + UPDATE_STREAM, number, 0))
            with self.phases("weights"):
                weights.append(self._weights(cell, batches[-1], number))
            self.progress.advance(1)

        def on_batch() -> None:
            self._look()
            self.progress.advance(1)

        for names in parts:
            with self.phases("updates"):
                document["methods"] |= update_products(
                    cell.collector.policy,
                    batches,
                    weights,
                    names,
                    gradient,
                    group=settings.group,
                    temperature=settings.temperature,
                    pass_rows=max(settings.pass_rows, settings.group),
                    on_batch=on_batch,
                )
            self._keep(path, document)
        self._gradient_path(cell.policy, cell.task_name).unlink(missing_ok=True)
        self.say(
            f"{cell.policy}, {cell.task_name}: updates of {len(cell.methods)} methods compared with the gradient"
        )

    def _gradient(self, cell: _Cell) -> tuple[Float[Tensor, "part parameters"], dict[str, float]]:
        """The gradient of the expected reward on the first batch's prompts; kept while updates are compared with it."""
        settings = self.settings
        path = self._gradient_path(cell.policy, cell.task_name)
        if path.is_file():
            kept = torch.load(path, map_location=self.device, weights_only=True)
            return kept["parts"], kept["facts"]
        numbers, group = gradient_batches(settings.gradient_rollouts)
        self.progress.begin(f"{cell.policy}, {cell.task_name}, gradient of the expected reward", numbers)
        size = sum(weight.numel() for weight in cell.collector.policy.parameters())
        parts = torch.zeros(PARTS, size, device=self.device)
        problems = cell.task.problems("train", settings.prompts, seed=settings.seed)
        batch = Batch(cell.task, problems, settings.seed + GRADIENT_STREAM, self._limit(cell))
        accuracy = 0.0
        for number in range(numbers):
            self._look()
            accuracy += add_gradient(
                parts,
                cell.collector,
                batch,
                number,
                numbers,
                group=group,
                temperature=settings.temperature,
                pass_rows=settings.pass_rows,
            )
            self.progress.advance(1)
        facts = {"accuracy": accuracy / numbers}
        with atomic(path) as file:
            torch.save({"parts": parts, "facts": facts}, file)
        return parts, facts

    def _fidelity_path(self, policy: str, task: str) -> Path:
        return self.folder / "fidelity" / quote(policy, safe="") / f"{quote(task, safe='')}.json"

    def _gradient_path(self, policy: str, task: str) -> Path:
        return self._fidelity_path(policy, task).with_suffix(".gradient")

    def _fidelity_done(self, policy: str, task: str) -> bool:
        path = self._fidelity_path(policy, task)
        if not path.is_file():
            return False
        wanted = {one.name for one in self.settings.compared(knows_decisive(get_task(task)))}
        return wanted <= set(json.loads(path.read_text())["methods"])

    # ------------------------------------------------------------------ shared

    def _collect(self, cell: _Cell, seed: int, number: int, start: int) -> Rollouts:
        settings = self.settings
        problems = cell.task.problems("train", settings.prompts, seed=settings.seed, start=start)
        batch = Batch(cell.task, problems, seed, self._limit(cell), decisive=cell.decisive)
        return cell.collector.collect(
            [batch], group=settings.group, number=number, temperature=settings.temperature, ragged=True
        )[0]

    def _weights(
        self, cell: _Cell, rollouts: Rollouts, number: int
    ) -> dict[str, Float[Tensor, "batch time"]]:
        policy = cell.collector.policy
        weigher = Weigher(
            rollouts, policy.head[0].detach(), number=number, temperature=self.settings.temperature
        )
        if not bool((rollouts.advantages != 0).any()):
            return {method.name: torch.ones_like(rollouts.logps) for method in cell.methods}
        return method_weights(
            policy,
            weigher,
            cell.methods,
            learning_rate=self.settings.learning_rate,
            rows_at_once=self.settings.pass_rows,
        )

    def _limit(self, cell: _Cell) -> int:
        return self.settings.max_tokens or cell.task.max_tokens

    def _keep(self, path: Path, document: Any) -> None:
        write_json(path, document, indent=None)

    def _done(self, chunks: int) -> None:
        self.progress.advance(chunks)
        self._look()

    def _look(self) -> None:
        if self.stop.due():
            raise Stopped


def check_verifiable(task: Task) -> None:
    """Refuse a task that cannot tell a right response from a wrong one."""
    problem = task.problems("train", 1)[0]
    try:
        task.grade(problem, "")
    except (ValueError, TypeError, KeyError, NotImplementedError) as error:
        raise ValueError(
            f"task {task.name!r} has no verifiable reward ({error}): measured credit is credit for a verdict"
        ) from error
