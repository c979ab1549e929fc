"""Built-in sums for policies that were never shown them: worked solutions in front of the question."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from delta_rlvr.rewards.verdict import Verdict
from delta_rlvr.tasks import Problem, Task
from delta_rlvr.tasks.phrased_sums import PhrasedSums
from delta_rlvr.tasks.task import Span, Split

# Worked solutions come from problems of a seed of their own.
_SHOT_SEED = -2


@dataclass(frozen=True)
class WorkedShots:
    """A built-in task whose prompts start with `shots` worked problems, one line each; a response is one line too."""

    task: PhrasedSums
    shots: int

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def max_tokens(self) -> int:
        return self.task.max_tokens

    @property
    def one_line(self) -> bool:
        return True

    def problems(self, split: Split, count: int | None, seed: int = 0, start: int = 0) -> list[Problem]:
        draw = random.Random(_SHOT_SEED)
        worked = "".join(
            f"{problem.prompt}{self.task.solution(problem, draw)}\n\n"
            for problem in self.task.problems("train", self.shots, seed=_SHOT_SEED)
        )
        asked = self.task.problems(split, count, seed, start)
        return [replace(problem, prompt=worked + str(problem.prompt)) for problem in asked]

    def grade(self, problem: Problem, completion: str) -> Verdict:
        return self.task.grade(problem, completion)

    def grade_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        return self.task.grade_batch(problems, completions)

    def decisive(self, problem: Problem, completion: str) -> list[Span]:
        return self.task.decisive(problem, completion)


def with_shots(task: Task, shots: int) -> Task:
    """The task with worked solutions before each question, or as it is for 0."""
    if not shots:
        return task
    if not isinstance(task, PhrasedSums):
        raise ValueError(
            f"{task.name}: worked solutions are known for the built-in tasks alone; give --shots 0"
        )
    return WorkedShots(task, shots)


def line_ends(tokenizer: Any) -> set[int]:
    """Tokens with a line break in them: they end a response that is one line."""
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    return {token for token, text in enumerate(texts) if "\n" in text}
