"""One verifiable problem, wherever it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)  # a set may have 100,000
class Problem:
    """A prompt and what verifies its responses."""

    id: str
    """Unique within its task or benchmark, and the same in every run."""
    prompt: str | Sequence[dict[str, str]]
    """What the model is given: plain text, or chat messages ({"role", "content"})."""
    answer: Any
    """What the grader compares with: a final answer as text, or the tests of a program."""
    grader: str
    """Which grader judges it: "math", "code", "choice", or a task's own name."""
    meta: dict[str, Any] = field(default_factory=dict)
    """Whatever else is known of it: source, difficulty, what a task needs for its own grading; under "extract", where its
    answer stands in a response (a name known to `rlvr_graders.extract`)."""
