"""What a task is: where problems come from, how a completion is judged, and which of its tokens decided."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, get_args, runtime_checkable

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
        """The name it is asked for by."""

    @property
    def max_tokens(self) -> int:
        """How many tokens a response to it may take: the default of the completion limit."""

    @property
    def one_line(self) -> bool:
        """Whether a response ends at its first line break, and what a model goes on to write after it is not part of it."""

    def problems(self, split: Split, count: int | None, seed: int = 0, start: int = 0) -> list[Problem]:
        """`count` problems of a split, the same for the same seed; `start` skips as many.

        Splits never share a problem, whatever the seeds. None asks for all there are, which an endless task
        refuses.
        """

    def grade(self, problem: Problem, completion: str) -> Verdict:
        """Judge one completion."""

    def grade_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Judge many, in parallel where a judgement is slow."""

    def decisive(self, problem: Problem, completion: str) -> list[Span] | None:
        """The characters that decided whether the completion is right, or None where the task cannot know."""


HELDOUT_SAMPLING = {"temperature": 1.0, "top_p": 1.0}
"""How held-out responses are drawn, in training and by `evaluate`, unless another way is asked for: from the policy as it is."""
HELDOUT_SHARE = 8
"""One problem in this many is held out, by a hash of what it asks."""


def hashed_split(digest: str) -> Split:
    """The split of a problem, from a hexadecimal digest of what it asks: the same in every run and for every seed."""
    return "heldout" if int(digest, 16) % HELDOUT_SHARE == 0 else "train"


def check_request(split: str, count: int | None, start: int) -> None:
    """Refuse a request for problems that makes no sense, before anything is drawn."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    if count is not None and count < 0:
        raise ValueError(f"count must be at least 0, got {count}")
    if start < 0:
        raise ValueError(f"start must be at least 0, got {start}")


class Endless:
    """For tasks that draw problems without end, and whose judgement is too quick to be worth a pool of workers."""

    @property
    def name(self) -> str:
        raise NotImplementedError

    def stream(self, split: Split, seed: int = 0) -> Iterator[Problem]:
        """Problems of a split without end, none twice."""
        raise NotImplementedError

    def problems(self, split: Split, count: int | None, seed: int = 0, start: int = 0) -> list[Problem]:
        check_request(split, count, start)
        if count is None:
            raise ValueError(f"{self.name} is endless: say how many problems you want (count)")
        return list(itertools.islice(self.stream(split, seed), start, start + count))

    def grade(self, problem: Problem, completion: str) -> Verdict:
        raise NotImplementedError

    def grade_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        return [self.grade(problem, text) for problem, text in zip(problems, completions, strict=True)]


def token_spans(tokens: Sequence[str]) -> list[Span]:
    """Where each token stands in the text that the tokens make when joined."""
    return list(itertools.pairwise(itertools.accumulate(map(len, tokens), initial=0)))


def flag_tokens(decisive: Sequence[Span], tokens: Sequence[Span]) -> list[int]:
    """1 for each token that shares a character with a decisive span, else 0.

    `tokens` are character spans within the completion: a fast tokenizer's offsets, or `token_spans`.
    """
    return [
        int(any(start < token_end and token_start < end for start, end in decisive))
        for token_start, token_end in tokens
    ]


def decisive_tokens(task: Task, problem: Problem, tokens: Sequence[str]) -> list[int] | None:
    """1 for each token of a response that decided its verdict, else 0; None where the task cannot know."""
    spans = task.decisive(problem, "".join(tokens))
    return None if spans is None else flag_tokens(spans, token_spans(tokens))
