"""One process's work on a study: stack after stack, with checkpoints, in the time and the memory that there is."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

from delta_evidence.checks import at_least
from delta_evidence.judging import Judge
from delta_evidence.learning.checkpoint import Stack, path_of, write_state
from delta_evidence.learning.heldout import Decoding, Score, heldout_scores
from delta_evidence.learning.outcome import BatchStatistics, Outcome
from delta_evidence.learning.protocol import Protocol
from delta_evidence.learning.training import StackedTraining
from delta_evidence.phases import Phases, ProgressLines
from delta_evidence.rollouts import Collector, make_collector
from delta_evidence.stack.layers import round_up
from delta_evidence.stack.memory import bytes_per_run, free_memory, runs_that_fit
from delta_evidence.stopping import Stop, Stopped
from delta_rlvr.models.prompts import encode_prompt
from delta_rlvr.tasks import Task, get_task

# Responses, over all runs, of one piece of a score during training: its cache stays beside the training's.
_SCORED_AT_ONCE = 2048


@dataclass(frozen=True)
class Machine:
    """Where and how the stacks run. But for `compute_dtype`, none of it changes a result beyond the rounding of sums."""

    device: str = "cpu"
    compute_dtype: torch.dtype = torch.float32
    """Of the matrix products. Outcomes of two precisions do not stand in one folder."""
    runs_at_once: int | None = None
    """Runs of one stack; None for 8 on a CPU, and for as many as the free memory holds, up to 100, on a GPU."""
    rows_at_once: int | None = None
    """Rows (responses, over all runs) of one forward and backward; None for 512 on a CPU and 8192 on a GPU."""
    workers: int = 1
    """Processes that judge responses."""
    checkpoint_seconds: float = 300.0
    """Time between two checkpoints of a stack. There is one too when a study is stopped."""

    def __post_init__(self) -> None:
        at_least(self, runs_at_once=1, rows_at_once=1, workers=1)
        if self.checkpoint_seconds < 0:
            raise ValueError(f"checkpoint_seconds={self.checkpoint_seconds:g}: give 0 or more")

    @property
    def precision(self) -> str:
        """The compute dtype's name."""
        return str(self.compute_dtype).removeprefix("torch.")

    @property
    def cuda(self) -> bool:
        return torch.device(self.device).type == "cuda"

    @property
    def rows(self) -> int:
        """`rows_at_once`, or its default."""
        return self.rows_at_once or (8192 if self.cuda else 512)


