"""Which characters of a told sum decided whether it came out right.

A right response is decided by the digits of its sums: where a number was worked out, not where one was copied.
A wrong one is decided by its first wrong digit: everything after it may follow correctly from the slip.
The reading needs no phrasing table, so it also covers responses that mix phrasings: a sentence that has the word
"answer" states the answer; one with two numbers or more is an addition whose last number is the result; one with
a single number only mentions it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from delta_rlvr.tasks.sum_language import ANSWER_WORD
from delta_rlvr.tasks.task import Span

_SENTENCE = re.compile(r"[^.]+\.?")
_NUMBER = re.compile(r"\d+")
_STATED = re.compile(rf"\b{ANSWER_WORD}\b[^\d.]*(\d+)", re.IGNORECASE)

Number = re.Match[str]
"""A number as it stands in the text."""


def stated_answer(completion: str) -> str | None:
    """The number that the completion gives as its answer (the last one, if it changes its mind)."""
    answers = _STATED.findall(completion)
    return answers[-1] if answers else None


def sum_digits(completion: str) -> list[Span]:
    """Every number that the response works out: each addition's result, or the answer if it was never one."""
    worked_out: list[Number] = []
    for is_answer, numbers in _sentences(completion):
        if is_answer:
            stated = numbers[-1]
            if all(number[0] != stated[0] for number in worked_out):
                worked_out.append(stated)
        elif len(numbers) > 1:
            worked_out.append(numbers[-1])
    return [number.span() for number in worked_out]


def first_wrong_digit(addends: Sequence[int], facts: Sequence[int], completion: str) -> list[Span]:
    """The first digit that is not what a right response could have there; empty where every digit is right."""
    left = Counter(addends)  # addends that no step has used yet
    total: int | None = None
    for is_answer, numbers in _sentences(completion):
        *inputs, result = numbers
        value = int(result[0])
        if is_answer:
            if value != sum(addends):
                return [_difference(result, [sum(addends)], completion)]
            continue
        if not inputs:
            allowed = {*addends, *facts}
            if value not in allowed and value != total:
                return [_difference(result, sorted(allowed), completion)]
            if total is None and left[value]:  # "Start with 37."
                total = value
                left[total] -= 1
            continue
        expected = total or 0
        total_named = total is None
        for number in inputs:
            added = int(number[0])
            if not total_named and added == total:
                total_named = True
                continue
            allowed = {addend for addend, count in left.items() if count}
            if added not in allowed:
                candidates = sorted(allowed) + ([] if total_named or total is None else [total])
                return [_difference(number, candidates, completion)]
            left[added] -= 1
            expected += added
        if value != expected:
            return [_difference(result, [expected], completion)]
        total = expected
    return []


def _sentences(completion: str) -> Iterator[tuple[bool, list[Number]]]:
    """The sentences that have a number, each with whether it states the answer."""
    for sentence in _SENTENCE.finditer(completion):
        if numbers := list(_NUMBER.finditer(completion, *sentence.span())):
            yield _STATED.search(sentence.group()) is not None, numbers


def _difference(number: Number, candidates: Sequence[int], completion: str) -> Span:
    """The first character at which `number` leaves the candidate that it follows longest.

    A number that stops too soon went wrong at the character after it: that is where the missing digit should be.
    """

    def shared(candidate: int) -> int:
        pairs = zip(number[0], str(candidate), strict=False)
        return next((place for place, (ours, theirs) in enumerate(pairs) if ours != theirs), len(number[0]))

    place = max((min(shared(candidate), len(str(candidate))) for candidate in candidates), default=0)
    position = min(number.start() + place, len(completion) - 1)
    return position, position + 1
