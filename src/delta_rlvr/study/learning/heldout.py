"""Held-out scores of all policies of a stack: what `delta-rlvr evaluate` would measure of each, sampled at once.

Questions, seeds, draws and grader are those of `evaluate_policy`, so that a run's score is the one that its exported weights get there
(a test holds that). Only the numbers are kept, not the completions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from delta_rlvr.evaluate.drawing import UniformStreams
from delta_rlvr.evaluate.metrics import average_at_k
from delta_rlvr.evaluate.settings import SampleKey, sample_seed
from delta_rlvr.study.judging import Asked
from delta_rlvr.study.rollouts import Collector, valid_ids
from delta_rlvr.study.stack.memory import with_fewer_rows
from delta_rlvr.tasks import Problem, Task

# Of one decoding step, over all rows: drawing a token takes 28 bytes of each for a moment.
_LOGITS_AT_ONCE = 1 << 29

NAME = "heldout"  # of the questions: part of each sample's seed, and `evaluate_policy`'s default


@dataclass(frozen=True)
class HeldoutSettings:
    """How the policies are scored."""

    problems: int = 256
    samples: int = 4
    """Samples a problem."""
    seed: int = 0
    """Of the samples; the same for every policy, which makes differences less noisy."""

    def __post_init__(self) -> None:
        if self.problems < 1 or self.samples < 1:
            raise ValueError(f"problems={self.problems}, samples={self.samples}: give at least 1 of each")

    def questions(self, task: Task) -> list[Problem]:
        """The same held-out problems that `delta-rlvr train` scores."""
        return task.problems("heldout", self.problems, 0)


@torch.no_grad()
def heldout_accuracies(
    collector: Collector,
    tasks: Sequence[Task],
    settings: HeldoutSettings,
    *,
    limits: Sequence[int],
    temperature: float = 1.0,
    rows_at_once: int = 65_536,
) -> list[float]:
    """Accuracy (avg@samples over the problems) of each policy on its own task; `limits` are their longest responses."""
    by_task = {id(task): settings.questions(task) for task in {id(task): task for task in tasks}.values()}
    questions = [by_task[id(task)] for task in tasks]

    def by_pieces(rows: int) -> list[list[float]]:
        pieces = -(-settings.problems // max(1, rows // (len(tasks) * settings.samples)))
        step = -(-settings.problems // pieces)  # of like size: another size is another set of graphs
        correct: list[list[float]] = [[] for _ in tasks]
        for start in range(0, settings.problems, step):
            part = [asked[start : start + step] for asked in questions]
            for row, verdicts in zip(
                correct, _verdicts(collector, tasks, part, settings, limits, temperature), strict=True
            ):
                row.extend(verdicts)
        return correct

    rows = min(rows_at_once, _LOGITS_AT_ONCE // collector.policy.head.shape[1])
    correct, _ = with_fewer_rows(by_pieces, rows, len(tasks) * settings.samples, collector.phases.tell)
    return [average_at_k(row) for row in correct]


def _verdicts(
    collector: Collector,
    tasks: Sequence[Task],
    questions: Sequence[Sequence[Problem]],
    settings: HeldoutSettings,
    limits: Sequence[int],
    temperature: float,
) -> list[list[float]]:
    seeds = [
        [
            sample_seed(settings.seed, SampleKey(NAME, problem.id, number))
            for problem in asked
            for number in range(settings.samples)
        ]
        for asked in questions
    ]
    drawn: dict[tuple[int, ...], torch.Tensor] = {}
    for row in seeds:
        if tuple(row) not in drawn:
            streams = UniformStreams(row)
            drawn[tuple(row)] = torch.stack(
                [torch.from_numpy(streams.next().copy()) for _ in range(max(limits))], dim=1
            )
    uniforms = torch.stack([drawn[tuple(row)] for row in seeds])
    prompts, prompt_mask = collector.encode(questions)
    ids, mask = collector.sample(
        prompts, prompt_mask, uniforms, limits, copies=settings.samples, temperature=temperature
    )
    asked = [
        Asked(task, row, settings.samples, responses)
        for task, row, responses in zip(tasks, questions, valid_ids(ids, mask), strict=True)
    ]
    return [judged.correct for judged in collector.judge(asked)]
