"""verl's reward function: `reward.custom_reward_function.path=pkg://rlvr_graders.verl` (name `compute_score`, verl's default).

A row's `extra_info` may say who grades it ("grader": "math", "choice", "code" or "math-verify") and where its answer stands in a
response ("extract"); a row that says nothing is mathematics, in a box. For "code", the ground truth holds the tests (see
`rlvr_graders.code.parse_tests`), as JSON text.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from .choice import grade_choice
from .math.grade import grade_math
from .others import grade_math_verify
from .verdict import Verdict

GRADERS = ("math", "choice", "code", "math-verify")


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any] | None = None, **_: Any
) -> dict[str, Any]:
    """{"score": 1 or 0, "acc": the same, "reason": the grader's words, "not_graded": 1 where it could not judge}.

    verl calls this from threads, one response at a time.
    """
    extra = extra_info or {}
    grader, extract = extra.get("grader", "math"), row_settings(extra).get("extract")
    found = {} if extract is None else {"extract": extract}
    if grader == "math":
        verdict = grade_math(solution_str, ground_truth, **found)
    elif grader == "choice":
        verdict = grade_choice(solution_str, ground_truth, **found)
    elif grader == "math-verify":  # which looks for boxes itself
        verdict = grade_math_verify(solution_str, ground_truth, **({} if extract == "boxed" else found))
    elif grader == "code":
        from .code import grade_code

        verdict = grade_code(solution_str, _tests(ground_truth) if isinstance(ground_truth, str) else ground_truth)
    else:
        raise ValueError(f"extra_info.grader={grader!r}: there is no such grader; give one of {', '.join(GRADERS)}")
    return as_score(verdict)


def as_score(verdict: Verdict) -> dict[str, Any]:
    """A verdict as verl takes it."""
    return {"score": verdict.score, "acc": verdict.score, "reason": verdict.reason, "not_graded": float(verdict.failed)}


def row_settings(extra: dict[str, Any]) -> dict[str, Any]:
    """What a row that names its grader says beside it: "extract", or all of "meta", which is JSON text (one schema for all rows)."""
    meta = extra.get("meta") or "{}" if "grader" in extra else "{}"
    if not isinstance(meta, str):
        raise ValueError(f"extra_info.meta is a {type(meta).__name__}: give it as JSON text")
    return {**json.loads(meta), **({"extract": extra["extract"]} if "extract" in extra else {})}


@lru_cache(maxsize=64)
def _tests(text: str) -> Any:
    """A prompt's responses come one by one, each with a row of its own: its tests are parsed once."""
    from .code import datasets

    return datasets.parse_tests(text)
