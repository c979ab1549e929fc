"""The problems of an evaluation, ready to be asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.files import dump
from delta_rlvr.rewards.verdict import Verdict
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.registry import grade_problem

Grade = Callable[[Problem, str], Verdict]


@dataclass(frozen=True)
class Questions:
    """The problems of one benchmark, ready to be asked."""

    name: str
    problems: tuple[Problem, ...]
    description: Mapping[str, Any]
    """Where they are from and how they are asked and graded; stored with the result."""
    grade: Grade = grade_problem
    """By each problem's `grader`; or its own, where those do not say it all (a task's)."""

    def __post_init__(self) -> None:
        if not self.problems:
            raise EvaluationError(f"{self.name} has no problems")
        seen: dict[str, int] = {}
        for place, problem in enumerate(self.problems):
            if not isinstance(problem.id, str) or not problem.id:
                raise EvaluationError(f"{self.name}: problem {place} has no id")
            if problem.id in seen:
                raise EvaluationError(
                    f"{self.name}: problems {seen[problem.id]} and {place} share the id {problem.id!r}; ids must be unique, because "
                    "samples are kept under them"
                )
            seen[problem.id] = place

    @property
    def digest(self) -> str:
        """Changes when a prompt, an answer, the order or the number of problems does."""
        summed = hashlib.sha256()
        for problem in self.problems:
            prompt = problem.prompt if isinstance(problem.prompt, str) else list(problem.prompt)
            summed.update(dump([problem.id, prompt, problem.answer, problem.grader]).encode() + b"\n")
        return summed.hexdigest()[:16]
