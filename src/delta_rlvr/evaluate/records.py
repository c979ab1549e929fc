"""What passes between sampler, grader and file: questions, requests, completions, failures and graded samples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.settings import SampleKey, sample_seed
from delta_rlvr.files import dump
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.registry import grade_problem
from rlvr_graders.verdict import Verdict

Tokens = tuple[int, ...]
Prompt = str | Sequence[dict[str, str]] | Tokens
Grade = Callable[[Problem, str], Verdict]


@dataclass(frozen=True)
class Questions:
    """The problems of one benchmark, ready to be asked."""

    name: str
    problems: tuple[Problem, ...]
    description: Mapping[str, Any]
    """Where they are from and how they are asked and graded; stored with the result."""
    grade: Grade = grade_problem
    """By each problem's `grader`; or its own, where those do not say it all (a task's)."""
    seeded_as: str | None = None
    """What stands in the samples' seeds in the place of `name`: problems that training scores too have one name there, whatever they
    are called here."""

    def __post_init__(self) -> None:
        if not self.problems:
            raise EvaluationError(f"{self.name} has no problems")
        seen: dict[str, int] = {}
        for place, problem in enumerate(self.problems):
            if not isinstance(problem.id, str) or not problem.id:
                raise EvaluationError(f"{self.name}: problem {place} has no id")
            if problem.id in seen:
                raise EvaluationError(
                    f"{self.name}: problems {seen[problem.id]} and {place} share the id {problem.id!r}; ids must be unique, because "
                    "samples are kept under them"
                )
            seen[problem.id] = place

    def samples(self, count: int) -> Iterator[tuple[SampleKey, Problem]]:
        """What is asked with `count` samples per problem, in the order in which a result lists them."""
        for problem in self.problems:
            for number in range(count):
                yield SampleKey(self.name, problem.id, number), problem

    def seed(self, seed: int, key: SampleKey) -> int:
        """The own seed of one of its samples."""
        return sample_seed(seed, key._replace(benchmark=self.seeded_as or self.name))

    @property
    def digest(self) -> str:
        """Changes when a prompt, an answer, the order or the number of problems does."""
        summed = hashlib.sha256()
        for problem in self.problems:
            prompt = problem.prompt if isinstance(problem.prompt, str) else list(problem.prompt)
            summed.update(dump([problem.id, prompt, problem.answer, problem.grader]).encode() + b"\n")
        return summed.hexdigest()[:16]


@dataclass(frozen=True)
class SampleRequest:
    """One completion that is wanted."""

    key: SampleKey
    prompt: Prompt
    """Plain text, chat messages, or token ids (which only a server's completions take)."""
    seed: int
    max_tokens: int | None = None
    """Longest completion, where it is not the one of the settings (which only a server keeps to)."""


@dataclass(frozen=True)
class Completion:
    """What a model answered."""

    text: str
    finish: str
    """"stop" where the model ended it, "length" where the limit did."""
    tokens: int | None = None
    """Its length, where the backend tells."""
    reasoning: str | None = None
    """Thoughts that a server keeps apart from the answer; stored, never graded."""


@dataclass(frozen=True)
class Failure:
    """A completion that could not be had, and why. It is counted and named, never scored."""

    reason: str


Outcome = tuple[SampleRequest, Completion | Failure]


class Sampler(Protocol):
    """A model behind one interface, wherever it runs."""

    def describe(self) -> dict[str, Any]:
        """What of the backend could change a completion: stored with the result, and compared on resume."""
        ...

    def sample(self, requests: Sequence[SampleRequest], wanted: Set[SampleKey]) -> Iterator[Sequence[Outcome]]:
        """Outcomes of the wanted requests, a few at a time, in any order.

        `requests` is the whole evaluation, so that a backend whose batches matter can form the same ones
        whether or not some of it is there already.
        """
        ...


@dataclass(frozen=True)
class Sample:
    """One graded completion."""

    key: SampleKey
    completion: Completion
    seed: int | None
    """None for a sample that was made elsewhere and only scored here."""
    score: float | None
    """None where the grader itself failed (the reason says how): such a sample counts as missing."""
    reason: str
    answer: str | None

    def as_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            **self.key._asdict(),
            "seed": self.seed,
            "completion": self.completion.text,
            "tokens": self.completion.tokens,
            "finish": self.completion.finish,
            "score": self.score,
            "reason": self.reason,
            "answer": self.answer,
        }
        if self.completion.reasoning is not None:
            values["reasoning"] = self.completion.reasoning
        return values


class MalformedSample(ValueError):
    """A record that is not a sample; the message says what is wrong with it."""


def read_sample(values: Any) -> Sample:
    """A sample from its JSON form. Only benchmark, problem, sample and completion are needed."""
    if not isinstance(values, dict):
        raise MalformedSample(f"it is {type(values).__name__}, not an object")
    for name in ("benchmark", "problem", "completion"):
        if not isinstance(values.get(name), str):
            raise MalformedSample(f"{name!r} must be text, and is {values.get(name, 'missing')!r:.80}")
    number = values.get("sample")
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise MalformedSample(f"'sample' must be a whole number from 0 on, and is {number!r:.80}")
    score = values.get("score")
    if score is not None and (isinstance(score, bool) or not isinstance(score, (int, float))):
        raise MalformedSample(f"'score' must be a number or null, and is {score!r:.80}")
    tokens, seed = values.get("tokens"), values.get("seed")
    for name, count in (("tokens", tokens), ("seed", seed)):
        if count is not None and not isinstance(count, int):
            raise MalformedSample(f"{name!r} must be a whole number or null, and is {count!r:.80}")
    finish = str(values.get("finish") or "unknown")
    completion = Completion(values["completion"], finish, tokens, values.get("reasoning"))
    return Sample(
        SampleKey(values["benchmark"], values["problem"], number),
        completion,
        seed,
        None if score is None else float(score),
        str(values.get("reason") or ""),
        values.get("answer"),
    )
