"""Which grader judges a problem of a benchmark."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.rewards.verdict import Verdict
from delta_rlvr.tasks.problem import Problem

if TYPE_CHECKING:
    from delta_rlvr.rewards.code_tests import CodeTests


def grade_problem(problem: Problem, completion: str) -> Verdict:
    """Judge one completion by the problem's grader: "math", "choice", "code", or the task that made it."""
    if problem.grader == "math":
        from delta_rlvr.rewards import grade_math

        return grade_math(completion, problem.answer, extract=problem.meta.get("extract", "boxed"))
    if problem.grader == "choice":
        from delta_rlvr.rewards import grade_choice

        return grade_choice(completion, problem.answer, extract=problem.meta.get("extract", "boxed"))
    if problem.grader == "code":
        from delta_rlvr.rewards.code import grade_code

        verdict = grade_code(completion, _TESTS.of(problem))
        # The program stands in the completion already: as an "answer" it would double the result's size.
        return Verdict(verdict.score, verdict.reason)
    from delta_rlvr.tasks.registry import get_task

    try:
        task = get_task(problem.grader)
    except ValueError as error:
        raise EvaluationError(f"{problem.id}: nothing grades {problem.grader!r} ({error})") from None
    return task.grade(problem, completion)


class _TestsOfProblems:
    """Parsed tests of the last problems. EvalPlus' expectations come from running a reference in the sandbox, and
    LiveCodeBench's archives unpack to megabytes: neither should happen once a sample."""

    KEPT = 64

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Problem, CodeTests]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, problem: Problem) -> CodeTests:
        with self._lock:
            found = self._kept.get(id(problem))
            if found is not None:
                self._kept.move_to_end(id(problem))
                return found[1]
        tests = _parse(problem.answer)
        with self._lock:
            self._kept[id(problem)] = (problem, tests)  # the problem is held, so that its id stays its own
            while len(self._kept) > self.KEPT:
                self._kept.popitem(last=False)
        return tests


_TESTS = _TestsOfProblems()


def _parse(answer: Any) -> CodeTests:
    from delta_rlvr.rewards.code_datasets import evalplus_tests, parse_tests

    if isinstance(answer, dict) and "plus_input" in answer:
        return evalplus_tests(answer)
    return parse_tests(answer)
