"""What every grader returns: a score and the reason for it in words."""

from __future__ import annotations

from dataclasses import dataclass

CORRECT, WRONG = "correct", "wrong answer"


@dataclass(frozen=True)
class Verdict:
    """The judgement on one completion."""

    score: float
    """1.0 for right, 0.0 for not right."""
    reason: str
    """Why, in plain words: "correct", "wrong answer", "no final answer", "timed out after 5 s", ..."""
    answer: str | None = None
    """What the grader took as the completion's final answer, as text; None where it found none."""
