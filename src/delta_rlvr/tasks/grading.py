"""Grading of completions by each problem's grader, in training and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from delta_rlvr.tasks.problem import Problem
from rlvr_graders import Verdict, grade_choice_batch, grade_math_batch, grade_math_verify_batch

if TYPE_CHECKING:
    from rlvr_graders.code.cases import CodeTests

MATH_VERIFY = "math-verify"
GRADERS = ("math", "code", "choice", MATH_VERIFY)


def grade_batch(problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
    """Judge each completion by its problem's grader. `meta["extract"]` says where the answer stands (default: in a box)."""
    if len(problems) != len(completions):
        raise ValueError(f"{len(problems)} problems but {len(completions)} completions")
    ways: dict[tuple[str, str], list[int]] = {}
    for place, problem in enumerate(problems):
        ways.setdefault((problem.grader, problem.meta.get("extract", "boxed")), []).append(place)
    verdicts: dict[int, Verdict] = {}
    for (grader, extract), places in ways.items():
        judged = _grade_alike(
            [problems[place] for place in places], [completions[place] for place in places], grader, extract
        )
        verdicts.update(zip(places, judged, strict=True))
    return [verdicts[place] for place in range(len(problems))]


def _grade_alike(problems: Sequence[Problem], completions: Sequence[str], grader: str, extract: str) -> list[Verdict]:
    answers = [problem.answer for problem in problems]
    if grader == "math":
        return grade_math_batch(completions, answers, extract=extract)
    if grader == MATH_VERIFY:
        # By default it looks for a box and falls back to the last expression, as in the code of the paper's authors.
        return grade_math_verify_batch(completions, answers, extract=None if extract == "boxed" else extract)
    if grader == "choice":
        return grade_choice_batch(completions, answers, extract=extract)
    if grader == "code":
        from rlvr_graders.code import grade_code_batch

        # Parse the tests once per problem, even if the batch has more problems than the cache holds.
        distinct = {id(problem): problem for problem in problems}
        tests = {key: _tests(_Itself(problem)) for key, problem in distinct.items()}
        judged = grade_code_batch(completions, [tests[id(problem)] for problem in problems])
        # The program is already in the completion: kept as the answer it would double the size of stored files.
        return [replace(verdict, answer=None) for verdict in judged]
    raise ValueError(f"{problems[0].id}: there is no grader {grader!r}; there are {', '.join(GRADERS)}")


@dataclass(frozen=True, eq=False)
class _Itself:
    """A cache key that compares problems by identity. It holds the problem, so that its id is not reused."""

    problem: Problem

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.problem is self.problem

    def __hash__(self) -> int:
        return id(self.problem)


@lru_cache(maxsize=64)
def _tests(key: _Itself) -> CodeTests:
    """Return the parsed tests of a problem, cached: EvalPlus runs a reference solution in the sandbox, and LiveCodeBench unpacks
    megabytes, which should not happen for each response."""
    from rlvr_graders.code.datasets import evalplus_tests, parse_tests

    answer = key.problem.answer
    if isinstance(answer, dict) and "plus_input" in answer:
        return evalplus_tests(answer)
    return parse_tests(answer)
