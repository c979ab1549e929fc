"""Pairs of a reference and an answer, judged by workers: every pair gets its verdict within the time limit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed

from .verdict import CORRECT, UNREADABLE_REFERENCE, Verdict
from .workers import WorkerDied, WorkerNotStarted, WorkerOverran, shared_pool

Pair = tuple[str, str]
START_ATTEMPTS = 5


def verdict_of(reason: str, answer: str | None) -> Verdict:
    """The verdict that a comparison's words stand for."""
    failed = reason.startswith(UNREADABLE_REFERENCE)
    return Verdict(1.0 if reason == CORRECT else 0.0, reason, answer, failed)


def in_workers(pairs: list[Pair], timeout: float, grader: str = "math") -> Iterator[tuple[Pair, Verdict]]:
    """Yields (pair, verdict) as the workers finish."""
    if not pairs:
        return
    if len(pairs) == 1:
        yield pairs[0], _ask(*pairs[0], timeout, grader)
        return
    executor = ThreadPoolExecutor(min(len(pairs), shared_pool(grader).size), thread_name_prefix="grade")
    try:
        futures = {executor.submit(_ask, *pair, timeout, grader): pair for pair in pairs}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:  # on Ctrl-C: nothing new starts, and what runs ends within its limit
        executor.shutdown(wait=True, cancel_futures=True)


def _ask(reference: str, given: str, timeout: float, grader: str) -> Verdict:
    request = {"reference": reference, "prediction": given}
    deaths, starts = 0, 0
    while deaths < 2 and starts < START_ATTEMPTS:
        try:
            answer = shared_pool(grader).ask(request, timeout)
            if "failure" in answer:
                return Verdict.failure(answer["failure"], given)
            return verdict_of(answer["reason"], answer.get("answer", given))
        except WorkerOverran:
            return Verdict.failure(f"timed out after {timeout:g} s", given)
        except WorkerNotStarted as error:  # nothing to do with this answer
            ending, starts = str(error), starts + 1
            time.sleep(0.1 * 2**starts)
        except WorkerDied as error:
            ending, deaths = str(error), deaths + 1
    if starts == START_ATTEMPTS:
        return Verdict.failure(f"no grading worker could start: {ending}", given)
    # Once may be chance (the system ran out of memory elsewhere); the same answer twice is the answer's doing.
    return Verdict.failure(f"the grader's worker crashed on it: {ending}", given)
