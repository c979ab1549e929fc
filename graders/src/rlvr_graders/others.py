"""Other graders of mathematics behind the same `Verdict`: math-verify, in workers that can be killed, and the same text.

math-verify's own limits are alarms, which work in a main thread alone and end no computation in C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from .extract import Extractor, extractor
from .functions import AnswerReward, Columns
from .math.grade import TIMEOUT, checked_rows
from .pairs import in_workers
from .reporting import Progress, reporter
from .verdict import CORRECT, NO_ANSWER, UNREADABLE_REFERENCE, WRONG, Verdict


def grade_math_verify(completion: str, answer: str | int | float, **options: Any) -> Verdict:
    """math-verify's judgement of one completion: see `grade_math_verify_batch`."""
    return grade_math_verify_batch([completion], [answer], **options)[0]


def grade_math_verify_batch(
    completions: Sequence[str],
    answers: Sequence[str | int | float],
    *,
    timeout: float = TIMEOUT,
    extract: str | Extractor | None = None,
    progress: Progress = False,
) -> list[Verdict]:
    r"""What math-verify says: `verify(parse(answer), parse(completion))`, with the reference put into a box as verl does.

    Args:
        completions: what the policy wrote.
        answers: one reference answer for each completion.
        timeout: seconds that parsing and comparing one completion may take together.
        extract: None: math-verify looks for the answer in the whole completion, by its defaults. Else as for `grade_math`, and
            math-verify is given what was found, in a box.
        progress: as for `grade_math_batch`.
    """
    references = checked_rows(completions, answers, timeout)
    find = None if extract is None else extractor(extract)
    verdicts: list[Verdict] = [Verdict(0.0, NO_ANSWER)] * len(completions)
    rows: dict[tuple[str, str], list[int]] = {}
    for row, (completion, reference) in enumerate(zip(completions, references, strict=True)):
        try:
            text = completion if find is None else _boxed(find(completion))
        except Exception as error:
            verdicts[row] = Verdict.from_error(error)
            continue
        if text:
            rows.setdefault((reference, text), []).append(row)
    with ExitStack() as stack:
        report = reporter(progress, len(completions), stack)
        done = len(completions) - sum(map(len, rows.values()))
        for pair, verdict in stack.enter_context(closing(in_workers(list(rows), timeout, "math-verify"))):
            for row in rows[pair]:
                verdicts[row] = verdict
            done += len(rows[pair])
            report(done)
    return verdicts


def _boxed(answer: str | None) -> str:
    return rf"$\boxed{{{answer.strip()}}}$" if answer and answer.strip() else ""


def judge_by_math_verify() -> Callable[[str, str], dict[str, Any]]:
    """For a worker: (reference, completion) -> the words of a verdict."""
    import logging

    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it warns that its own limits are off

    def judge(reference: str, completion: str) -> dict[str, Any]:
        gold = parse(_boxed(reference), parsing_timeout=None)
        if not gold:
            return {"reason": f"{UNREADABLE_REFERENCE}: math-verify reads nothing in it", "answer": None}
        given = parse(completion, parsing_timeout=None)
        if not given:
            return {"reason": NO_ANSWER, "answer": None}
        # parse() gives the value and, behind it, the text that it was read from.
        right = verify(gold, given, timeout_seconds=None)
        return {"reason": CORRECT if right else WRONG, "answer": str(given[-1])[:1000]}

    return judge


def grade_exact_batch(
    completions: Sequence[str], answers: Sequence[str | int | float], *, extract: str | Extractor = "boxed"
) -> list[Verdict]:
    """Right where the answer is the reference, letter by letter but for blanks."""
    references, find = checked_rows(completions, answers, TIMEOUT), extractor(extract)
    verdicts = []
    for completion, reference in zip(completions, references, strict=True):
        given = find(completion)
        same = given is not None and "".join(given.split()) == "".join(reference.split())
        reason = NO_ANSWER if not given else CORRECT if same else WRONG
        verdicts.append(Verdict(float(same), reason, given))
    return verdicts


class MathVerifyReward(AnswerReward):
    """1 where math-verify takes the answer for right, else 0: `grade_math_verify` on the column `answer`."""

    def __init__(
        self,
        *,
        column: str = "answer",
        extract: str | Extractor | None = None,
        timeout: float = TIMEOUT,
        name: str = "math_verify_reward",
    ) -> None:
        super().__init__(name, column, extract or "whole")
        self.by_itself = extract is None
        self.timeout = timeout

    def judge(self, completions: list[str], lengths: list[int] | None, columns: Columns) -> list[Verdict]:
        answers = self.answers(columns, len(completions))
        extract = None if self.by_itself else self.extract
        return grade_math_verify_batch(completions, answers, timeout=self.timeout, extract=extract)
