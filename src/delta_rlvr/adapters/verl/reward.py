"""verl's reward function over our graders and tasks: `reward.custom_reward_function.path=pkg://delta_rlvr.adapters.verl.reward`.

It is `rlvr_graders.verl`, plus the built-in tasks, which grade their own problems. Who grades a row is in its `extra_info`, as
`delta_rlvr.adapters.verl.data` writes it.
"""

from __future__ import annotations

from typing import Any

from delta_rlvr.tasks import BUILT_IN, Problem
from delta_rlvr.tasks.registry import grade_problem
from rlvr_graders import verl


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any] | None = None, **_: Any
) -> dict[str, Any]:
    """As `rlvr_graders.verl.compute_score`; `extra_info.grader` may also name a built-in task."""
    extra = extra_info or {}
    grader = str(extra.get("grader", "math"))
    if grader.partition("?")[0] not in BUILT_IN:  # settings of a task are part of its name
        return verl.compute_score(data_source, solution_str, ground_truth, extra)
    problem = Problem(str(extra.get("problem_id", "")), "", ground_truth, grader, verl.row_settings(extra))
    return verl.as_score(grade_problem(problem, solution_str))
