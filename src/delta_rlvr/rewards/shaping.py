"""What a reward may add beside correctness: a penalty for length, a reward for form. Pure functions and their settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .extract import answer_line, last_boxed
from .verdict import Verdict

Form = Literal["boxed", "one_box", "answer_line", "think"]
_THINK = re.compile(r"\s*<think>(?P<thoughts>.*?)</think>(?P<answer>.*)", re.DOTALL)


@dataclass(frozen=True)
class SoftOverlong:
    """DAPO's soft overlong punishment (arXiv 2503.14476, Eq. 13): nothing up to the buffer, then linear, `-factor` at the limit.

    The DelTA authors' script turns it on (buffer 4096, factor 1.0, with responses of at most 20480 tokens); the paper does not
    mention it. Here it is off unless it is asked for.
    """

    max_length: int
    """Longest response in tokens: the penalty is full from here on."""
    buffer: int = 4096
    """How many tokens before `max_length` the penalty begins."""
    factor: float = 1.0
    """The full penalty, as a positive number."""

    def __post_init__(self) -> None:
        if self.buffer <= 0:
            raise ValueError(f"buffer={self.buffer} must be positive; leave the penalty out to have none")
        if self.max_length <= self.buffer:
            raise ValueError(
                f"max_length={self.max_length} must be larger than buffer={self.buffer}: every response would be penalised"
            )
        if not self.factor > 0:
            raise ValueError(f"factor={self.factor} must be positive: it is the size of the penalty")

    def penalty(self, length: int) -> float:
        """What is added to the reward of a response of `length` tokens: 0 or less, never below `-factor`."""
        over = length - (self.max_length - self.buffer)
        return -self.factor * min(max(over, 0), self.buffer) / self.buffer

    def verdict(self, length: int) -> Verdict:
        """The penalty with its reason."""
        penalty = self.penalty(length)
        if penalty == 0.0:
            return Verdict(0.0, "within the length limit")
        begins = self.max_length - self.buffer
        return Verdict(penalty, f"overlong: {length} tokens, the penalty begins at {begins}")


def check_form(completion: str, form: Form) -> Verdict:
    r"""1 where the completion has the form, else 0 and what is missing.

    "boxed": a balanced ``\boxed{}`` with something in it. "one_box": exactly one. "answer_line": the last line is "Answer: X".
    "think": ``<think>...</think>`` once, at the start, with thoughts inside and an answer after it.
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
