"""Verdicts and decisive tokens of many responses at once, in as many processes as it pays to have."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from delta_rlvr.tasks import Problem, Task, decisive_tokens
from delta_rlvr.tasks.token_texts import token_texts

Asked = tuple[Task, Sequence[Problem], bool]
"""A task, the problem of each response, and whether decisive tokens are wanted."""


@dataclass(frozen=True)
class Judged:
    """What became of one policy's responses."""

    texts: list[str]
    correct: list[float]
    decisive: list[list[int]] | None
    """0/1 a token of each response."""


class Judge:
    """Judges responses; with `workers` above 1 in that many processes, one policy's batch at a time each."""

    def __init__(self, tokenizer: Any, workers: int = 1):
        if workers < 1:
            raise ValueError(f"workers={workers}: give at least 1")
        self.tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)
        self._pieces: dict[int, str] = {}
        # Spawned, not forked: a fork would inherit the accelerator's state, which cannot be used there.
        self._pool = (
            ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
            if workers > 1
            else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __call__(self, asked: Sequence[Asked], ids: Sequence[Sequence[list[int]]]) -> list[Judged]:
        """The verdicts on each policy's responses."""
        jobs = []
        for (task, problems, decisive), responses in zip(asked, ids, strict=True):
            texts = self.tokenizer.batch_decode(
                [[token for token in row if token not in self._special] for row in responses],
                clean_up_tokenization_spaces=False,
            )
            tokens = None
            if decisive:
                tokens = [self._texts(row, text) for row, text in zip(responses, texts, strict=True)]
            jobs.append((task, problems, texts, tokens))
        if self._pool is None:
            return [_judge(*job) for job in jobs]
        return [waiting.result() for waiting in [self._pool.submit(_judge, *job) for job in jobs]]

    def _texts(self, ids: list[int], text: str) -> list[str]:
        """What each token adds to the response. Where tokens are text by themselves they are looked up, which is much quicker."""
        pieces = [self._piece(token) for token in ids]
        return pieces if "".join(pieces) == text else token_texts(self.tokenizer, ids)

    def _piece(self, token: int) -> str:
        if token not in self._pieces:
            self._pieces[token] = "" if token in self._special else token_texts(self.tokenizer, [token])[0]
        return self._pieces[token]


def _judge(
    task: Task, problems: Sequence[Problem], texts: list[str], tokens: list[list[str]] | None
) -> Judged:
    verdicts = task.grade_batch(problems, texts)
    flags = None
    if tokens is not None:
        found = [decisive_tokens(task, problem, row) for problem, row in zip(problems, tokens, strict=True)]
        if any(row is None for row in found):
            raise ValueError(f"task {task.name!r} does not know its decisive tokens: use a built-in one")
        flags = [row for row in found if row is not None]
    return Judged(texts, [verdict.score for verdict in verdicts], flags)
