"""Grade programs: `grade_code(completion, tests)`, a batch of them, and TRL's reward function. See docs/rewards_code.md."""

from __future__ import annotations

from delta_rlvr.rewards.code.cases import AssertionTests, Call, CodeTests, FunctionTests, Run, StdioTests
from delta_rlvr.rewards.code.datasets import parse_tests
from delta_rlvr.rewards.code.grader import CodeReward, code_reward, grade_code, grade_code_batch
from delta_rlvr.rewards.code.sandbox.errors import SandboxError, SandboxUnavailable
from delta_rlvr.rewards.code.settings import CodeSettings

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
