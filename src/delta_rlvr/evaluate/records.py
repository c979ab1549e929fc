"""The records that samplers, graders and files exchange: questions, requests, completions, failures and graded samples."""

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
    """The problems of one benchmark."""

    name: str
    problems: tuple[Problem, ...]
    description: Mapping[str, Any]
    """Their source, prompt and grading; stored with the result."""
    grade: Grade = grade_problem
    """Judges a completion: by each problem's `grader`, or the method of a task or reward."""
    seeded_as: str | None = None
    """The name in the samples' seeds in place of `name`. Problems that training scores too have the same one everywhere."""

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
                    "samples are stored by id"
                )
            seen[problem.id] = place

    def samples(self, count: int) -> Iterator[tuple[SampleKey, Problem]]:
        """Yield the key and problem of `count` samples per problem, in the order of a result."""
        for problem in self.problems:
            for number in range(count):
                yield SampleKey(self.name, problem.id, number), problem

    def seed(self, seed: int, key: SampleKey) -> int:
        """Return the seed of one sample."""
        return sample_seed(seed, key._replace(benchmark=self.seeded_as or self.name))

    @property
    def digest(self) -> str:
        """A hash of the prompts, answers, order and number of the problems."""
        summed = hashlib.sha256()
        for problem in self.problems:
            prompt = problem.prompt if isinstance(problem.prompt, str) else list(problem.prompt)
            summed.update(dump([problem.id, prompt, problem.answer, problem.grader]).encode() + b"\n")
        return summed.hexdigest()[:16]


@dataclass(frozen=True)
class SampleRequest:
    """A request for one completion."""

    key: SampleKey
    prompt: Prompt
    """Plain text, chat messages, or token ids (only for a server's completions)."""
    seed: int
    max_tokens: int | None = None
    """Longest completion, if it differs from the settings (only for a server)."""


@dataclass(frozen=True)
class Completion:
    """The answer of a model."""

    text: str
    finish: str
    """"stop" if the model ended it, "length" if the limit did."""
    tokens: int | None = None
    """The length in tokens, if the backend reports it."""
    reasoning: str | None = None
    """The reasoning that a server returns apart from the answer; stored, never graded."""


@dataclass(frozen=True)
class Failure:
    """The reason why there is no completion. Failures are counted and named, never scored."""

    reason: str


Outcome = tuple[SampleRequest, Completion | Failure]


class Sampler(Protocol):
    """The interface to a model, in this process or on a server."""

    def describe(self) -> dict[str, Any]:
        """Return what of the backend could change a completion. It is stored with the result and compared on resume."""
        ...

    def sample(self, requests: Sequence[SampleRequest], wanted: Set[SampleKey]) -> Iterator[Sequence[Outcome]]:
        """Yield the outcomes of the wanted requests, a few at a time, in any order.

        `requests` is the whole evaluation, so that a backend can form the same batches after a restart.
        """
        ...


@dataclass(frozen=True)
class Sample:
    """One graded completion."""

    key: SampleKey
    completion: Completion
    seed: int | None
    """None for a sample from elsewhere that is only scored here."""
    score: float | None
    """None if the grader failed, with the reason in `reason`. Such a sample counts as missing."""
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
    """A record is not a sample. The message says what is wrong with it."""


def read_sample(values: Any) -> Sample:
    """Read a sample from JSON. Only benchmark, problem, sample and completion are required."""
    if not isinstance(values, dict):
        raise MalformedSample(f"expected an object, got {type(values).__name__}")
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
