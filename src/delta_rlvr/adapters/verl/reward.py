"""A reward function for verl with our graders and tasks: `reward.custom_reward_function.path=pkg://delta_rlvr.adapters.verl.reward`.

It extends `rlvr_graders.verl` by the built-in tasks, which grade their own problems. The grader's name is in a row's `extra_info`,
which `delta_rlvr.adapters.verl.data` writes.
"""

from __future__ import annotations

from typing import Any

from delta_rlvr.tasks import BUILT_IN, Problem
from delta_rlvr.tasks.registry import grade_problem
from rlvr_graders import verl


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any] | None = None, **_: Any
) -> dict[str, Any]:
    """Return the score of `rlvr_graders.verl.compute_score`, or of the built-in task that `extra_info.grader` names."""
    extra = extra_info or {}
    grader = str(extra.get("grader", "math"))
    if grader.partition("?")[0] not in BUILT_IN:  # a task's name may have settings
        return verl.compute_score(data_source, solution_str, ground_truth, extra)
    problem = Problem(str(extra.get("problem_id", "")), "", ground_truth, grader, verl.row_settings(extra))
    return verl.as_score(grade_problem(problem, solution_str))
