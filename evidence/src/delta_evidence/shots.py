"""Built-in sums for policies that were never shown them: worked solutions in front of the question."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from delta_rlvr.tasks import Problem, Task
from delta_rlvr.tasks.phrased_sums import PhrasedSums
from delta_rlvr.tasks.task import Split

# Worked solutions come from problems of a seed of their own.
_SHOT_SEED = -2


@dataclass(frozen=True)
class WorkedShots(PhrasedSums):
    """A built-in task whose prompts start with `shots` worked problems, one line each; a response is one line too."""

    shots: int = 0

    @property
    def one_line(self) -> bool:
        return True

    def problems(self, split: Split, count: int | None, seed: int = 0, start: int = 0) -> list[Problem]:
        draw = random.Random(_SHOT_SEED)
        shown = super().problems("train", self.shots, seed=_SHOT_SEED)
        worked = "".join(f"{problem.prompt}{self.solution(problem, draw)}\n\n" for problem in shown)
        asked = super().problems(split, count, seed, start)
        return [replace(problem, prompt=worked + str(problem.prompt)) for problem in asked]


def with_shots(task: Task, shots: int) -> Task:
    """The task with worked solutions before each question, or as it is for 0."""
    if not shots:
        return task
    if not isinstance(task, PhrasedSums):
        raise ValueError(f"{task.name}: worked solutions are known for the built-in tasks alone; give --shots 0")
    return WorkedShots(task.name, task.settings, shots)


def line_ends(tokenizer: Any) -> set[int]:
    """Tokens with a line break in them: they end a response that is one line."""
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    return {token for token, text in enumerate(texts) if "\n" in text}
