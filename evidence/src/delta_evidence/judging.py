"""Verdicts and decisive tokens of many responses at once, in as many processes as it pays to have."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from delta_rlvr.models.token_texts import token_texts
from delta_rlvr.tasks import Problem, Task, decisive_tokens
from delta_rlvr.tasks.problem_set import ProblemSet
from rlvr_graders.workers import usable_cores


@dataclass(frozen=True)
class Asked:
    """What one policy answered."""

    task: Task
    problems: Sequence[Problem]
    copies: int
    """Responses to each problem, side by side."""
    ids: Sequence[list[int]]
    """The responses' tokens, the end token included."""
    decisive: bool = False
    """Whether the decisive tokens are wanted."""


@dataclass(frozen=True)
class Judged:
    """What became of one policy's responses."""

    texts: list[str]
    correct: list[float]
    decisive: list[list[int]] | None
    """For each token of each response 1 if it decided, else 0."""


def knows_decisive(task: Task) -> bool:
    """Whether the task can tell which tokens decided a response."""
    return task.decisive(task.problems("train", 1)[0], "") is not None


MOST_JUDGES = 16
"""Processes that judge, if nothing else is said: more would cost more to start than they save."""


def judges_beside(device: str) -> int:
    """Processes that judge while this device works, if nothing else is said. A CPU has the policy itself to do."""
    return 1 if device.partition(":")[0] == "cpu" else min(MOST_JUDGES, usable_cores())


class Judge:
    """Judges responses; with `workers` above 1 in that many processes, one policy's batch at a time each."""

    def __init__(self, tokenizer: Any, workers: int = 1):
        if workers < 1:
            raise ValueError(f"workers={workers}: give at least 1")
        self._reader = _Reader(tokenizer)
        self._pool = None
        if workers > 1:
            # In a file: through the pipe that starts a process, a tokenizer of a megabyte would hold this one up until that one
            # has imported all that the tokenizer needs.
            self._folder = tempfile.TemporaryDirectory(prefix="delta-rlvr-judge-")
            path = Path(self._folder.name) / "tokenizer"
            path.write_bytes(pickle.dumps(tokenizer))
            # Spawned, not forked: a fork would inherit the accelerator's state, which cannot be used there.
            self._pool = ProcessPoolExecutor(
                workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(path,)
            )
            # All start now and side by side. The pool itself would start one at a time, whenever none is idle. Processes begin with the
            # signals blocked that are blocked here: Ctrl-C, `timeout` and Slurm reach the whole group, and it is the study that decides
            # when its workers end.
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            try:
                for _ in range(workers):
                    self._pool.submit(int)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._folder.cleanup()

    def __call__(self, asked: Sequence[Asked]) -> Iterator[Judged]:
        """The verdicts on each policy's responses. Processes begin at once, so that other work can be done before they are read."""
        if self._pool is None:
            return map(self._reader.judge, asked)
        return self._pool.map(_judge_in_worker, map(_light, asked))


class _Reader:
    """Reads tokens as text, and judges the text."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)
        self._pieces: dict[int, str] = {}

    def judge(self, asked: Asked) -> Judged:
        problems = [problem for problem in asked.problems for _ in range(asked.copies)]
        texts: list[str] = self._tokenizer.batch_decode(
            [[token for token in row if token not in self._special] for row in asked.ids],
            clean_up_tokenization_spaces=False,
        )
        verdicts = asked.task.grade_batch(problems, texts)
        flags = None
        if asked.decisive:
            flags = [
                self._flags(asked.task, problem, row, text)
                for problem, row, text in zip(problems, asked.ids, texts, strict=True)
            ]
        return Judged(texts, [verdict.score for verdict in verdicts], flags)

    def _flags(self, task: Task, problem: Problem, ids: list[int], text: str) -> list[int]:
        pieces = [self._piece(token) for token in ids]
        # Where tokens are text by themselves they are looked up, which is much quicker.
        tokens = pieces if "".join(pieces) == text else token_texts(self._tokenizer, ids)
        flags = decisive_tokens(task, problem, tokens)
        if flags is None:
            raise ValueError(f"task {task.name!r} does not know its decisive tokens: use a built-in one")
        return flags

    def _piece(self, token: int) -> str:
        if token not in self._pieces:
            special = token in self._special
            self._pieces[token] = "" if special else token_texts(self._tokenizer, [token])[0]
        return self._pieces[token]


def _light(asked: Asked) -> Asked:
    """Without the problems that nobody asked: a task of rows brings thousands, which would be sent to a process with every batch."""
    if not isinstance(asked.task, ProblemSet):
        return asked
    return replace(asked, task=replace(asked.task, train=(), heldout=()))


_worker: _Reader | None = None


def _start_worker(path: Path) -> None:
    global _worker
    _worker = _Reader(pickle.loads(path.read_bytes()))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A study that is killed cannot tell its workers to end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _judge_in_worker(asked: Asked) -> Judged:
    assert _worker is not None
    return _worker.judge(asked)
