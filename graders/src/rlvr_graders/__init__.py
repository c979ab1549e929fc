"""Verifiable rewards: (completion, answer) -> `Verdict`, and the reward functions that training engines call.

Nothing heavy is imported here: mpmath lives in worker processes, the sandbox starts when code is graded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .choice import grade_choice, grade_choice_batch
from .functions import ChoiceReward, MathReward, RewardFunction, math_reward
from .math.grade import grade_math, grade_math_batch
from .math_verify import parse, verify
from .others import MathVerifyReward, grade_math_verify, grade_math_verify_batch
from .verdict import Verdict
from .workers import shutdown_workers

if TYPE_CHECKING:
    from .code import code_reward, grade_code, grade_code_batch

_OF_CODE = ("code_reward", "grade_code", "grade_code_batch")

__all__ = [
    "ChoiceReward",
    "MathReward",
    "MathVerifyReward",
    "RewardFunction",
    "Verdict",
    "code_reward",
    "grade_choice",
    "grade_choice_batch",
    "grade_code",
    "grade_code_batch",
    "grade_math",
    "grade_math_batch",
    "grade_math_verify",
    "grade_math_verify_batch",
    "math_reward",
    "parse",
    "shutdown_workers",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _OF_CODE:
        from . import code

        return getattr(code, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
