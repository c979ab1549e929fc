"""Whether what a program gave is what was asked for. Runs in the grader, on plain values only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from delta_rlvr.rewards.code.cases import Call, FunctionTests, StdioTests
from delta_rlvr.rewards.code.sandbox.wire import WireError, decode, encode

LONGEST_NUMBER = 400  # characters of a printed number that is compared as a number
NUMBERS = (int, float, complex)


def answer_matches(encoded: bytes, call: Call, tests: FunctionTests) -> bool:
    """Compare a return value, in `wire` form, with the expectation and its alternatives."""
    accepted = (call.expected, *call.alternatives)
    if tests.comparison == "equal":
        # Every part of an equal value takes at least one byte of ours and at most 16 times that (a float against
        # an integer), so a much longer answer is wrong and need not be unpacked.
        longest = max(len(encode(value)) for value in accepted)
        if len(encoded) > 32 * longest + 4096:
            return False
    try:
        value = decode(encoded)
    except WireError:
        return False
    if tests.comparison == "not_none":
        present = value if isinstance(value, bool) else value is not None
        return present == call.expected
    if tests.comparison == "set":
        return any(_same_elements(value, wanted) for wanted in accepted)
    absolute, relative = tests.absolute_tolerance, tests.relative_tolerance
    return any(values_match(value, wanted, absolute, relative, tests.tuples_as_lists) for wanted in accepted)


def _same_elements(value: Any, wanted: Any) -> bool:
    try:
        return set(value) == set(wanted)
    except TypeError:  # not iterable, or elements that have no hash
        return False


def values_match(
    value: Any, wanted: Any, absolute: float = 0.0, relative: float = 0.0, tuples_as_lists: bool = False
) -> bool:
    """Equality of plain values: Python's own, with not-a-number equal to itself and numbers within a tolerance."""
    tolerances = (absolute, relative, tuples_as_lists)
    if isinstance(value, NUMBERS) and isinstance(wanted, NUMBERS):
        return _numbers_match(value, wanted, absolute, relative)
    if tuples_as_lists:
        value = list(value) if isinstance(value, tuple) else value
        wanted = list(wanted) if isinstance(wanted, tuple) else wanted
    if isinstance(value, Iterator) and isinstance(wanted, Iterator):
        # Only iterators rebuilt from the wire come here; they are over lists and can be copied by their state.
        value, wanted = _items(value), _items(wanted)
    if isinstance(wanted, (list, tuple)):
        return (
            type(value) is type(wanted)
            and len(value) == len(wanted)
            and all(
                values_match(mine, theirs, *tolerances) for mine, theirs in zip(value, wanted, strict=True)
            )
        )
    if isinstance(wanted, dict):
        return (
            isinstance(value, dict)
            and value.keys() == wanted.keys()
            and all(values_match(value[key], wanted[key], *tolerances) for key in wanted)
        )
    return bool(value == wanted)


def _items(iterator: Iterator[Any]) -> list[Any]:
    import copy

    return list(copy.copy(iterator))


def _numbers_match(value: Any, wanted: Any, absolute: float, relative: float) -> bool:
    if value == wanted or (value != value and wanted != wanted):
        return True
    if absolute == 0 and relative == 0:
        return False
    try:
        return abs(value - wanted) <= absolute + relative * abs(wanted) and math.isfinite(abs(value))
    except OverflowError:  # an integer beyond every float
        return False


def output_matches(output: str, wanted: str, tests: StdioTests) -> bool:
    """Compare printed text line by line; a line may differ in blanks and in how its numbers are written."""
    mine, theirs = _lines(output), _lines(wanted)
    return len(mine) == len(theirs) and all(
        left == right or _words_match(left.split(), right.split(), tests)
        for left, right in zip(mine, theirs, strict=True)
    )


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _words_match(mine: list[str], theirs: list[str], tests: StdioTests) -> bool:
    return len(mine) == len(theirs) and all(
        left == right or _number_words_match(left, right, tests)
        for left, right in zip(mine, theirs, strict=True)
    )


def _number_words_match(left: str, right: str, tests: StdioTests) -> bool:
    if len(left) > LONGEST_NUMBER or len(right) > LONGEST_NUMBER:
        return False
    try:
        mine, theirs = Decimal(left), Decimal(right)
    except InvalidOperation:
        return False
    if not (mine.is_finite() and theirs.is_finite()):
        return False  # "nan" and "inf" are words, and words were compared already
    if mine == theirs:
        return True
    # Tolerance is for numbers with a fraction: 10**17 and 10**17 + 1 are different answers.
    if "." not in right and "e" not in right.lower():
        return False
    return abs(float(mine) - float(theirs)) <= tests.absolute_tolerance + tests.relative_tolerance * abs(
        float(theirs)
    )
