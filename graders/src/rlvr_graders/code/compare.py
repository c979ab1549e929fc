"""Whether what a program gave is what was asked for. Runs in the grader, on plain values only.

Nothing here may cost more than the expectation does: an answer is read only as far as a right one could reach.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rlvr_graders.code.cases import Call, FunctionTests, StdioTests
from rlvr_graders.code.sandbox.wire import WireError, decode, distinct, encode

NUMBERS = (int, float, complex)
# Bytes that may be more than the expectation's: a float takes up to 24 where the integer of the same value takes 3,
# and a list that is compared as a set may say things twice.
LONGER, MORE_BYTES = 32, 4096
MORE_AS_SET = 1 << 16
# A number as Python prints it: no leading zeros, no plus sign, no digits of other scripts.
NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,399})(\.[0-9]{1,400})?(e[+-]?[0-9]{1,4})?", re.ASCII | re.IGNORECASE)
BLANKS = re.compile(r"([ \t]+)")


def most_items(call: Call, tests: FunctionTests) -> int:
    """As many bytes as an accepted value has, of which each of its items takes one."""
    if tests.comparison == "not_none":
        return 1 << 32
    longest = max(len(encode(value)) for value in (call.expected, *call.alternatives))
    return longest + (MORE_AS_SET if tests.comparison == "set" else 0)


def most_bytes(items: int) -> int:
    """The longest answer, in `wire` form or in characters, that is looked at where a right one has so many."""
    return LONGER * items + MORE_BYTES


def answer_matches(encoded: bytes, call: Call, tests: FunctionTests, most: int | None = None) -> bool:
    """Compare a return value, in `wire` form, with the expectation and its alternatives."""
    if tests.comparison == "not_none":  # nothing has to be unpacked
        return (encoded not in (b"N", b"F")) == call.expected
    accepted = (call.expected, *call.alternatives)
    most = most_items(call, tests) if most is None else most
    if len(encoded) > most_bytes(most):
        return False
    try:
        value = decode(encoded, most)
        if tests.comparison == "set":
            return any(_same_elements(value, wanted) for wanted in accepted)
    except WireError:
        return False
    return any(values_match(value, wanted, tests) for wanted in accepted)


def _same_elements(value: Any, wanted: Any) -> bool:
    try:
        elements = set(wanted)
        if isinstance(value, range):
            value = value[: len(elements) + 1]  # its items differ: one too many is enough
        return distinct(list(value)) == elements
    except TypeError:  # not iterable, or elements that have no hash
        return False


def values_match(value: Any, wanted: Any, tests: FunctionTests) -> bool:
    """Equality of plain values: Python's own, with not-a-number equal to itself and numbers within the tests' tolerance."""
    if isinstance(value, NUMBERS) and isinstance(wanted, NUMBERS):
        return _numbers_match(value, wanted, tests)
    if tests.tuples_as_lists:
        value = list(value) if isinstance(value, tuple) else value
        wanted = list(wanted) if isinstance(wanted, tuple) else wanted
    if isinstance(value, Iterator) and isinstance(wanted, Iterator):
        # Only iterators rebuilt from the wire come here; they are over lists and can be copied by their state.
        value, wanted = list(copy.copy(value)), list(copy.copy(wanted))
    if isinstance(wanted, (list, tuple)):
        return (
            type(value) is type(wanted)
            and len(value) == len(wanted)
            and all(values_match(mine, theirs, tests) for mine, theirs in zip(value, wanted, strict=True))
        )
    if isinstance(wanted, dict):
        return (
            isinstance(value, dict)
            and value.keys() == wanted.keys()
            and all(values_match(value[key], wanted[key], tests) for key in wanted)
        )
    return bool(value == wanted)


def _numbers_match(value: Any, wanted: Any, tests: FunctionTests | StdioTests) -> bool:
    absolute, relative = tests.absolute_tolerance, tests.relative_tolerance
    if value == wanted or (value != value and wanted != wanted):
        return True
    if absolute == 0 and relative == 0:
        return False
    try:
        if isinstance(wanted, int):  # a share of a whole number is for fractions; and 1e18 - (10**18 + 1) is 0.0
            return isinstance(value, (int, float)) and abs(Fraction(value) - wanted) <= absolute
        # Infinity is near nothing, and everything would be within a share of it.
        near = abs(value - wanted) <= absolute + relative * abs(wanted)
        return near and math.isfinite(abs(value)) and math.isfinite(abs(wanted))
    except (OverflowError, ValueError):  # an integer beyond every float; infinity and not-a-number are no fractions
        return False


def output_matches(output: str, wanted: str, tests: StdioTests) -> bool:
    """Compare printed text line by line. Blanks at the end of a line, and empty lines before and after the text, do
    not count; numbers may be written with more or fewer digits after the point."""
    if len(output) > most_bytes(len(wanted)):
        return False
    mine, theirs = _lines(output), _lines(wanted)
    return len(mine) == len(theirs) and all(
        left == right or _words_match(BLANKS.split(left), BLANKS.split(right), tests)
        for left, right in zip(mine, theirs, strict=True)
    )


def _lines(text: str) -> list[str]:
    lines = [line.rstrip(" \t\r") for line in text.split("\n")]
    filled = [number for number, line in enumerate(lines) if line]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _words_match(mine: list[str], theirs: list[str], tests: StdioTests) -> bool:
    return len(mine) == len(theirs) and all(
        left == right or _number_words_match(left, right, tests) for left, right in zip(mine, theirs, strict=True)
    )


def _number_words_match(left: str, right: str, tests: StdioTests) -> bool:
    if not (NUMBER.fullmatch(left) and NUMBER.fullmatch(right)):
        return False
    mine, theirs = Decimal(left), Decimal(right)
    if mine == theirs:
        return True
    # Tolerance is for numbers with a fraction: 10**17 and 10**17 + 1 are different answers.
    if "." not in right and "e" not in right.lower():
        return False
    return _numbers_match(float(mine), float(theirs), tests)
