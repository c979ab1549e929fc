"""Held-out scores of all policies of a stack: what `delta-rlvr evaluate` would measure of each, sampled at once.

Questions, seeds, draws and grader are those of `evaluate_policy`, so that a run's score is the one that its exported weights get there
(a test holds that). Only the numbers are kept, not the completions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from delta_evidence.rollouts import Batch, Collector
from delta_evidence.stack.memory import with_fewer_rows
from delta_rlvr.evaluate.drawing import UniformStreams
from delta_rlvr.evaluate.metrics import average_at_k
from delta_rlvr.evaluate.settings import HELDOUT, SampleKey, sample_seed
from delta_rlvr.tasks import Problem, Task

# Of one decoding step, over all rows: drawing a token takes 28 bytes of each for a moment.
_LOGITS_AT_ONCE = 1 << 29


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
    asked = [
        Batch(task, by_task[id(task)], settings.seed, limit)
        for task, limit in zip(tasks, limits, strict=True)
    ]

    def by_pieces(rows: int) -> list[list[float]]:
        pieces = -(-settings.problems // max(1, rows // (len(tasks) * settings.samples)))
        step = -(-settings.problems // pieces)  # of like size: another size is another set of graphs
        correct: list[list[float]] = [[] for _ in tasks]
        for start in range(0, settings.problems, step):
            part = [replace(batch, problems=batch.problems[start : start + step]) for batch in asked]
            uniforms = _uniforms(part, settings.samples)
            answers = collector.answer(part, uniforms, copies=settings.samples, temperature=temperature)
            for row, judged in zip(correct, answers.verdicts, strict=True):
                row.extend(judged.correct)
        return correct

    rows = min(rows_at_once, _LOGITS_AT_ONCE // collector.policy.head.shape[1])
    correct, _ = with_fewer_rows(by_pieces, rows, len(tasks) * settings.samples, collector.phases.tell)
    return [average_at_k(row) for row in correct]


def _uniforms(batches: Sequence[Batch], samples: int) -> Float[Tensor, "run batch time"]:
    """The draws of `evaluate_policy`: a sample's own seed gives its numbers."""
    longest = max(batch.max_tokens for batch in batches)
    drawn: dict[tuple[int, ...], Tensor] = {}
    rows = []
    for batch in batches:
        keys = [
            SampleKey(HELDOUT, problem.id, number) for problem in batch.problems for number in range(samples)
        ]
        seeds = tuple(sample_seed(batch.seed, key) for key in keys)
        if seeds not in drawn:
            streams = UniformStreams(list(seeds))
            steps = [torch.from_numpy(streams.next().copy()) for _ in range(longest)]
            drawn[seeds] = torch.stack(steps, dim=1)
        rows.append(drawn[seeds])
    return torch.stack(rows)
