"""Pairs of a reference and an answer, judged by workers: every pair gets its verdict within the time limit."""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, as_completed

from .verdict import CORRECT, UNREADABLE_REFERENCE, Verdict
from .workers import WorkerDied, WorkerLost, WorkerOverran, shared_pool

Pair = tuple[str, str]
ATTEMPTS = 16
"""How often an answer is put to a worker, where one after the other is lost: within a quarter of a minute."""


def verdict_of(reason: str, answer: str | None) -> Verdict:
    """The verdict that a comparison's words stand for."""
    failed = reason.startswith(UNREADABLE_REFERENCE)
    return Verdict(1.0 if reason == CORRECT else 0.0, reason, answer, failed)


def in_workers(
    pairs: list[Pair], timeout: float, grader: str = "math", stop: threading.Event | None = None
) -> Generator[tuple[Pair, Verdict], None, None]:
    """Yields (pair, verdict) as the workers finish. Closing it, or `stop`, ends those that are at work."""
    if not pairs:
        return
    if len(pairs) == 1:
        yield pairs[0], _ask(*pairs[0], timeout, grader, stop)
        return
    stop = stop or threading.Event()
    executor = ThreadPoolExecutor(min(len(pairs), shared_pool(grader).size), thread_name_prefix="grade")
    try:
        futures = {executor.submit(_ask, *pair, timeout, grader, stop): pair for pair in pairs}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:  # on Ctrl-C: nothing new starts, and what runs is ended
        stop.set()
        executor.shutdown(wait=True, cancel_futures=True)


def _ask(reference: str, given: str, timeout: float, grader: str, stop: threading.Event | None) -> Verdict:
    request = {"reference": reference, "prediction": given}
    deaths, losses, ending = 0, 0, ""
    while deaths < 2 and losses < ATTEMPTS:
        try:
            answer = shared_pool(grader).ask(request, timeout, stop)
            if "failure" in answer:
                return Verdict.failure(answer["failure"], given)
            return verdict_of(answer["reason"], answer.get("answer", given))
        except WorkerOverran:
            return Verdict.failure(f"timed out after {timeout:g} s", given)
        except WorkerLost as error:  # nothing to do with this answer
            ending, losses = str(error), losses + 1
            (stop or threading.Event()).wait(min(0.1 * 2**losses, 1.0) if losses < ATTEMPTS else 0)
        except WorkerDied as error:
            ending, deaths = str(error), deaths + 1
    if losses == ATTEMPTS:
        return Verdict.failure(f"every grading worker was lost: {ending}", given)
    # Once may be chance; the same answer twice is the answer's doing.
    return Verdict.failure(f"the grader's worker crashed on it: {ending}", given)
