"""Grade programs: `grade_code(completion, tests)`, a batch of them, and TRL's reward function. See graders/docs/code.md."""

from __future__ import annotations

from rlvr_graders.code.cases import AssertionTests, Call, CodeTests, FunctionTests, Run, StdioTests
from rlvr_graders.code.datasets import parse_tests
from rlvr_graders.code.grader import CodeReward, code_reward, grade_code, grade_code_batch
from rlvr_graders.code.sandbox.errors import SandboxError, SandboxUnavailable
from rlvr_graders.code.settings import CodeSettings

__all__ = [
    "AssertionTests",
    "Call",
    "CodeReward",
    "CodeSettings",
    "CodeTests",
    "FunctionTests",
    "Run",
    "SandboxError",
    "SandboxUnavailable",
    "StdioTests",
    "code_reward",
    "grade_code",
    "grade_code_batch",
    "parse_tests",
]
