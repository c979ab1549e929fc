"""verl's reward function over our graders: `reward.custom_reward_function.path=pkg://delta_rlvr.adapters.verl.reward`.

Who grades a row, and where its answer stands in a response, is in its `extra_info`, as `delta_rlvr.adapters.verl.data` writes
it; a row that names no grader is mathematics, in a box.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from delta_rlvr.tasks import BUILT_IN, Problem
from delta_rlvr.tasks.grading import GRADERS
from delta_rlvr.tasks.registry import grade_problem


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    **_: Any,
) -> dict[str, Any]:
    """{"score": 1 or 0, "acc": the same, "reason": the grader's words, "not_graded": 1 where it could not judge}.

    verl calls this from threads, one response at a time.
    """
    verdict = grade_problem(_problem(ground_truth, extra_info or {}), solution_str)
    return {
        "score": verdict.score,
        "acc": verdict.score,
        "reason": verdict.reason,
        "not_graded": float(verdict.failed),
    }


def _problem(answer: Any, extra: dict[str, Any]) -> Problem:
    """What a row was made from, but for the prompt, which no grader looks at."""
    if "grader" not in extra:
        return Problem("", "", answer, "math")
    grader, meta = str(extra["grader"]), extra.get("meta") or "{}"
    # Settings of a built-in task are part of its name.
    if grader not in GRADERS and grader.partition("?")[0] not in BUILT_IN:
        raise ValueError(
            f"extra_info.grader={grader!r}: there is no such grader; give one of {', '.join((*GRADERS, *BUILT_IN))}"
        )
    if not isinstance(meta, str):
        raise ValueError(
            f"extra_info.meta is a {type(meta).__name__}: give it as JSON text, as delta_rlvr.adapters.verl.data does"
        )
    make = _kept if isinstance(answer, str) else _made  # only a text can be looked up
    return make(str(extra.get("problem_id", "")), answer, grader, meta)


def _made(name: str, answer: Any, grader: str, meta: str) -> Problem:
    return Problem(name, "", answer, grader, json.loads(meta))


# A prompt's responses come one by one, each with a row of its own. They must share one problem, or its tests are parsed for each.
_kept = lru_cache(maxsize=64)(_made)
