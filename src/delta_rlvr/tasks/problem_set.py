"""A fixed list of problems as a task: rows of a file or of a data set."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from delta_rlvr.rewards.verdict import Verdict
from delta_rlvr.tasks.grading import grade_batch
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.sources.schemas import question_hash
from delta_rlvr.tasks.sources.shots import Shot, few_shot_prompt, first_line
from delta_rlvr.tasks.task import Span, Split, check_request, hashed_split


@dataclass(frozen=True)
class ProblemSet:
    """Problems that were loaded, split by a hash of the question."""

    name: str
    train: tuple[Problem, ...]
    heldout: tuple[Problem, ...]
    shots: tuple[Shot, ...] = ()
    """Pairs that stand before each question; the completion's first line is then its answer."""
    max_tokens: int = 512

    @classmethod
    def split(
        cls,
        name: str,
        problems: Sequence[Problem],
        heldout: Sequence[Problem] | None = None,
        shots: int = 0,
        max_tokens: int = 512,
    ) -> ProblemSet:
        """Hold out one problem in eight, or those given: what is held out is then taken out of `problems`.

        Shots are the first training problems in the order of their hash, and are not trained on.
        """

        def digest(problem: Problem) -> str:
            return question_hash(problem.meta.get("question", problem.prompt))

        if heldout is None:
            heldout = [problem for problem in problems if hashed_split(digest(problem)) == "heldout"]
        kept_out = {digest(problem) for problem in heldout}
        train = sorted((problem for problem in problems if digest(problem) not in kept_out), key=digest)
        if len(train) <= shots:
            raise ValueError(
                f"{name} has {len(train)} problems to train on, too few for {shots} shots and training"
            )
        worked = tuple(
            (str(problem.meta.get("question", problem.prompt)), str(problem.answer))
            for problem in train[:shots]
        )
        if shots:
            train = [_with_shots(problem, worked) for problem in train[shots:]]
            heldout = [_with_shots(problem, worked) for problem in heldout]
        return cls(name, tuple(train), tuple(sorted(heldout, key=digest)), worked, max_tokens)

    def problems(self, split: Split, count: int | None, seed: int = 0, start: int = 0) -> list[Problem]:
        check_request(split, count, start)
        pool = list(self.train if split == "train" else self.heldout)
        random.Random(seed).shuffle(pool)
        wanted = len(pool) - start if count is None else count
        if start + wanted > len(pool):
            raise ValueError(
                f"{self.name} has {len(pool)} {split} problems; {wanted} from {start} on were asked for"
            )
        return pool[start : start + wanted]

    def grade(self, problem: Problem, completion: str) -> Verdict:
        return self.grade_batch([problem], [completion])[0]

    def grade_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        said = [first_line(completion) for completion in completions] if self.shots else completions
        return grade_batch(problems, said)

    def decisive(self, problem: Problem, completion: str) -> list[Span] | None:
        return None


def _with_shots(problem: Problem, worked: tuple[Shot, ...]) -> Problem:
    question = problem.meta.get("question", problem.prompt)
    if not isinstance(question, str):
        raise ValueError(f"{problem.id} has chat messages for a prompt: shots go with plain questions only")
    return replace(
        problem, prompt=few_shot_prompt(question, worked), meta={**problem.meta, "extract": "whole"}
    )
