"""Comparing what a program gave with what was asked for: no sandbox involved."""

from __future__ import annotations

import datetime
import time
from decimal import Decimal
from fractions import Fraction

import pytest

from rlvr_graders.code import Call, FunctionTests, Run, StdioTests
from rlvr_graders.code.compare import answer_matches, output_matches, values_match
from rlvr_graders.code.sandbox.wire import encode

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "wanted", "options", "equal"),
    [
        (1, 1.0, {}, True),
        (True, 1, {}, True),  # as Python has it
        ("1", 1, {}, False),
        ([1, 2], (1, 2), {}, False),
        ([(1, 2)], [[1, 2]], {"tuples_as_lists": True}, True),
        (NAN, NAN, {}, True),
        ([NAN], [1.0], {"absolute_tolerance": 1e9}, False),
        (0.3, 0.1 + 0.2, {}, False),
        (0.3, 0.1 + 0.2, {"absolute_tolerance": 1e-9}, True),
        ([1.0, 2.1], [1.0, 2.0], {"relative_tolerance": 0.06}, True),
        ([1.0, 2.1], [1.0, 2.0], {"relative_tolerance": 0.04}, False),
        ({"a": 1.0000001}, {"a": 1}, {"absolute_tolerance": 1e-6}, True),
        ({"a": 1, "b": 2}, {"a": 1}, {}, False),
        ({1, 2}, {2, 1}, {}, True),
        (1 + 1e-9j, 1 + 0j, {"absolute_tolerance": 1e-6}, True),
        (INFINITY, 1e308, {"absolute_tolerance": 1e308}, False),
        (0.0, INFINITY, {"relative_tolerance": 1e-5}, False),  # everything is within a share of infinity
        (-INFINITY, INFINITY, {"relative_tolerance": 1e-5}, False),
        (INFINITY, INFINITY, {"relative_tolerance": 1e-5}, True),
        (10**400, 1.0, {"absolute_tolerance": 1e-6}, False),
        (2**200 + 1, 2**200, {}, False),
        # a share of a whole number is no tolerance
        (100_001, 100_000, {"relative_tolerance": 1e-4}, False),
        ([100_001], [100_000], {"relative_tolerance": 1e-4, "absolute_tolerance": 1e-8}, False),
        (1e18, 10**18 + 1, {"relative_tolerance": 1e-4, "absolute_tolerance": 1e-8}, False),
        (100_001, 100_000.0, {"relative_tolerance": 1e-4}, True),
        (2.9999999999, 3, {"relative_tolerance": 1e-4, "absolute_tolerance": 1e-8}, True),
        (NAN, 3, {"absolute_tolerance": 1e-8}, False),
        (INFINITY, 3, {"absolute_tolerance": 1e-8}, False),
        (None, False, {}, False),
        ([], None, {}, False),
        (Decimal("1.50"), Decimal("1.5"), {}, True),
        (Fraction(1, 2), 0.5, {}, True),
        (datetime.date(2024, 2, 29), datetime.date(2024, 2, 29), {}, True),
        (datetime.datetime(2024, 2, 29), datetime.date(2024, 2, 29), {}, False),
    ],
)
def test_values(value, wanted, options, equal):
    tests = FunctionTests("f", (Call((), wanted),), **options)
    assert values_match(value, wanted, tests) is equal


def matches(encoded, expected, comparison="equal", **options):
    tests = FunctionTests("f", (Call((), expected),), comparison=comparison, **options)
    return answer_matches(encoded, tests.calls[0], tests)


def test_comparisons():
    def check(comparison, value, expected):
        return matches(encode(value), expected, comparison)

    assert check("set", [2, 1, 1], (1, 2))
    assert check("set", [1] * 1000, (1,))  # one hash a thousand times is no attack
    assert check("set", range(2), (0, 1))
    assert not check("set", range(3), (0, 1))
    assert not check("set", [2, 1, 3], (1, 2))
    assert not check("set", 7, (1, 2))
    assert not check("set", [[1]], (1, 2))  # a list has no hash
    assert check("not_none", "x", True)
    assert check("not_none", object(), True)
    assert check("not_none", None, False)
    assert not check("not_none", None, True)
    assert not check("not_none", False, True)
    assert not check("equal", "x" * 100_000, "x")
    tests = FunctionTests("f", (Call((), [3], alternatives=(3,)),))
    assert answer_matches(encode(3), tests.calls[0], tests)
    assert answer_matches(encode([3]), tests.calls[0], tests)
    assert not answer_matches(encode(4), tests.calls[0], tests)
    assert not answer_matches(b"garbage", tests.calls[0], tests)


