"""Grades a final answer in mathematics: score 1 or 0, and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from typing import Any

from ..extract import Extractor, extractor
from ..reporting import Progress, reporter
from ..verdict import CORRECT, Verdict
from ..workers import WorkerDied, WorkerNotStarted, WorkerOverran, shared_pool
from .characters import MAX_LENGTH
from .compare import UNREADABLE_REFERENCE, judge
from .leaves import Algebra, Undecided
from .tokens import OutOfSteps, at_most

TIMEOUT = 5.0
"""Seconds of algebra one answer may cost."""
QUICK_LENGTH, QUICK_STEPS = 300, 5_000
"""Characters (of answer and reference) and steps that are worked on in the calling process: a few milliseconds."""
START_ATTEMPTS = 5
NO_ANSWER = Verdict(0.0, "no final answer")


def grade_math(
    completion: str,
    answer: str | int | float,
    *,
    timeout: float = TIMEOUT,
    extract: str | Extractor = "boxed",
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
    if len(completions) != len(answers):
        raise ValueError(
            f"{len(completions)} completions but {len(answers)} answers: give one answer for each completion"
        )
    if not timeout > 0:
        raise ValueError(f"timeout={timeout} must be a positive number of seconds")
    find = extractor(extract)
    verdicts: list[Verdict | None] = [None] * len(completions)
    open_pairs: dict[tuple[str, str], list[int]] = {}
    for row, (completion, answer) in enumerate(zip(completions, answers, strict=True)):
        reference = _reference(answer, row)
        if not isinstance(completion, str):
            raise TypeError(
                f"completions[{row}] is a {type(completion).__name__}: pass the text of the response"
            )
        given = None
        try:
            given = find(completion)
            if given is None or not given.strip():
                verdicts[row] = NO_ANSWER
            else:
                verdicts[row] = _quick(reference, given)
        except (Undecided, OutOfSteps, RecursionError):
            open_pairs.setdefault((reference, str(given)), []).append(row)
        except Exception as error:
            verdicts[row] = Verdict.from_error(error, given)
    with ExitStack() as stack:
        report = reporter(progress, len(completions), stack)
        done = len(completions) - sum(map(len, open_pairs.values()))
        report(done)
        for pair, verdict in _by_algebra(list(open_pairs), timeout):
            for row in open_pairs[pair]:
                verdicts[row] = verdict
            done += len(open_pairs[pair])
            report(done)
    return [verdict for verdict in verdicts if verdict is not None]


def _reference(answer: Any, row: int) -> str:
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise TypeError(
            f"answers[{row}] is a {type(answer).__name__}: pass the reference answer as text or a number"
        )
    text = str(answer).strip()
    if not text:
        raise ValueError(f"answers[{row}] is empty: a problem without a reference answer cannot be graded")
    return text


def _quick(reference: str, given: str) -> Verdict:
    """The verdict where it takes little work. What is long or costs more steps is left to a worker, under its time limit."""
    if len(given) > MAX_LENGTH:
        return Verdict(
            0.0, f"unparsable answer: it has {len(given)} characters, more than {MAX_LENGTH}", given
        )
    if len(reference) + len(given) > QUICK_LENGTH:
        raise Undecided
    with at_most(QUICK_STEPS):
        return _verdict(judge(reference, given, Algebra()), given)


def _verdict(reason: str, given: str) -> Verdict:
    failed = reason.startswith(UNREADABLE_REFERENCE)
    return Verdict(1.0 if reason == CORRECT else 0.0, reason, given, failed)


def _by_algebra(pairs: list[tuple[str, str]], timeout: float) -> Any:
    """Yields (pair, verdict) as the workers finish."""
    if not pairs:
        return
    if len(pairs) == 1:
        yield pairs[0], _ask(*pairs[0], timeout)
        return
    executor = ThreadPoolExecutor(min(len(pairs), shared_pool().size), thread_name_prefix="grade")
    try:
        futures = {executor.submit(_ask, *pair, timeout): pair for pair in pairs}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:  # on Ctrl-C: nothing new starts, and what runs ends within its limit
        executor.shutdown(wait=True, cancel_futures=True)


def _ask(reference: str, given: str, timeout: float) -> Verdict:
    request = {"reference": reference, "prediction": given}
    deaths, starts = 0, 0
    while deaths < 2 and starts < START_ATTEMPTS:
        try:
            answer = shared_pool().ask(request, timeout)
            if "failure" in answer:
                return Verdict.failure(answer["failure"], given)
            return _verdict(answer["reason"], given)
        except WorkerOverran:
            return Verdict.failure(f"timed out after {timeout:g} s", given)
        except (
            WorkerNotStarted
        ) as error:  # another answer's worker may have been killed with it: nothing to do with this one
            ending, starts = str(error), starts + 1
            time.sleep(0.1 * 2**starts)
        except WorkerDied as error:
            ending, deaths = str(error), deaths + 1
    if starts == START_ATTEMPTS:
        return Verdict.failure(f"no grading worker could start: {ending}", given)
    # Once may be chance (the system ran out of memory elsewhere); the same answer twice is the answer's doing.
    return Verdict.failure(f"the grader's worker crashed on it: {ending}", given)
