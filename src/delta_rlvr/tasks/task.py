"""The protocol of a task: a source of problems, a grader, and the tokens that decide a verdict."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, get_args, runtime_checkable

from delta_rlvr.bounds import typed
from delta_rlvr.tasks.problem import Problem
from rlvr_graders.verdict import Verdict

Split = Literal["train", "heldout"]
SPLITS: tuple[str, ...] = get_args(Split)

Span = tuple[int, int]
"""Characters [start, end) of a completion."""


@runtime_checkable
class Task(Protocol):
    """A source of verifiable problems with the grader that belongs to it."""

    @property
    def name(self) -> str:
        """The name by which `get_task` finds it."""

    @property
    def max_tokens(self) -> int:
        """The longest response in tokens: the default of `max_completion_length`."""

    @property
    def one_line(self) -> bool:
        """Whether a response ends at its first line break."""

    def problems(self, split: Split, count: int | None, seed: int = 0, start: int = 0) -> list[Problem]:
        """Return `count` problems of a split after skipping `start`, in an order that depends on the seed alone.

        Splits never share a problem, for any seeds. `count=None` returns all problems; an endless task refuses it.
        """

    def grade(self, problem: Problem, completion: str) -> Verdict:
        """Judge one completion."""

    def grade_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Judge many completions, in parallel where the grader is slow."""

    def decisive(self, problem: Problem, completion: str) -> list[Span] | None:
        """Return the characters that decide whether the completion is right; None if the task cannot know."""


HELDOUT_SAMPLING = {"temperature": 1.0, "top_p": 1.0}
"""The default sampling of held-out responses, in training and by `evaluate`: from the unmodified policy."""
HELDOUT_SHARE = 8
"""One problem in this many is held out, by a hash of its question."""


def hashed_split(digest: str) -> Split:
    """Return the split of a problem from a hexadecimal digest of its question: the same in every run and for every seed."""
    return "heldout" if int(digest, 16) % HELDOUT_SHARE == 0 else "train"


@typed
def check_request(split: str, count: int | None, start: int) -> None:
    """Refuse an unknown split, or a negative count or start."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    if count is not None and count < 0:
        raise ValueError(f"count must be at least 0, got {count}")
    if start < 0:
        raise ValueError(f"start must be at least 0, got {start}")


class Endless:
    """A base for tasks that draw problems without end and grade quickly, in this process."""

    @property
    def name(self) -> str:
        raise NotImplementedError

    def stream(self, split: Split, seed: int = 0) -> Iterator[Problem]:
        """Yield distinct problems of a split without end."""
        raise NotImplementedError

    def problems(self, split: Split, count: int | None, seed: int = 0, start: int = 0) -> list[Problem]:
        check_request(split, count, start)
        if count is None:
            raise ValueError(f"{self.name} is endless: give the number of problems (count)")
        return list(itertools.islice(self.stream(split, seed), start, start + count))

    def grade(self, problem: Problem, completion: str) -> Verdict:
        raise NotImplementedError

    def grade_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        return [self.grade(problem, text) for problem, text in zip(problems, completions, strict=True)]


def token_spans(tokens: Sequence[str]) -> list[Span]:
    """Return the character span of each token in the joined text."""
    return list(itertools.pairwise(itertools.accumulate(map(len, tokens), initial=0)))


def flag_tokens(decisive: Sequence[Span], tokens: Sequence[Span]) -> list[int]:
    """Return 1 for each token that shares a character with a decisive span, else 0.

    `tokens`: character spans in the completion, from a fast tokenizer's offsets or `token_spans`.
    """
    return [
        int(any(start < token_end and token_start < end for start, end in decisive))
        for token_start, token_end in tokens
    ]


def decisive_tokens(task: Task, problem: Problem, tokens: Sequence[str]) -> list[int] | None:
    """Return 1 for each token of a response that decides its verdict, else 0; None if the task cannot know."""
    spans = task.decisive(problem, "".join(tokens))
    return None if spans is None else flag_tokens(spans, token_spans(tokens))