PRIME = 2**61 - 1  # the hash of an integer is its remainder by this
COLLIDING = b"".join(b"i%x;" % (PRIME * number) for number in range(200_000))
HOSTILE = {
    "signalling not-a-number": b"m4:sNaN",
    "the same in a list": b"l1:m4:sNaN",
    "decimal with a huge exponent": b"m11:1e200000000",
    "decimal with many digits": b"m1000000:" + b"1" * 1_000_000,
    "float with many digits": b"f" + b"1" * 1_000_000 + b";",
    "long range": encode(range(10**9)),
    "range beyond every machine": encode(range(-(10**100), 10**100)),
    "long integer": b"i" + b"f" * 4_000_000 + b";",
    "long fraction": b"xt2:i" + b"f" * 2_000_000 + b";i1" + b"e" * 2_000_000 + b";",
    "colliding set": b"S200000:" + COLLIDING,
    "colliding list": b"l200000:" + COLLIDING,
    "colliding keys": b"kl200000:" + COLLIDING,
    "colliding dictionary": b"d100000:" + COLLIDING,
    "colliding tuples": b"S50000:" + b"".join(b"t1:i%x;" % (PRIME * number) for number in range(50_000)),
    "sets without end": b"l5000000:" + b"S0:" * 5_000_000,
    "nothing without end": b"l9000000:" + b"N" * 9_000_000,
    "deep": b"l1:" * 1_000_000 + b"N",
}


@pytest.mark.parametrize("wanted", [7, set(range(5000)), list(range(100_000)), Fraction(1, 3), Decimal("0.1")])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_answer_takes_long_or_raises(name, wanted):
    """Every one of these took minutes, gigabytes or the whole batch, where it was compared as Python compares."""
    start = time.process_time()
    assert not matches(HOSTILE[name], wanted, absolute_tolerance=1e-6)
    if isinstance(wanted, (set, list)):
        assert not matches(HOSTILE[name], wanted, "set")
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("output", "wanted", "equal"),
    [
        ("1 2\n", "1 2", True),
        ("\n1 2 \n\n", "1 2\n", True),
        ("1 2\r\n3\r\n", "1 2\n3\n", True),
        ("1  2", "1 2", False),
        ("1\t2", "1 2", False),
        (" 1", "1", False),
        ("1\n 2", "1\n2", False),
        (" *\n***", " *\n***\n", True),
        ("*\n***", " *\n***", False),
        ("1\n2", "1 2", False),  # lines are lines
        ("1\n\n2", "1\n2", False),
        ("1 2 3", "1 2", False),
        ("YES", "yes", False),
        ("007", "7", False),
        ("7", "007", False),
        ("01.5", "1.5", False),
        ("+7", "7", False),
        ("1_000", "1000", False),
        (".5", "0.5", False),
        ("\u0667", "7", False),  # seven, in Arabic
        ("1.0", "1", True),
        ("1.50 x", "1.5 x", True),
        ("-0.0", "0.0", True),
        ("1e3", "1000.0", True),
        ("100000000000000001", "100000000000000000", False),
        ("nan", "nan", True),
        ("nan", "1", False),
        ("inf", "1e999", False),
        ("0.333333", "0.3333333333", False),
        ("", "", True),
        ("0", "", False),
        ("1" * 500, "1" * 500, True),
        ("1" * 500, "1" * 499 + "2", False),
        ("1\n" * 1_000_000, "1\n", False),
    ],
)
def test_outputs(output, wanted, equal):
    assert output_matches(output, wanted, StdioTests((Run("", wanted),))) is equal


def test_outputs_within_a_tolerance():
    tests = StdioTests((Run("", ""),), absolute_tolerance=1e-4, relative_tolerance=1e-6)
    assert output_matches("0.33333", "0.3333333333", tests)
    assert not output_matches("0.334", "0.3333333333", tests)
    assert not output_matches("5", "1e999", tests)  # which is infinity as a float
    whole = StdioTests((Run("", ""),), absolute_tolerance=10)
    assert not output_matches("3", "4", whole)  # whole numbers are exact
