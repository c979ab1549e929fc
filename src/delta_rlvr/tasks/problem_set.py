"""A fixed list of problems as a task: rows of a file or of a data set."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from delta_rlvr.tasks.grading import grade_batch
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.sources.schemas import question_hash
from delta_rlvr.tasks.sources.shots import Shot, few_shot_prompt, first_line, worked_answer, worked_line
from delta_rlvr.tasks.task import Span, Split, check_request, hashed_split
from delta_rlvr.words import counted
from rlvr_graders.verdict import Verdict


@dataclass(frozen=True)
class ProblemSet:
    """Loaded problems, split by a hash of the question."""

    name: str
    train: tuple[Problem, ...]
    heldout: tuple[Problem, ...]
    shots: tuple[Shot, ...] = ()
    """Question and answer pairs before each question. With shots, the first line of the completion is the response."""
    max_tokens: int = 512
    worked: bool = False
    """Whether the shots show the working before the answer. Without it the answer is the whole line."""

    @classmethod
    def split(
        cls,
        name: str,
        problems: Sequence[Problem],
        heldout: Sequence[Problem] | None = None,
        shots: int = 0,
        max_tokens: int = 512,
        worked: bool = False,
    ) -> ProblemSet:
        """Hold out one problem in eight, or those given in `heldout`, which are removed from `problems`.

        Shots are the first training problems in the order of their hash, and are not trained on. `worked` shots are the first ones
        with a working.
        """

        def digest(problem: Problem) -> str:
            return question_hash(problem.meta.get("question", problem.prompt))

        answers: dict[str, set[str]] = {}
        for problem in problems:
            answers.setdefault(digest(problem), set()).add(str(problem.answer))
        if unlike := [one for one in problems if len(answers[digest(one)]) > 1]:
            asked, count = unlike[0].meta.get("question", unlike[0].prompt), len({*map(digest, unlike)})
            warnings.warn(
                f"{name}: {counted(count, 'question')} with different answers, such as {asked!r:.60}", stacklevel=2
            )
        if heldout is None:
            heldout = [problem for problem in problems if hashed_split(digest(problem)) == "heldout"]
        kept_out = {digest(problem) for problem in heldout}
        train = sorted((problem for problem in problems if digest(problem) not in kept_out), key=digest)
        if not train:
            asked = len({digest(problem) for problem in problems})
            raise ValueError(
                f"{name} has no problem to train on: its {len(problems)} rows have {counted(asked, 'different question')}, and all of "
                "them are held out; add rows, or name a file to hold out (FILE?heldout=OTHER)"
            )
        if len(train) <= shots:
            raise ValueError(f"{name} has {len(train)} problems to train on, too few for {shots} shots and training")
        chosen = [problem for problem in train if not worked or "working" in problem.meta][:shots]
        if len(chosen) < shots:
            raise ValueError(f"{name}: only {len(chosen)} training problems have a working, too few for {shots} shots")
        shown = tuple(_shot(problem, worked) for problem in chosen)
        if shots:
            used = {problem.id for problem in chosen}
            train = [_with_shots(problem, shown) for problem in train if problem.id not in used]
            heldout = [_with_shots(problem, shown) for problem in heldout]
        return cls(name, tuple(train), tuple(sorted(heldout, key=digest)), shown, max_tokens, worked)

    @property
    def one_line(self) -> bool:
        return bool(self.shots)

    def problems(self, split: Split, count: int | None, seed: int = 0, start: int = 0) -> list[Problem]:
        check_request(split, count, start)
        pool = list(self.train if split == "train" else self.heldout)
        random.Random(seed).shuffle(pool)
        wanted = len(pool) - start if count is None else count
        if start + wanted > len(pool):
            raise ValueError(
                f"{self.name} has {len(pool)} {split} problems, but {wanted} from {start} on were requested"
            )
        return pool[start : start + wanted]

    def grade(self, problem: Problem, completion: str) -> Verdict:
        return self.grade_batch([problem], [completion])[0]

    def grade_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        if self.shots:
            read = worked_answer if self.worked else first_line
            completions = [read(completion) for completion in completions]
        return grade_batch(problems, completions)

    def decisive(self, problem: Problem, completion: str) -> list[Span] | None:
        return None


def _shot(problem: Problem, worked: bool) -> Shot:
    question, answer = str(problem.meta.get("question", problem.prompt)), str(problem.answer)
    return question, worked_line(problem.meta["working"], answer) if worked else answer


def _with_shots(problem: Problem, shots: tuple[Shot, ...]) -> Problem:
    question = problem.meta.get("question", problem.prompt)
    if not isinstance(question, str):
        raise ValueError(f"{problem.id} has a chat prompt: shots need plain questions")
    meta = {**problem.meta, "extract": "whole"}
    return replace(problem, prompt=few_shot_prompt(question, shots), meta=meta)
