"""Problems from reasoning-gym's generators, with strict scoring.

A generator gives a partial score to any text that contains the answer ("The answer is 3" scores 0.067 for 3). So the answer is
extracted from the completion first, and only a full score counts.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from delta_rlvr.hints import did_you_mean
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.sources.schemas import question_hash
from delta_rlvr.tasks.sources.shots import Shot, few_shot_prompt, first_line, worked_answer, worked_line
from delta_rlvr.tasks.task import Endless, Span, Split, check_request, hashed_split
from rlvr_graders.extract import last_boxed
from rlvr_graders.verdict import Verdict

FULL_SCORE = 0.999
_REDRAWS = 5_000  # consecutive repeated questions, after which the generator counts as exhausted
_SEED_STEP = 1_000_003  # reasoning-gym's seeds 0 and 1 give the same entries, one place apart
_SHOT_SEED = -1
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_STATED = re.compile(r"\banswer(?:\s+is|\s*:)\s*(.+)", re.IGNORECASE)


@dataclass(frozen=True)
class ReasoningGym(Endless):
    """A generator of reasoning-gym as a task."""

    generator: str
    """The generator's name, such as "chain_sum"."""
    options: dict[str, Any] = field(default_factory=dict)
    """Settings of the generator, such as {"max_digits": 1}."""
    shots: int = 0
    """Question and answer pairs before each question. 0 gives the question alone, for chat models."""
    working: bool = False
    """Whether the shots show how their answers are computed (`WORKINGS`). The answer is then read after "The answer is"."""
    max_tokens: int = 64
    """The longest response. With shots the answer is one line, and 16 is enough for most generators."""

    def __post_init__(self) -> None:
        if self.shots < 0:
            raise ValueError(f"shots must be at least 0, got {self.shots}")
        if self.working and not self.shots:
            raise ValueError(f"{self.name}: the working is shown in shots; give their number, as in shots=4")
        if self.working and self.generator not in WORKINGS:
            raise ValueError(f"there is no working for {self.generator}; there is one for {', '.join(WORKINGS)}")
        _ = self._scorer  # refuses an unknown generator or setting

    @property
    def name(self) -> str:
        given = {**self.options, **({"shots": self.shots} if self.shots else {})}
        settings = "&".join(f"{key}={value}" for key, value in given.items())
        settings += "&working=true" if self.working else ""
        return f"reasoning-gym:{self.generator}" + (f"?{settings}" if settings else "")

    @property
    def one_line(self) -> bool:
        return bool(self.shots)

    def stream(self, split: Split, seed: int = 0) -> Iterator[Problem]:
        """Yield distinct problems of a split without end, none of them among the shots."""
        check_request(split, None, 0)
        asked_before = {question for question, _ in self.worked}
        for entry in self._fresh_entries(seed, asked_before):
            digest = question_hash(entry["question"])
            if hashed_split(digest) != split:
                continue
            prompt = few_shot_prompt(entry["question"], self.worked) if self.shots else entry["question"]
            yield Problem(
                id=f"reasoning-gym:{self.generator}/{digest}",
                prompt=prompt,
                answer=str(entry["answer"]),
                grader="reasoning-gym",
                meta={"entry": entry, "shots": self.shots},
            )

    @cached_property
    def worked(self) -> tuple[Shot, ...]:
        """The shots, the same for every problem and seed."""
        entries = itertools.islice(self._fresh_entries(_SHOT_SEED, set()), self.shots)
        return tuple((entry["question"], self._line(entry)) for entry in entries)

    def grade(self, problem: Problem, completion: str) -> Verdict:
        read = worked_answer if self.working else first_line if self.shots else final_answer
        answer = read(completion)
        if not answer:
            return Verdict(0.0, "no final answer")
        # A full stop after the answer is accepted, but some answers end in one.
        for tried in dict.fromkeys((answer, answer.removesuffix("."))):
            if self._scorer.score_answer(tried, problem.meta["entry"]) >= FULL_SCORE:
                return Verdict(1.0, "correct", tried)
        return Verdict(0.0, "wrong answer", answer)

    def decisive(self, problem: Problem, completion: str) -> list[Span] | None:
        return None

    def _line(self, entry: dict[str, Any]) -> str:
        """Return the answer line of a shot."""
        answer = str(entry["answer"])
        return worked_line(WORKINGS[self.generator](entry), answer) if self.working else answer

    @cached_property
    def _scorer(self) -> Any:
        return self._entries(0)

    def _entries(self, seed: int) -> Any:
        try:
            import reasoning_gym
            from reasoning_gym.factory import DATASETS
        except ImportError as error:
            raise ImportError('reasoning-gym tasks need `pip install "delta-rlvr[tasks]"`') from error
        if self.generator not in DATASETS:
            raise ValueError(
                f"reasoning-gym has no generator {self.generator!r}"
                f"{did_you_mean(self.generator, DATASETS) or '; it has ' + ', '.join(sorted(DATASETS))}"
            )
        try:
            return reasoning_gym.create_dataset(
                self.generator, seed=(seed + 1) * _SEED_STEP, size=2**31, **self.options
            )
        except TypeError as error:
            known = [one.name for one in fields(DATASETS[self.generator][1]) if one.name not in ("seed", "size")]
            wrong = next((name for name in self.options if name not in known), None)
            if wrong is None:
                raise ValueError(f"reasoning-gym's {self.generator} refuses {self.options}: {error}") from error
            raise ValueError(
                f"reasoning-gym's {self.generator} has no setting {wrong!r}{did_you_mean(wrong, known)} (it has {', '.join(known)})"
            ) from error
        except (AssertionError, ValueError) as error:
            raise ValueError(f"reasoning-gym's {self.generator} refuses {self.options}: {error}") from error

    def _fresh_entries(self, seed: int, seen: set[str]) -> Iterator[dict[str, Any]]:
        """Yield the entries whose question is not in `seen`, and add their questions to it."""
        entries = self._entries(seed)
        repeated = 0
        for place in itertools.count():
            entry = entries[place]
            if entry["question"] in seen:
                repeated += 1
                if repeated > _REDRAWS:
                    raise ValueError(
                        f"{self.name} has no new questions after {len(seen)}: widen its settings or use fewer problems"
                    )
                continue
            repeated = 0
            seen.add(entry["question"])
            yield entry


