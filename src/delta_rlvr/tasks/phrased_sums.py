"""The built-in task: sums told step by step in many words, of which only a few digits decide.

One generator, seeded and endless; its settings make the variants that a study of credit needs (long filler,
distracting facts, an error that comes early or late).
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

_REDRAWS = 20_000  # in a row without a new problem: then the settings leave (nearly) nothing to draw


@dataclass(frozen=True)
class SumSettings:
    """What the sums and the talk around them look like."""

    addends: int = 4
    """How many numbers are added; a response has one step fewer."""
    low: int = 10
    """The smallest addend."""
    high: int = 99
    """The largest addend."""
    carries: Literal["any", "first", "last"] = "any"
    """Which steps carry: any, or only the first (last) one, where then nearly all slips happen."""
    phrasings: int = language.PHRASINGS
    """How many of the ways to say each thing are in use."""
    filler: int = 0
    """Sentences without a number said after each step."""
    facts: int = 0
    """Facts with a number in the prompt that do not belong to the sum."""
    max_tokens: int = 64
    """How long a response may become."""

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
    """How often a told solution goes wrong, for warm starts: what the policy then has to unlearn."""

    carry: float = 0.0
    """Chance to forget the carry of a sum that has one."""
    digit: float = 0.0
    """Chance that a sum's last digit is off by one."""


@dataclass(frozen=True)
class PhrasedSums(Endless):
    """Sums whose solutions are told in words chosen at random."""

    name: str = "phrased-sums"
    settings: SumSettings = field(default_factory=SumSettings)

    @property
    def max_tokens(self) -> int:
        return self.settings.max_tokens

    @property
    def one_line(self) -> bool:
        return False

    def stream(self, split: Split, seed: int = 0) -> Iterator[Problem]:
        """Problems without end, none twice."""
        check_request(split, None, 0)
        # The split is left out of the seed on purpose: it is the hash of the numbers, not the draw, that keeps
        # the splits apart.
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
        """One way to tell the solution, with slips at the given rates. A slip is carried on, as people do."""
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
        """One problem, or None if the draw does not fit the settings."""
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
    """The split that a sum belongs to, in every variant and whatever the order of its numbers."""
    key = "+".join(map(str, sorted(addends)))
    return hashed_split(hashlib.blake2b(key.encode(), digest_size=8).hexdigest())


def has_carry(total: int, addend: int) -> bool:
    """Whether the last digits of the two make ten or more."""
    return total % 10 + addend % 10 >= 10


def _slip(total: int, addend: int, draw: random.Random, slips: Slips) -> int:
    """total + addend as a person might get it."""
    result = total + addend
    # Both chances are drawn for every sum, so that one rate does not move the draws of the other.
    forget, miss, direction = draw.random(), draw.random(), draw.choice((-1, 1))
    if has_carry(total, addend) and forget < slips.carry:
        result -= 10
    if miss < slips.digit:
        result = result - result % 10 + (result % 10 + direction) % 10
    return result
