"""TRL reward functions beside correctness: a penalty for length, a reward for format, a weighted sum.

The distribution `rlvr_graders` judges correctness.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from delta_rlvr.bounds import check_types, typed
from delta_rlvr.files import is_number
from rlvr_graders.extract import answer_line, last_boxed
from rlvr_graders.functions import Columns, RewardFunction
from rlvr_graders.verdict import Verdict

OVERLONG = "overlong_reward"
"""The name of the overlong penalty in logs."""

TRLReward = Callable[..., list[float]]

Form = Literal["boxed", "one_box", "answer_line", "think"]
_THINK = re.compile(r"\s*<think>(?P<thoughts>.*?)</think>(?P<answer>.*)", re.DOTALL)


@dataclass(frozen=True)
class SoftOverlong:
    """DAPO's soft overlong punishment (arXiv 2503.14476, Eq. 13): 0 up to the buffer, then linear, `-factor` at the limit.

    The DelTA authors' script turns it on (buffer 4096, factor 1.0, with responses of at most 20480 tokens); the paper does not
    mention it. Here it is off by default.
    """

    max_length: int
    """The number of tokens at which the penalty is full."""
    buffer: int = 4096
    """The penalty begins so many tokens before `max_length`."""
    factor: float = 1.0
    """The full penalty, as a positive number."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self))
        if self.buffer <= 0:
            raise ValueError(f"buffer={self.buffer} must be positive; for no penalty leave the reward out")
        if self.max_length <= self.buffer:
            raise ValueError(
                f"max_length={self.max_length} must be larger than buffer={self.buffer}: every response would be penalised"
            )
        if not self.factor > 0:
            raise ValueError(f"factor={self.factor} must be positive: it is the size of the penalty")

    def penalty(self, length: int) -> float:
        """Return the number, from `-factor` to 0, that is added to the reward of a response of `length` tokens."""
        over = length - (self.max_length - self.buffer)
        return -self.factor * min(max(over, 0), self.buffer) / self.buffer

    def verdict(self, length: int) -> Verdict:
        """Return the penalty with its reason."""
        penalty = self.penalty(length)
        if penalty == 0.0:
            return Verdict(0.0, "within the length limit")
        begins = self.max_length - self.buffer
        return Verdict(penalty, f"overlong: {length} tokens, the penalty begins at {begins}")


def check_form(completion: str, form: Form) -> Verdict:
    r"""Return 1 where the completion has the form, else 0 and what is missing.

    "boxed" needs a balanced ``\boxed{}`` that is not empty, "one_box" exactly one of them, "answer_line" a last line "Answer: X",
    and "think" one ``<think>...</think>`` at the start, with text inside and an answer after it.
    """
    if form == "boxed":
        return _form(bool(last_boxed(completion)), r"no filled \boxed{}")
    if form == "one_box":
        count = len(re.findall(r"\\boxed(?![A-Za-z])", completion))
        return _form(bool(last_boxed(completion)) and count == 1, f"{count} boxes where one is asked for")
    if form == "answer_line":
        return _form(answer_line(completion) is not None, 'the last line is not "Answer: ..."')
    if form == "think":
        match = _THINK.fullmatch(completion)
        once = completion.count("<think>") == completion.count("</think>") == 1
        good = match is not None and once and bool(match["thoughts"].strip() and match["answer"].strip())
        return _form(good, "not of the form <think>thoughts</think>answer")
    raise ValueError(f'form={form!r} is not known; use "boxed", "one_box", "answer_line" or "think"')


def _form(good: bool, missing: str) -> Verdict:
    return Verdict(1.0, "well formed") if good else Verdict(0.0, missing)


class FormatReward(RewardFunction):
    """A reward of 1 where the completion has the form, else 0: see `check_form`."""

    def __init__(self, form: Form = "boxed", *, name: str = "format_reward") -> None:
        super().__init__(name)
        check_form("", form)  # refuses an unknown form
        self.form = form

    def judge(self, completions: list[str], lengths: list[int] | None, columns: Columns) -> list[Verdict]:
        return [check_form(completion, self.form) for completion in completions]


class OverlongReward(RewardFunction):
    """A reward of 0 or less, DAPO's soft overlong penalty: see `SoftOverlong`."""

    @typed
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
    """The weighted sum of several TRL reward functions; each part is logged under its name.

    TRL can weigh a list of rewards itself (`reward_weights`); this class is for engines that take one reward, such as verl.
    """

    def __init__(self, parts: Sequence[tuple[TRLReward, float]], *, name: str = "reward") -> None:
        super().__init__(name)
        if not isinstance(parts, Sequence) or not parts:
            raise ValueError(f"parts={parts!r:.60}: give at least one (reward function, weight)")
        for one in parts:
            if not (isinstance(one, tuple | list) and len(one) == 2 and is_number(one[1])):
                raise ValueError(
                    f"parts holds {one!r:.80}: give pairs of a reward function and its weight, a finite number"
                )
        self.parts = [(part, float(weight)) for part, weight in parts]
        self.names = [getattr(part, "__name__", type(part).__name__) for part, _ in self.parts]
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"two parts have the same name in {self.names}: give them different ones (name=...)")
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
