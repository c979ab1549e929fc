"""Held-out scores of all policies of a stack: what `delta-rlvr evaluate` would measure of each, sampled at once.

Questions, seeds, draws and grader are those of `evaluate_policy`, so that a run's score is the one that its exported weights get there
(a test holds that). Only the numbers are kept, not the completions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor

from delta_evidence.checks import at_least
from delta_evidence.rollouts import Batch, Collector
from delta_evidence.stack.memory import with_fewer_rows
from delta_rlvr.evaluate.drawing import UniformStreams
from delta_rlvr.evaluate.metrics import average_at_k, pass_at_k
from delta_rlvr.evaluate.settings import HELDOUT, SampleKey, sample_seed
from delta_rlvr.tasks import Problem, Task

# Of one decoding step, over all rows: drawing a token takes 28 bytes of each for a moment.
_LOGITS_AT_ONCE = 1 << 29


@dataclass(frozen=True)
class Decoding:
    """One way to answer the held-out problems, and when it is scored."""

    temperature: float
    """0 takes the likeliest token."""
    samples: int = 1
    """Samples a problem; pass@k is kept for k = 2, 4, ... up to it."""
    after: tuple[int, ...] = ()
    """The rollout batches after which it is scored; none for the last one."""

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature={self.temperature}: give 0 (greedy) or more")
        if self.samples < 1 or (self.temperature == 0 and self.samples > 1):
            raise ValueError(
                f"samples={self.samples} at temperature {self.temperature:g}: give at least 1, and 1 where decoding is greedy"
            )
        if any(not isinstance(batch, int) or batch < 0 for batch in self.after):
            raise ValueError(f"after={list(self.after)}: give numbers of rollout batches")

    def due(self, done: int, batches: int) -> bool:
        """Whether it is scored after so many batches of all of them."""
        return done in (self.after or (batches,))


@dataclass(frozen=True)
class Score:
    """One policy's held-out score."""

    accuracy: float
    """avg@samples over the problems."""
    pass_at: dict[str, float]
    """pass@k by k, for more than one sample."""
    length: float
    """Mean tokens per response."""


@dataclass(frozen=True)
class HeldoutSettings:
    """How the policies are scored."""

    problems: int = 256
    samples: int = 4
    """Samples a problem."""
    seed: int = 0
    """Of the samples; the same for every policy, which makes differences less noisy."""
    also: tuple[Decoding, ...] = ()
    """Further scores on the same problems, beside those before and after training at the training's temperature."""

    def __post_init__(self) -> None:
        at_least(self, problems=1, samples=1)
        if len({decoding.temperature for decoding in self.also}) < len(self.also):
            raise ValueError("also: a temperature comes twice; give it all of its batches once")

    def questions(self, task: Task) -> list[Problem]:
        """The same held-out problems that `delta-rlvr train` scores."""
        return task.problems("heldout", self.problems, 0)


@torch.no_grad()
def heldout_scores(
    collector: Collector,
    tasks: Sequence[Task],
    settings: HeldoutSettings,
    decoding: Decoding,
    *,
    limits: Sequence[int],
    rows_at_once: int = 65_536,
) -> list[Score]:
    """Score of each policy on its own task; `limits` are their longest responses."""
    samples = decoding.samples
    by_task = {id(task): settings.questions(task) for task in {id(task): task for task in tasks}.values()}
    asked = [Batch(task, by_task[id(task)], settings.seed, limit) for task, limit in zip(tasks, limits, strict=True)]

    def by_pieces(rows: int) -> tuple[list[list[float]], list[list[int]]]:
        pieces = -(-settings.problems // max(1, rows // (len(tasks) * samples)))
        step = -(-settings.problems // pieces)  # of like size: another size is another set of graphs
        correct: list[list[float]] = [[] for _ in tasks]
        lengths: list[list[int]] = [[] for _ in tasks]
        for start in range(0, settings.problems, step):
            part = [replace(batch, problems=batch.problems[start : start + step]) for batch in asked]
            uniforms = _uniforms(part, samples, decoding.temperature == 0)
            answers = collector.answer(part, uniforms, copies=samples, temperature=decoding.temperature)
            for row, judged in zip(correct, answers.verdicts, strict=True):
                row.extend(judged.correct)
            for of_run, counts in zip(lengths, answers.mask.sum(2).tolist(), strict=True):
                of_run.extend(counts)
        return correct, lengths

    rows = min(rows_at_once, _LOGITS_AT_ONCE // collector.policy.head.shape[1])
    (correct, lengths), _ = with_fewer_rows(by_pieces, rows, len(tasks) * samples, collector.phases.tell)
    return [
        Score(average_at_k(row), _pass_at(row, samples), fmean(tokens))
        for row, tokens in zip(correct, lengths, strict=True)
    ]


def _pass_at(correct: Sequence[float], samples: int) -> dict[str, float]:
    """The mean over problems for k = 2, 4, ... Samples of one problem stand side by side."""
    if any(score not in (0, 1) for score in correct):
        return {}  # a task with partial credit: nothing to count
    problems = [correct[start : start + samples] for start in range(0, len(correct), samples)]
    ks = [1 << power for power in range(1, samples.bit_length())]
    return {str(k): fmean(pass_at_k(scores, k) for scores in problems) for k in ks}


def _uniforms(batches: Sequence[Batch], samples: int, greedy: bool) -> Float[Tensor, "run batch time"]:
    """The draws of `evaluate_policy`: a sample's own seed gives its numbers. Greedy decoding reads none."""
    longest = max(batch.max_tokens for batch in batches)
    if greedy:
        return torch.zeros(len(batches), len(batches[0].problems), longest, dtype=torch.float64)
    drawn: dict[tuple[int, ...], Tensor] = {}
    rows = []
    for batch in batches:
        keys = [SampleKey(HELDOUT, problem.id, number) for problem in batch.problems for number in range(samples)]
        seeds = tuple(sample_seed(batch.seed, key) for key in keys)
        if seeds not in drawn:
            streams = UniformStreams(list(seeds))
            steps = [torch.from_numpy(streams.next().copy()) for _ in range(longest)]
            drawn[seeds] = torch.stack(steps, dim=1)
        rows.append(drawn[seeds])
    return torch.stack(rows)
