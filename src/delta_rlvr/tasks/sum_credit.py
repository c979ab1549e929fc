"""The characters of a response that decide whether its sum is right.

A right response is decided by the digits of its results, not by numbers that it copies. A wrong one is decided by its first wrong
digit: everything after it may follow correctly from the slip.
Sentences are read without a table of phrasings: one with the word "answer" states the answer, one with two or more numbers is an
addition whose last number is the result, and one with a single number only mentions it.
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
"""A number in the text."""


def stated_answer(completion: str) -> str | None:
    """Return the number that the completion states as its answer, the last one if there are several."""
    answers = _STATED.findall(completion)
    return answers[-1] if answers else None


def sum_digits(completion: str) -> list[Span]:
    """Return the spans of the numbers that the response computes: each addition's result, and the answer if it is none of them."""
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
    """Return the span of the first digit that no right response could have there; empty if every digit is right."""
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
    """Yield the numbers of each sentence that has any, and whether it states the answer."""
    for sentence in _SENTENCE.finditer(completion):
        if numbers := list(_NUMBER.finditer(completion, *sentence.span())):
            yield _STATED.search(sentence.group()) is not None, numbers


def _difference(number: Number, candidates: Sequence[int], completion: str) -> Span:
    """Return the first character at which `number` differs from the candidate with the longest common prefix.

    If the number is too short, this is the character after it, where the missing digit should be.
    """

    def shared(candidate: int) -> int:
        pairs = zip(number[0], str(candidate), strict=False)
        return next((place for place, (ours, theirs) in enumerate(pairs) if ours != theirs), len(number[0]))

    place = max((min(shared(candidate), len(str(candidate))) for candidate in candidates), default=0)
    position = min(number.start() + place, len(completion) - 1)
    return position, position + 1
