"""Plain numbers as exact fractions, against long division and against SymPy."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from delta_rlvr.rewards.math.compare import NoAlgebra, judge
from delta_rlvr.rewards.math.exact import plain_number, rounds_to, terminates
from delta_rlvr.rewards.verdict import CORRECT

integers = st.integers(-(10**9), 10**9)
positives = st.integers(1, 10**4)


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
    value = Fraction(top, bottom)
    sign, size = ("-" if top < 0 else ""), abs(top)
    assert plain_number(f"\\frac{{{top}}}{{{bottom}}}") == value
    assert plain_number(f"{sign}\\frac{{{size}}}{{{bottom}}}") == value
    assert plain_number(f"{top}/{bottom}") == value
    whole, rest = divmod(size, bottom)
    assert plain_number(f"{sign}{whole}\\frac{{{rest}}}{{{bottom}}}") == value


@given(st.integers(0, 10**6), st.integers(1, 997))
def test_repeating_decimals(top: int, bottom: int) -> None:
    text = long_division(top, bottom)
    assert plain_number(text) == Fraction(top, bottom)
    assert terminates(Fraction(top, bottom)) == ("overline" not in text)


@given(integers, st.integers(0, 12), st.integers(-300, 300))
def test_decimals_and_scientific_notation(digits: int, places: int, power: int) -> None:
    value = Fraction(digits, 10**places)
    sign, size = ("-" if digits < 0 else ""), f"{abs(digits):0{places + 1}d}"
    text = f"{sign}{size[: len(size) - places]}" + (f".{size[len(size) - places :]}" if places else "")
    assert plain_number(text) == value
    assert plain_number(f"{text}\\cdot10^{{{power}}}") == value * Fraction(10) ** power


@given(integers, positives, st.integers(6, 12))
def test_rounding_to_six_digits_or_more(top: int, bottom: int, places: int) -> None:
    value = Fraction(top, bottom)
    scaled = round(value * 10**places)
    assume(scaled != 0)  # 0.000000 has no significant digit: nothing rounds to it
    sign, size = ("-" if scaled < 0 else ""), f"{abs(scaled):0{places + 1}d}"
    text = f"{sign}{size[:-places]}.{size[-places:]}"
    assert rounds_to(value, text, least_digits=1)
    off = scaled + (2 if scaled >= 0 else -2)
    size = f"{abs(off):0{places + 1}d}"
    assert not rounds_to(value, f"{'-' if off < 0 else ''}{size[:-places]}.{size[-places:]}", least_digits=1)


@pytest.mark.parametrize(
    "text", ["", "x", "1/0", r"\frac{1}{0}", "1.2.3", "--", "1 2", r"1\frac{9}{5}", "1e9999", "½", "٣"]
)
def test_what_is_not_a_plain_number(text: str) -> None:
    assert plain_number(text) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(-50, 50), st.integers(1, 12), st.integers(-50, 50), st.integers(1, 12))
def test_exact_numbers_and_sympy_decide_alike(a: int, b: int, c: int, d: int) -> None:
    pytest.importorskip("math_verify")
    from delta_rlvr.rewards.math.symbolic import SymPyAlgebra

    reference, prediction = f"\\frac{{{a}}}{{{b}}}", f"\\frac{{{c}}}{{{d}}}"
    exact = judge(reference, prediction, NoAlgebra()) == CORRECT
    assert exact == SymPyAlgebra().equal(reference, prediction) == (Fraction(a, b) == Fraction(c, d))
