"""Reward functions for TRL: plain callables `(prompts, completions, completion_ids=None, **columns) -> list[float]`.

Each drops into `GRPOTrainer(reward_funcs=[...])` of any TRL script. They are objects rather than closures, so that they can be
pickled to another process, and each keeps the words behind its last rewards in `last_verdicts`, for the rollouts that a run
writes down.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .choice import grade_choice_batch
from .extract import Extractor, extractor
from .math.grade import TIMEOUT, grade_math_batch
from .verdict import NO_ANSWER, Verdict

Columns = Mapping[str, Any]
"""What the data set has for each completion, by the column's name."""


def completion_text(completion: Any) -> str:
    """The text of a completion: itself, or the last assistant message's of a chat."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Sequence) and all(isinstance(message, Mapping) for message in completion):
        messages: list[Mapping[str, Any]] = list(completion)
        spoken = [message for message in messages if message.get("role", "assistant") == "assistant"]
        content = spoken[-1].get("content") if spoken else None
        if content is None or isinstance(content, str):
            return content or ""
        if isinstance(content, Sequence):  # parts: [{"type": "text", "text": ...}, ...]
            return "".join(part.get("text", "") for part in content if part.get("type", "text") == "text")
    raise TypeError(
        f"a completion is text or a list of chat messages, not {type(completion).__name__}: {str(completion)[:80]!r}"
    )


class RewardFunction:
    """What TRL calls: subclasses say how completions are judged."""

    __name__: str
    """TRL logs the reward under this name."""
    looks_for: str | None = None
    """What an answer is found by; None where responses without one need no warning."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.last_verdicts: list[Verdict] = []

    def judge(self, completions: list[str], lengths: list[int] | None, columns: Columns) -> list[Verdict]:
        """One verdict for each completion; `lengths` in tokens, where the caller knows them."""
        raise NotImplementedError

    def __call__(
        self,
        prompts: Any = None,
        completions: Sequence[Any] = (),
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float]:
        texts = [completion_text(completion) for completion in completions]
        lengths = None if completion_ids is None else [len(ids) for ids in completion_ids]
        verdicts = self.judge(texts, lengths, columns)
        self.last_verdicts = verdicts
        if self.looks_for and verdicts and all(verdict.reason == NO_ANSWER for verdict in verdicts):
            none = (
                f"{self.__name__} found no answer in any of {len(verdicts)} responses (it looks for {self.looks_for})"
            )
            warnings.warn(none, stacklevel=2)
        if log_extra is not None:
            log_extra(f"{self.__name__}_reason", [verdict.reason for verdict in verdicts])
        if log_metric is not None:
            self.log(verdicts, log_metric)
        return [verdict.score for verdict in verdicts]

    def log(self, verdicts: list[Verdict], log_metric: Callable[[str, float], None]) -> None:
        """Scalars beside the mean reward, which TRL logs itself."""
        for name, count in self.counts(verdicts).items():
            log_metric(f"{self.__name__}/{name}", count / max(len(verdicts), 1))

    def counts(self, verdicts: list[Verdict]) -> dict[str, int]:
        """How many verdicts are of a kind whose share is logged."""
        return {}

    def needed(self, column: str, columns: Columns) -> Any:
        """A column that the data set must have."""
        if columns.get(column) is None:
            known = sorted(name for name in columns if name != "trainer_state")
            raise ValueError(
                f"{self.__name__} needs the column {column!r} in the data set; it has {known}. "
                "Rename yours or build the reward with column=..."
            )
        return columns[column]


class AnswerReward(RewardFunction):
    """Judges final answers against a column of the data set."""

    def __init__(self, name: str, column: str, extract: str | Extractor) -> None:
        super().__init__(name)
        self.column = column
        self.extract = extract
        self.looks_for = (
            r"\boxed{}" if extract == "boxed" else f"answers by extract={getattr(extract, '__name__', extract)!r}"
        )
        extractor(extract)  # an unknown name is an error now, not at the first step

    def answers(self, columns: Columns, count: int) -> list[Any]:
        answers = self.needed(self.column, columns)
        if isinstance(answers, str) or not hasattr(answers, "__len__") or len(answers) != count:
            raise ValueError(
                f"{self.__name__}: {count} completions but column {self.column!r} is not a list of as many answers"
            )
        return list(answers)

    def counts(self, verdicts: list[Verdict]) -> dict[str, int]:
        unanswered = sum(verdict.reason == NO_ANSWER for verdict in verdicts)
        return {"no_answer": unanswered, "not_graded": sum(verdict.failed for verdict in verdicts)}


class MathReward(AnswerReward):
    """1 where the final answer is right, else 0: `grade_math` on the column `answer`."""

    def __init__(
        self,
        *,
        column: str = "answer",
        extract: str | Extractor = "boxed",
        timeout: float = TIMEOUT,
        name: str = "math_reward",
    ) -> None:
        super().__init__(name, column, extract)
        self.timeout = timeout

    def judge(self, completions: list[str], lengths: list[int] | None, columns: Columns) -> list[Verdict]:
        answers = self.answers(columns, len(completions))
        return grade_math_batch(completions, answers, timeout=self.timeout, extract=self.extract)


class ChoiceReward(AnswerReward):
    """1 where the right letter is chosen, else 0: `grade_choice` on the column `answer`."""

    def __init__(
        self, *, column: str = "answer", extract: str | Extractor = "boxed_or_line", name: str = "choice_reward"
    ) -> None:
        super().__init__(name, column, extract)

    def judge(self, completions: list[str], lengths: list[int] | None, columns: Columns) -> list[Verdict]:
        return grade_choice_batch(completions, self.answers(columns, len(completions)), extract=self.extract)


math_reward = MathReward()
"""`MathReward` with its defaults, for `reward_funcs=[math_reward]`."""