@dataclass
class Session:
    """Trains and scores stacks. Nothing of a stack outlives its `run`."""

    protocol: Protocol
    folder: Path
    machine: Machine
    model: Any
    tokenizer: Any
    judge: Judge
    stop: Stop
    progress: ProgressLines
    exported: Collection[str]
    """Arms whose trained weights are written to the folder as transformers models."""
    _batch_seconds: float = 0.0
    _writing_speed: float = 5e8
    """Bytes a second that a checkpoint is expected to be written at, before the first one was."""

    @property
    def phases(self) -> Phases:
        return self.progress.phases

    def runs_at_once(self) -> int:
        """Runs of a stack: as asked for, or as many as there is memory for."""
        if self.machine.runs_at_once is not None:
            return self.machine.runs_at_once
        if not self.machine.cuda:
            return 8
        settings, heldout = self.protocol.training, self.protocol.heldout
        tasks = [get_task(name) for name in self.protocol.tasks]
        prompts = [heldout.questions(task)[:16] for task in tasks]
        longest = max(len(encode_prompt(self.tokenizer, one.prompt)) for asked in prompts for one in asked)
        each = bytes_per_run(
            self.model,
            self.machine.compute_dtype,
            rows=max(settings.prompts * settings.group, heldout.problems * heldout.samples),
            prompts=max(settings.prompts, heldout.problems),
            prompt_time=round_up(longest, 32),
            time=round_up(max(settings.max_tokens or task.max_tokens for task in tasks), 32),
        )
        runs = runs_that_fit(torch.device(self.machine.device), each, 100)
        self.phases.tell(f"up to {runs} runs at once: each holds {each / 2**30:.1f} GiB beside the passes")
        return runs

    def start_scores(self, names: Sequence[str]) -> dict[str, float]:
        """Held-out accuracy on each task before training: the same for every run."""
        if not names:
            return {}
        self.stop.check()
        tasks = [get_task(name) for name in names]
        with self.phases("held-out score of the start"):
            scores = self._score(self._collector(tasks), tasks, self._at_the_end())
            return {name: score.accuracy for name, score in zip(names, scores, strict=True)}

    def run(self, stack: Stack, name: str, before: Mapping[str, float]) -> list[Outcome] | None:
        """Train and score the runs side by side, with the score `before` by task; None where the device has too little memory for so
        many of them. What they came to by then is in their checkpoint, if they had one or could be given one."""
        trained = None
        try:
            trained = self._train_and_score(stack, name, before)
        except torch.OutOfMemoryError:
            if len(stack.runs) == 1:
                raise ValueError(
                    f"{self.machine.device} has too little memory for one run of {self.protocol.model}: use --dtype bfloat16, or "
                    "a protocol with fewer prompts, shorter responses or fewer held-out problems"
                ) from None
        # Here, and not in the handler: the error holds on to the stack's tensors.
        free_memory()
        return trained

    def _train_and_score(self, stack: Stack, name: str, before: Mapping[str, float]) -> list[Outcome]:
        self.progress.where = name
        named = {spec: get_task(spec) for spec in {run.task for run in stack.runs}}
        tasks = [named[run.task] for run in stack.runs]
        with self.phases("building the stack"):
            training = StackedTraining(
                self._collector(tasks),
                stack.runs,
                self.protocol.training,
                arms={
                    arm: replace(self.protocol.settings(arm), method=self.protocol.method(arm))
                    for arm in self.protocol.arms
                },
                rows_at_once=self.machine.rows,
            )
            state = stack.state()
            if state is not None:
                training.restore(state)
            del state  # the file that it is mapped from may be replaced
        if training.done:
            self.phases.tell(f"  going on after batch {training.done} of {self.protocol.training.batches}")
        saved, began = time.monotonic(), time.monotonic()

        def look() -> None:
            if not training.within_batch:
                self.stop.check(self._writing_seconds(training))

        def after_batch(number: int, statistics: list[BatchStatistics]) -> None:
            nonlocal saved, began
            self._batch_seconds, began = time.monotonic() - began, time.monotonic()
            mean = sum(batch.accuracy for batch in statistics) / len(statistics)
            batches = self.protocol.training.batches
            self.progress.where = f"{name}, {number + 1} of {batches} batches done, accuracy {mean:.3f} on average"
            self.progress.advance(len(stack.runs))
            if time.monotonic() - saved >= self.machine.checkpoint_seconds:
                self._save(training)
                saved = began = time.monotonic()
            self.stop.check(self._batch_seconds + self._writing_seconds(training))

        self.phases.on_enter = look
        try:
            training.train(after_batch, self._scorer(training))
            self.stop.check(self._scoring_seconds() + self._writing_seconds(training))
            with self.phases("held-out"):
                after = self._score(training.collector, tasks, self._at_the_end())
        except (Stopped, torch.OutOfMemoryError):
            self.phases.on_enter = lambda: None  # or it would stop the writing too
            if not training.within_batch and training.done > stack.done:
                self._save(training)
            raise
        finally:
            self.phases.on_enter = lambda: None
        self._export(training)
        return [
            Outcome.of(
                run,
                training.seen[place],
                before=before[run.task],
                after=None if place in training.diverged else after[place].accuracy,
                diverged=training.diverged.get(place),
                heldout=training.scores[place],
            )
            for place, run in enumerate(stack.runs)
        ]

    def _collector(self, tasks: Sequence[Task]) -> Collector:
        """One copy of the model for each task."""
        if len({task.one_line for task in tasks}) > 1:
            raise ValueError(
                "tasks whose responses end with their line cannot stand in one stack with others: give two protocols"
            )
        return make_collector(
            self.model,
            self.tokenizer,
            runs=len(tasks),
            one_line=tasks[0].one_line,
            judge=self.judge,
            device=self.machine.device,
            compute_dtype=self.machine.compute_dtype,
            rows_at_once=self.machine.rows,
            phases=self.phases,
        )

    def _at_the_end(self) -> Decoding:
        """How the policies are scored before and after training."""
        return Decoding(self.protocol.training.temperature, self.protocol.heldout.samples)

    def _scorer(self, training: StackedTraining) -> Callable[[], list[list[dict[str, Any]]]] | None:
        """What makes the scores that are due after the batches that are done."""
        also, batches = self.protocol.heldout.also, self.protocol.training.batches
        if not also:
            return None
        # Those that come again and again have a sampler of their own: another size of batch would cost the training its graphs.
        samplers = {one: training.collector.sampler.another() for one in also if len(one.after) > 1}

        def scores() -> list[list[dict[str, Any]]]:
            rows: list[list[dict[str, Any]]] = [[] for _ in training.runs]
            for decoding in also:
                if not decoding.due(training.done, batches):
                    continue
                collector, rows_at_once = training.collector, {}
                if decoding in samplers:
                    collector = replace(collector, sampler=samplers[decoding])
                    rows_at_once["rows_at_once"] = _SCORED_AT_ONCE
                with self.phases("held-out"):
                    found = self._score(collector, training.tasks, decoding, **rows_at_once)
                for row, score in zip(rows, found, strict=True):
                    row.append({"temperature": decoding.temperature, "samples": decoding.samples, **asdict(score)})
            return rows

        return scores

    def _score(self, collector: Collector, tasks: Sequence[Task], decoding: Decoding, **rows: int) -> list[Score]:
        settings = self.protocol.training
        limits = [settings.max_tokens or task.max_tokens for task in tasks]
        return heldout_scores(collector, tasks, self.protocol.heldout, decoding, limits=limits, **rows)

    def _save(self, training: StackedTraining) -> None:
        """A checkpoint, if there is room for it: a full disk must not end what goes well."""
        began = time.monotonic()
        with self.phases("checkpoint"):
            try:
                write_state(path_of(self.folder, training.runs), training.runs, training.state())
            except OSError as error:
                self.phases.tell(f"no checkpoint could be written ({error.strerror or error}); the last one stays")
                return
        self._writing_speed = _state_bytes(training) / max(1e-3, time.monotonic() - began)

    def _writing_seconds(self, training: StackedTraining) -> float:
        return _state_bytes(training) / self._writing_speed

    def _scoring_seconds(self) -> float:
        """At most: a batch has as much sampling a response, and more to do beside it."""
        settings, heldout = self.protocol.training, self.protocol.heldout
        return self._batch_seconds * heldout.problems * heldout.samples / (settings.prompts * settings.group)

    def _export(self, training: StackedTraining) -> None:
        if not self.exported:
            return
        model = copy.deepcopy(self.model)
        for place, run in enumerate(training.runs):
            if run.arm in self.exported and place not in training.diverged:
                training.policy.load_into(place, model)
                # Settings are part of the name: tasks may differ in nothing else.
                name = quote(f"{run.arm}-{run.task}-seed{run.seed}", safe="")
                model.save_pretrained(self.folder / "models" / name)
                self.tokenizer.save_pretrained(self.folder / "models" / name)


def _state_bytes(training: StackedTraining) -> int:
    """Weights and Adam's two moments."""
    return 3 * sum(weight.nbytes for weight in training.policy.parameters())
