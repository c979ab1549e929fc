"""What every grader returns: a score and the reason for it in words."""

from __future__ import annotations

from dataclasses import dataclass

CORRECT, WRONG, NO_ANSWER = "correct", "wrong answer", "no final answer"
UNREADABLE_REFERENCE = "unparsable reference answer"


def printable(text: str) -> str:
    """The text on one line, with escapes for line breaks and all else that steers a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True)
class Verdict:
    """The judgement on one completion."""

    score: float
    """1.0 for right, 0.0 for not right."""
    reason: str
    """Why, in plain words: "correct", "wrong answer", "no final answer", "timed out after 5 s", ..."""
    answer: str | None = None
    """What the grader took as the completion's final answer, as text; None where it found none."""
    failed: bool = False
    """Whether the grader itself could not judge (a time limit, a crash); the score is then 0. Rewards log the share of these."""

    def __post_init__(self) -> None:
        # A sample's own words may stand in it: escaped, they can neither steer a terminal nor break a log's line.
        object.__setattr__(self, "reason", printable(self.reason))

    @classmethod
    def failure(cls, reason: str, answer: str | None = None) -> Verdict:
        """The verdict on a completion that could not be judged."""
        return cls(0.0, reason, answer, failed=True)

    @classmethod
    def from_error(cls, error: Exception, answer: str | None = None) -> Verdict:
        """The same, for an error that no one expected: nothing that a sample says may end a run."""
        return cls.failure(f"the grader failed: {type(error).__name__}: {str(error)[:200]}", answer)
