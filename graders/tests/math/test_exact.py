"""Exact values against long division, against Python's own arithmetic, and against the values that workers compute."""

from __future__ import annotations

from fractions import Fraction
from math import comb, factorial

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlvr_graders.math.algebra import ValueAlgebra
from rlvr_graders.math.exact import TooLarge, exact_value, rounds_to, terminates
from rlvr_graders.math.expression import parse
from rlvr_graders.math.latex import tokens_of
from rlvr_graders.math.tokens import UnreadableAnswer

integers = st.integers(-(10**9), 10**9)
positives = st.integers(1, 10**4)


def value(text: str) -> Fraction | None:
    return exact_value(parse(tokens_of(text)))


def long_division(top: int, bottom: int) -> str:
    r"""top / bottom as 0.1\overline{6}, digit by digit as taught at school."""
    whole, rest = divmod(top, bottom)
    digits, seen = "", {}
    while rest and rest not in seen:
        seen[rest] = len(digits)
        digit, rest = divmod(rest * 10, bottom)
        digits += str(digit)
    if not rest:
        return f"{whole}.{digits}" if digits else str(whole)
    start = seen[rest]
    return f"{whole}.{digits[:start]}\\overline{{{digits[start:]}}}"


@given(integers, positives)
def test_fractions(top: int, bottom: int) -> None:
    fraction = Fraction(top, bottom)
    sign, size = ("-" if top < 0 else ""), abs(top)
    assert value(f"\\frac{{{top}}}{{{bottom}}}") == fraction
    assert value(f"{sign}\\frac{{{size}}}{{{bottom}}}") == fraction
    assert value(f"{top}/{bottom}") == fraction
    whole, rest = divmod(size, bottom)
    assert value(f"{sign}{whole}\\frac{{{rest}}}{{{bottom}}}") == fraction
    if rest:
        assert value(f"{sign}{whole} {rest}/{bottom}") == fraction


@given(st.integers(0, 10**6), st.integers(1, 997))
def test_repeating_decimals(top: int, bottom: int) -> None:
    text = long_division(top, bottom)
    assert value(text) == Fraction(top, bottom)
    assert terminates(Fraction(top, bottom)) == ("overline" not in text)


@given(integers, st.integers(0, 12), st.integers(-300, 300))
def test_decimals_and_scientific_notation(digits: int, places: int, power: int) -> None:
    number = Fraction(digits, 10**places)
    sign, size = ("-" if digits < 0 else ""), f"{abs(digits):0{places + 1}d}"
    text = f"{sign}{size[: len(size) - places]}" + (f".{size[len(size) - places :]}" if places else "")
    assert value(text) == number
    assert value(f"{text}\\cdot10^{{{power}}}") == number * Fraction(10) ** power


@given(integers, positives, st.integers(6, 12))
def test_rounding_to_six_digits_or_more(top: int, bottom: int, places: int) -> None:
    number = Fraction(top, bottom)
    scaled = round(number * 10**places)
    assume(scaled != 0)  # 0.000000 has no significant digit: nothing rounds to it
    sign, size = ("-" if scaled < 0 else ""), f"{abs(scaled):0{places + 1}d}"
    text = f"{sign}{size[:-places]}.{size[-places:]}"
    assert rounds_to(number, text, least_digits=1)
    off = scaled + (2 if scaled >= 0 else -2)
    size = f"{abs(off):0{places + 1}d}"
    assert not rounds_to(number, f"{'-' if off < 0 else ''}{size[:-places]}.{size[-places:]}", least_digits=1)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2^{2024}-1", 2**2024 - 1),
        ("50!+1", factorial(50) + 1),
        (r"\binom{200}{100}", comb(200, 100)),
        (r"1-\frac{1}{2^{100}}", 1 - Fraction(1, 2**100)),
        (r"\sqrt[3]{-8}", -2),
        (r"(\frac{8}{27})^{-2/3}", Fraction(9, 4)),
        ("(-1)^{10^{30}}", 1),
        ("7!!", 105),
        (r"\sum_{k=1}^{10} \frac{1}{k(k+1)}", Fraction(10, 11)),
        (r"\prod_{i=1}^{5} i", 120),
        (r"\gcd(12, 18)+\operatorname{lcm}(4, 6)", 18),
        (r"\lfloor -3.5 \rfloor", -4),
        ("|-7|", 7),
        (r"P(8,3)", 336),
        (r"\sqrt{" + str(10**400) + "}", 10**200),
    ],
)
def test_arithmetic(text: str, number: int | Fraction) -> None:
    assert value(text) == number


@pytest.mark.parametrize("text", [r"\sqrt{2}", "x", r"\pi", r"\frac{1}{0}", "0^0", r"(-1)!", r"\sqrt{-4}", "2^{1/2}"])
def test_what_is_not_rational(text: str) -> None:
    assert value(text) is None


@pytest.mark.parametrize("text", ["1.2.3", "--", "1 2", "፩", "2^", "(3", "|4", r"\frac{1}", "5{0}", "", "x^2^3"])
def test_what_is_not_an_expression(text: str) -> None:
    with pytest.raises(UnreadableAnswer):
        value(text)


@pytest.mark.parametrize(
    "text", ["5^{5^{5^{5}}}", "99999999999!", r"\binom{100000000}{50000000}", "2^{10^{9}}", r"\sum_{k=1}^{10^9} k"]
)
def test_what_is_too_large(text: str) -> None:
    with pytest.raises(TooLarge):
        value(text)


@settings(max_examples=60, deadline=None)
@given(st.integers(-50, 50), st.integers(1, 12), st.integers(-50, 50), st.integers(1, 12))
def test_values_with_an_irrational_part_decide_as_exact_ones_do(a: int, b: int, c: int, d: int) -> None:
    """a/b and c/d, exactly and beside the square root of 2, which sends both through mpmath."""
    expected = Fraction(a, b) == Fraction(c, d)
    pair = [parse(tokens_of(f"\\frac{{{top}}}{{{bottom}}}+\\sqrt{{2}}")) for top, bottom in ((a, b), (c, d))]
    assert ValueAlgebra().equal(pair[0], pair[1]) == expected
