"""Which grader judges a problem, in training and in evaluation alike."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_rlvr.rewards.verdict import Verdict
from delta_rlvr.tasks.problem import Problem

if TYPE_CHECKING:
    from delta_rlvr.rewards.code.cases import CodeTests

GRADERS = ("math", "code", "choice")


def grade_batch(problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
    """Judge each completion by its problem's grader. An answer is looked for where `meta["extract"]` says, else in a box."""
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


def _grade_alike(
    problems: Sequence[Problem], completions: Sequence[str], grader: str, extract: str
) -> list[Verdict]:
    answers = [problem.answer for problem in problems]
    if grader == "math":
        from delta_rlvr.rewards import grade_math_batch

        return grade_math_batch(completions, answers, extract=extract)
    if grader == "choice":
        from delta_rlvr.rewards import grade_choice_batch

        return grade_choice_batch(completions, answers, extract=extract)
    if grader == "code":
        from delta_rlvr.rewards.code import grade_code_batch

        # Once a problem, however the batch is ordered and however many problems it has.
        distinct = {id(problem): problem for problem in problems}
        tests = {key: _TESTS.of(problem) for key, problem in distinct.items()}
        judged = grade_code_batch(completions, [tests[id(problem)] for problem in problems])
        # The program stands in the completion already: as an "answer" it would double the size of what is kept.
        return [replace(verdict, answer=None) for verdict in judged]
    raise ValueError(f"{problems[0].id}: no grader is called {grader!r} here; there are {', '.join(GRADERS)}")


class _TestsOfProblems:
    """Parsed tests of the last problems. EvalPlus' expectations come from running a reference in the sandbox, and
    LiveCodeBench's archives unpack to megabytes: neither should happen once a response."""

    KEPT = 64

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Problem, CodeTests]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, problem: Problem) -> CodeTests:
        with self._lock:
            kept = self._kept.get(id(problem))
            if kept is not None:
                self._kept.move_to_end(id(problem))
                return kept[1]
        tests = _parse(problem.answer)
        with self._lock:
            self._kept[id(problem)] = (problem, tests)  # the problem is held, so that its id stays its own
            while len(self._kept) > self.KEPT:
                self._kept.popitem(last=False)
        return tests


_TESTS = _TestsOfProblems()


def _parse(answer: Any) -> CodeTests:
    from delta_rlvr.rewards.code.datasets import evalplus_tests, parse_tests

    if isinstance(answer, dict) and "plus_input" in answer:
        return evalplus_tests(answer)
    return parse_tests(answer)
