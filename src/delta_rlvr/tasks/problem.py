"""The record of one verifiable problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)  # slots: a data set may have 100,000
class Problem:
    """A prompt and what its responses are verified with."""

    id: str
    """Unique within the task or benchmark, and the same in every run."""
    prompt: str | Sequence[dict[str, str]]
    """Plain text, or chat messages ({"role", "content"})."""
    answer: Any
    """What the grader compares with: a final answer as text, or the tests of a program."""
    grader: str
    """The grader's name: "math", "code", "choice", or that of a task."""
    meta: dict[str, Any] = field(default_factory=dict)
    """Further data: source, difficulty, what a task's own grader needs. "extract" says where the answer stands in a response (a name
    known to `rlvr_graders.extract`)."""
