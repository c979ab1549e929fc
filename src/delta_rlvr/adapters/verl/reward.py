"""verl's reward function over our graders: `reward.custom_reward_function.path=pkg://delta_rlvr.adapters.verl.reward`.

Which grader judges a row stands in its `extra_info`, as `delta_rlvr.adapters.verl.data` writes it; a row without it is mathematics.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from delta_rlvr.rewards import grade_math
from delta_rlvr.rewards.verdict import Verdict
from delta_rlvr.tasks import BUILT_IN, Problem, Task, get_task


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    **_: Any,
) -> dict[str, Any]:
    """{"score": 1 or 0, "acc": the same, "reason": the grader's words}."""
    verdict = _verdict(solution_str, ground_truth, extra_info or {})
    return {"score": verdict.score, "acc": verdict.score, "reason": verdict.reason}


def _verdict(completion: str, answer: Any, extra: dict[str, Any]) -> Verdict:
    grader = extra.get("grader", "math")
    if grader == "math":
        return grade_math(completion, answer)
    if grader == "code":
        from delta_rlvr.rewards.code import grade_code, parse_tests

        return grade_code(completion, parse_tests(answer))
    if grader in BUILT_IN:
        problem = Problem(
            id=str(extra.get("problem_id", "")),
            prompt="",
            answer=answer,
            grader=grader,
            meta=json.loads(extra.get("meta") or "{}"),
        )
        return _task(grader).grade(problem, completion)
    raise ValueError(
        f"extra_info.grader={grader!r}: there is no such grader; give math, code, or one of {', '.join(BUILT_IN)}"
    )


@cache
def _task(name: str) -> Task:
    return get_task(name)
