"""The built-in task: sums solved step by step in many words, where only a few digits decide.

One endless, seeded generator. Its settings make the variants for studies of credit: long filler, distracting facts, early or late
errors.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from delta_rlvr.tasks import sum_language as language
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.sum_credit import first_wrong_digit, stated_answer, sum_digits
from delta_rlvr.tasks.task import Endless, Span, Split, check_request, hashed_split
from rlvr_graders.verdict import Verdict

_REDRAWS = 20_000  # consecutive draws without a new problem, after which the settings count as exhausted


@dataclass(frozen=True)
class SumSettings:
    """The sums and the words around them."""

    addends: int = 4
    """How many numbers are added. A response has one step fewer."""
    low: int = 10
    """The smallest addend."""
    high: int = 99
    """The largest addend."""
    carries: Literal["any", "first", "last"] = "any"
    """Which steps carry: any, or only the first or last one. Nearly all slips happen at a carry."""
    phrasings: int = language.PHRASINGS
    """How many of the phrasings of each part are used."""
    filler: int = 0
    """Sentences without a number after each step."""
    facts: int = 0
    """Facts in the prompt with a number that does not belong to the sum."""
    max_tokens: int = 64
    """The longest response, in tokens."""

    def __post_init__(self) -> None:
        if self.addends < 2:
            raise ValueError(f"addends must be at least 2, got {self.addends}")
        if not 0 <= self.low <= self.high:
            raise ValueError(f"0 <= low <= high must hold, got low={self.low}, high={self.high}")
        if self.carries not in ("any", "first", "last"):
            raise ValueError(f"carries must be any, first or last, got {self.carries!r}")
        if not 1 <= self.phrasings <= language.PHRASINGS:
            raise ValueError(f"phrasings must be in 1..{language.PHRASINGS}, got {self.phrasings}")
        if self.filler < 0 or self.facts < 0:
            raise ValueError(f"filler and facts must be at least 0, got {self.filler} and {self.facts}")


@dataclass(frozen=True)
class Slips:
    """Error rates of the solutions for a warm start, which the policy then has to unlearn."""

    carry: float = 0.0
    """Probability that a carry is forgotten."""
    digit: float = 0.0
    """Probability that the last digit of a sum is off by one."""


@dataclass(frozen=True)
class PhrasedSums(Endless):
    """Sums whose solutions are phrased at random."""

    name: str = "phrased-sums"
    settings: SumSettings = field(default_factory=SumSettings)

    @property
    def max_tokens(self) -> int:
        return self.settings.max_tokens

    @property
    def one_line(self) -> bool:
        return False

    def stream(self, split: Split, seed: int = 0) -> Iterator[Problem]:
        """Yield distinct problems without end."""
        check_request(split, None, 0)
        # The seed does not depend on the split: the hash of the numbers keeps the splits apart.
        draw = random.Random(f"{self.name}:{seed}")
        seen: set[str] = set()
        redraws = 0
        while True:
            problem = self._draw(draw)
            if problem is None or problem.id in seen or split_of(problem.meta["addends"]) != split:
                redraws += 1
                if redraws > _REDRAWS:
                    raise ValueError(
                        f"{self.name} has no more {split} problems with {self.settings} after {len(seen)}: "
                        "widen low..high or add addends"
                    )
                continue
            redraws = 0
            seen.add(problem.id)
            yield problem

    def grade(self, problem: Problem, completion: str) -> Verdict:
        stated = stated_answer(completion)
        if stated is None:
            return Verdict(0.0, "no final answer")
        if stated == problem.answer:
            return Verdict(1.0, "correct", stated)
        return Verdict(0.0, "wrong answer", stated)

    def decisive(self, problem: Problem, completion: str) -> list[Span]:
        if self.grade(problem, completion).score == 1.0:
            return sum_digits(completion)
        return first_wrong_digit(problem.meta["addends"], problem.meta["facts"], completion)

    def solution(self, problem: Problem, draw: random.Random, slips: Slips | None = None) -> str:
        """Return a solution in random words, with slips at the given rates. Later steps continue from a slip, as people do."""
        slips = slips or Slips()
        addends: list[int] = problem.meta["addends"]
        ways = self.settings.phrasings
        parts: list[str] = []
        total = addends[0]
        for place, addend in enumerate(addends[1:], start=1):
            kind = "first" if place == 1 else "last" if place == len(addends) - 1 else "middle"
            result = _slip(total, addend, draw, slips)
            parts.append(" " if parts else "")
            parts.append(draw.choice(language.OPENERS[kind][:ways]))
            parts.append(draw.choice(language.STEPS[:ways]).format(total=total, addend=addend, result=result))
            parts.extend(draw.choices(language.FILLERS, k=self.settings.filler))
            total = result
            if problem.meta["facts"] and draw.random() < 0.5:
                parts.append(draw.choice(language.REMARKS).format(number=draw.choice(problem.meta["facts"])))
        parts.append(draw.choice(language.ANSWERS[:ways]).format(result=total))
        return "".join(parts)

    def _draw(self, draw: random.Random) -> Problem | None:
        """Return one problem, or None if the draw does not fit the settings."""
        settings = self.settings
        addends = [draw.randint(settings.low, settings.high) for _ in range(settings.addends)]
        facts = [draw.randint(settings.low, settings.high) for _ in range(settings.facts)]
        fact_phrasings = draw.sample(range(len(language.FACTS)), settings.facts)
        if settings.carries != "any":
            totals = itertools.accumulate(addends)
            carrying = [has_carry(total, addend) for total, addend in zip(totals, addends[1:], strict=False)]
            wanted = 0 if settings.carries == "first" else len(carrying) - 1
            if carrying != [place == wanted for place in range(len(carrying))]:
                return None
        key = "+".join(map(str, addends)) + "".join(f",{fact}" for fact in facts)
        return Problem(
            id=f"{self.name}/{key}",
            prompt=language.ask(addends, facts, fact_phrasings, aloud=settings.filler > 0),
            answer=str(sum(addends)),
            grader=self.name,
            meta={"addends": addends, "facts": facts},
        )


def split_of(addends: list[int]) -> Split:
    """Return the split of a sum. It is the same in every variant and for every order of the numbers."""
    key = "+".join(map(str, sorted(addends)))
    return hashed_split(hashlib.blake2b(key.encode(), digest_size=8).hexdigest())


def has_carry(total: int, addend: int) -> bool:
    """Return whether the last digits add up to ten or more."""
    return total % 10 + addend % 10 >= 10


def _slip(total: int, addend: int, draw: random.Random, slips: Slips) -> int:
    """Return total + addend, with slips at random."""
    result = total + addend
    # Both are drawn for every sum, so that one rate does not shift the draws of the other.
    forget, miss, direction = draw.random(), draw.random(), draw.choice((-1, 1))
    if has_carry(total, addend) and forget < slips.carry:
        result -= 10
    if miss < slips.digit:
        result = result - result % 10 + (result % 10 + direction) % 10
    return result
