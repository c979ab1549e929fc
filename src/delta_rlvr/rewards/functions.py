"""Reward functions for TRL: plain callables `(prompts, completions, completion_ids=None, **columns) -> list[float]`.

Each drops into `GRPOTrainer(reward_funcs=[...])` of any TRL script. They are objects rather than closures, so that they can be
pickled to another process, and each keeps the words behind its last rewards in `last_verdicts`, for the rollouts that a run
writes down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .choice import grade_choice_batch
from .extract import Extractor, extractor
from .math.grade import TIMEOUT, grade_math_batch
from .shaping import Form, SoftOverlong, check_form
from .verdict import Verdict

OVERLONG = "overlong_reward"
"""What the overlong penalty is logged under."""

TRLReward = Callable[..., list[float]]
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
        extractor(extract)  # an unknown name is an error now, not at the first step

    def answers(self, columns: Columns, count: int) -> list[Any]:
        answers = self.needed(self.column, columns)
        if isinstance(answers, str) or len(answers) != count:
            raise ValueError(
                f"{self.__name__}: {count} completions but column {self.column!r} is not a list of as many answers"
            )
        return list(answers)

    def counts(self, verdicts: list[Verdict]) -> dict[str, int]:
        unanswered = sum(verdict.reason == "no final answer" for verdict in verdicts)
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
        self,
        *,
        column: str = "answer",
        extract: str | Extractor = "boxed_or_line",
        name: str = "choice_reward",
    ) -> None:
        super().__init__(name, column, extract)

    def judge(self, completions: list[str], lengths: list[int] | None, columns: Columns) -> list[Verdict]:
        return grade_choice_batch(completions, self.answers(columns, len(completions)), extract=self.extract)


class FormatReward(RewardFunction):
    """1 where the completion has the form asked for, else 0: see `shaping.check_form`."""

    def __init__(self, form: Form = "boxed", *, name: str = "format_reward") -> None:
        super().__init__(name)
        check_form("", form)  # an unknown form is an error now
        self.form = form

    def judge(self, completions: list[str], lengths: list[int] | None, columns: Columns) -> list[Verdict]:
        return [check_form(completion, self.form) for completion in completions]


class OverlongReward(RewardFunction):
    """DAPO's soft overlong penalty, 0 or less: see `shaping.SoftOverlong`."""

    def __init__(self, settings: SoftOverlong, *, name: str = OVERLONG) -> None:
        super().__init__(name)
        self.settings = settings

    def judge(self, completions: list[str], lengths: list[int] | None, columns: Columns) -> list[Verdict]:
        if lengths is None:
            raise ValueError(f"{self.__name__} counts tokens: pass completion_ids (TRL does)")
        if len(lengths) != len(completions):
            raise ValueError(
                f"{self.__name__}: {len(completions)} completions but {len(lengths)} rows of completion_ids"
            )
        return [self.settings.verdict(length) for length in lengths]

    def counts(self, verdicts: list[Verdict]) -> dict[str, int]:
        return {"penalised": sum(verdict.score < 0 for verdict in verdicts)}


class WeightedReward(RewardFunction):
    """The weighted sum of several reward functions (ours or any TRL ones), each part logged under its own name.

    TRL can weigh a list of rewards itself (`reward_weights`); this is for one reward where the engine takes one, as verl does.
    """

    def __init__(self, parts: Sequence[tuple[TRLReward, float]], *, name: str = "reward") -> None:
        super().__init__(name)
        if not parts:
            raise ValueError("parts is empty: give at least one (reward function, weight)")
        self.parts = [(part, float(weight)) for part, weight in parts]
        self.names = [getattr(part, "__name__", type(part).__name__) for part, _ in self.parts]
        if len(set(self.names)) < len(self.names):
            raise ValueError(
                f"two parts have the same name in {self.names}: give them different ones (name=...)"
            )
        self.last_parts: dict[str, list[float]] = {}

    def __call__(
        self,
        prompts: Any = None,
        completions: Sequence[Any] = (),
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float]:
        hooks = {"log_extra": log_extra, "log_metric": log_metric}
        columns |= {name: hook for name, hook in hooks.items() if hook is not None}
        totals = [0.0] * len(completions)
        reasons: list[list[str]] = [[] for _ in completions]
        answers: list[str | None] = [None] * len(completions)
        failures = [False] * len(completions)
        self.last_parts = {}
        for (part, weight), name in zip(self.parts, self.names, strict=True):
            scores = part(prompts=prompts, completions=completions, completion_ids=completion_ids, **columns)
            if len(scores) != len(completions):
                raise ValueError(f"{name} returned {len(scores)} rewards for {len(completions)} completions")
            self.last_parts[name] = [float(score) for score in scores]
            verdicts = list(getattr(part, "last_verdicts", None) or [None] * len(scores))
            for row, (score, verdict) in enumerate(zip(scores, verdicts, strict=True)):
                totals[row] += weight * score
                reasons[row].append(f"{name} {score:g}" + (f" ({verdict.reason})" if verdict else ""))
                answers[row] = answers[row] or (verdict.answer if verdict else None)
                failures[row] |= verdict is not None and verdict.failed
            if log_metric is not None:
                log_metric(f"{self.__name__}/{name}", sum(self.last_parts[name]) / max(len(scores), 1))
        self.last_verdicts = [
            Verdict(total, "; ".join(why), answer, failed)
            for total, why, answer, failed in zip(totals, reasons, answers, failures, strict=True)
        ]
        return totals


math_reward = MathReward()
"""`MathReward` with its defaults, for `reward_funcs=[math_reward]`."""
