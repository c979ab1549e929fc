"""Verifiable rewards: (completion, answer) -> `Verdict`, and the reward functions that training engines call.

Nothing heavy is imported here: SymPy and math-verify live in worker processes, the sandbox starts when code is graded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .math import grade_math, grade_math_batch
from .verdict import Verdict
from .workers import shutdown_workers

if TYPE_CHECKING:
    from .code import grade_code

__all__ = ["Verdict", "grade_code", "grade_math", "grade_math_batch", "shutdown_workers"]


def __getattr__(name: str) -> Any:
    if name == "grade_code":
        from .code import grade_code

        return grade_code
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