def final_answer(completion: str) -> str | None:
    r"""Return the answer in a completion.

    It is in <answer> tags, in \boxed{}, after "answer is" or "Answer:" on the last line, or else the whole text.
    """
    tagged = _TAGGED.findall(completion)
    if tagged:
        return tagged[-1].strip() or None
    boxed = last_boxed(completion)
    if boxed is not None:
        return boxed
    lines = [line.strip() for line in completion.strip().splitlines() if line.strip()]
    stated = _STATED.search(lines[-1]) if lines else None
    if stated:
        return (stated.group(1).rstrip().removesuffix(".") or ".").strip("*_ \t")
    # The whole text, since answers of puzzles have several lines.
    return completion.strip() or None


# ------------------------------------------------------------------ workings that fit into a line

Entry = Mapping[str, Any]
"""A problem as the generator returns it."""

_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def running_totals(entry: Entry) -> str:
    """Return the working of a sum or product, term by term: for "4 + 5 - 1", "4 + 5 = 9, 9 - 1 = 8"."""
    first, *rest = entry["metadata"]["expression"].split()
    total = int(first)
    steps = []
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        result = _OPERATIONS[sign](total, int(term))
        steps.append(f"{total} {sign} {term} = {result}")
        total = result
    return ", ".join(steps)


def divisions(entry: Entry) -> str:
    """Return the working of Euclid's algorithm on two numbers: for 18 and 12, "18 = 1 * 12 + 6, 12 = 2 * 6 + 0"."""
    numbers = entry["metadata"]["numbers"]
    if len(numbers) != 2:
        raise ValueError(f"working=true for gcd needs two numbers, not {len(numbers)}: give max_numbers=2")
    larger, smaller = max(numbers), min(numbers)
    steps = []
    while smaller:
        times, rest = divmod(larger, smaller)
        steps.append(f"{larger} = {times} * {smaller} + {rest}")
        larger, smaller = smaller, rest
    return ", ".join(steps)


WORKINGS: dict[str, Callable[[Entry], str]] = {
    "chain_sum": running_totals,
    "products": running_totals,
    "gcd": divisions,
}
"""The function that writes the working, by the generator's name."""
