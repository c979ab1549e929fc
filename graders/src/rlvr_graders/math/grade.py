"""Grades a final answer in mathematics: score 1 or 0, and why."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import ExitStack, closing
from decimal import Decimal
from typing import Any

from ..extract import Extractor, extractor
from ..pairs import in_workers, verdict_of
from ..reporting import Progress, reporter
from ..verdict import CORRECT, NO_ANSWER, WRONG, Verdict
from .characters import MAX_LENGTH
from .compare import judge
from .leaves import Algebra, Undecided
from .tokens import OutOfSteps, at_most

TIMEOUT = 5.0
"""Seconds of algebra one answer may cost."""
_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?")
QUICK_LENGTH, QUICK_STEPS = 300, 5_000
"""Characters (of answer and reference) and steps that are worked on in the calling process: a few milliseconds."""


def grade_math(
    completion: str, answer: str | int | float, *, timeout: float = TIMEOUT, extract: str | Extractor = "boxed"
) -> Verdict:
    r"""Judges a completion by its final answer.

    Args:
        completion: what the model wrote.
        answer: the reference answer, as text (LaTeX or plain) or a number.
        timeout: seconds that algebra may take; the limit holds from any thread.
        extract: where the final answer stands: "boxed" (the last balanced ``\boxed{}``), "answer_line", "boxed_or_line", "hash_line",
            "last_number", "whole", or a function from the completion to the answer (None: there is none).
    """
    return grade_math_batch([completion], [answer], timeout=timeout, extract=extract)[0]


def grade_math_batch(
    completions: Sequence[str],
    answers: Sequence[str | int | float],
    *,
    timeout: float = TIMEOUT,
    extract: str | Extractor = "boxed",
    progress: Progress = False,
) -> list[Verdict]:
    """Judges many completions, in parallel on the cores of this process; a pair that occurs twice is compared once.

    Args:
        completions: what the policy wrote.
        answers: one reference answer for each completion.
        timeout: as for `grade_math`.
        extract: as for `grade_math`.
        progress: True for a bar (needs rich), or a function that receives (done, total).
    """
    references, find = checked_rows(completions, answers, timeout), extractor(extract)
    verdicts: list[Verdict | None] = [None] * len(completions)
    open_pairs: dict[tuple[str, str], list[int]] = {}
    for row, (completion, reference) in enumerate(zip(completions, references, strict=True)):
        given = None
        try:
            given = find(completion)
            if given is None or not given.strip():
                verdicts[row] = Verdict(0.0, NO_ANSWER)
            else:
                verdicts[row] = _quick(reference, given)
        except (Undecided, OutOfSteps, RecursionError):
            open_pairs.setdefault((reference, str(given)), []).append(row)
        except Exception as error:
            verdicts[row] = Verdict.from_error(error, given)
    if progress or open_pairs:
        _work_out(verdicts, open_pairs, timeout, progress)
    return [verdict for verdict in verdicts if verdict is not None]


def _work_out(
    verdicts: list[Verdict | None], open_pairs: dict[tuple[str, str], list[int]], timeout: float, progress: Progress
) -> None:
    """The pairs that take algebra, in workers."""
    with ExitStack() as stack:
        report = reporter(progress, len(verdicts), stack)
        done = len(verdicts) - sum(map(len, open_pairs.values()))
        report(done)
        for pair, verdict in stack.enter_context(closing(in_workers(list(open_pairs), timeout))):
            for row in open_pairs[pair]:
                verdicts[row] = verdict
            done += len(open_pairs[pair])
            report(done)


def checked_rows(completions: Sequence[str], answers: Sequence[Any], timeout: float) -> list[str]:
    """The references as text; an error names what is wrong with the data, since every sample would fail."""
    for name, rows in (("completions", completions), ("answers", answers)):
        if not hasattr(rows, "__len__") or isinstance(rows, str | type):
            raise TypeError(f"{name}={rows!r:.60}: pass a list")
    if len(completions) != len(answers):
        raise ValueError(
            f"{len(completions)} completions but {len(answers)} answers: give one answer for each completion"
        )
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise ValueError(f"timeout={timeout} must be a positive number of seconds")
    for row, completion in enumerate(completions):
        if not isinstance(completion, str):
            raise TypeError(f"completions[{row}] is a {type(completion).__name__}: pass the text of the response")
    return [_reference(answer, row) for row, answer in enumerate(answers)]


def _reference(answer: Any, row: int) -> str:
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise TypeError(f"answers[{row}] is a {type(answer).__name__}: pass the reference answer as text or a number")
    if isinstance(answer, float) and not math.isfinite(answer):
        raise ValueError(f"answers[{row}] is {answer}: a problem without a reference answer cannot be graded")
    text = str(answer).rpartition("####")[2].strip()  # GSM8K's own rows: the answer behind its mark
    if not text:
        raise ValueError(f"answers[{row}] is empty: a problem without a reference answer cannot be graded")
    return text


def _quick(reference: str, given: str) -> Verdict:
    """The verdict where it takes little work. What is long or costs more steps is left to a worker, under its time limit."""
    if len(given) > MAX_LENGTH:
        return Verdict(0.0, f"unparsable answer: it has {len(given)} characters, more than {MAX_LENGTH}", given)
    if _NUMBER.fullmatch(reference) and _NUMBER.fullmatch(given):
        same = reference == given or Decimal(reference) == Decimal(given)
        return verdict_of(CORRECT if same else WRONG, given)
    if len(reference) + len(given) > QUICK_LENGTH:
        raise Undecided
    with at_most(QUICK_STEPS):
        return verdict_of(judge(reference, given, Algebra()), given)
