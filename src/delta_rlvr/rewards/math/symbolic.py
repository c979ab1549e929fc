r"""Equality of expressions, on math-verify and SymPy. Runs in a worker process only: it may hang, and then it is killed.

Expressions reach SymPy through math-verify's LaTeX grammar, never through ``sympify`` or ``parse_expr``, which evaluate Python.
Before math-verify's ``verify`` is asked, both sides are compared at fixed points with 40 digits: that decides almost every pair, at
once, and without the leniency of ``verify`` (floats rounded to 6 places, letters of any case, 9 % = 9).
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from math_verify import verify
from math_verify.grader import should_treat_as_complex

from .exact import plain_number, rounds_to
from .latex import UnreadableAnswer

DIGITS = 40
AGREEMENT = sympy.Float(10, DIGITS) ** -25
"""Largest relative difference of two values that count as one."""
LARGEST_BITS = 200_000
"""Values with more bits are not computed: 5^{5^{5^{5^5}}} has no business in memory."""
_CONVERSION = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)
_POINTS = [(37, 23), (-29, 17), (53, 41), (7, 5), (-61, 47), (19, 31), (97, 29), (-11, 43)]
_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])")
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\\degree")
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")


class SymPyAlgebra:
    """The algebra of `compare.judge`, by SymPy."""

    def equal(self, reference: str, prediction: str) -> bool:
        is_complex = _complex(reference, prediction)
        expected, given = _parsed(reference, is_complex, True), _parsed(prediction, is_complex, False)
        if expected == given:
            return True
        for side in (expected, given):
            _check_size(side)
        if isinstance(expected, sympy.Expr) and isinstance(given, sympy.Expr):
            if "." in prediction and _rounded_from(expected, prediction):
                return True
            decided = _agree(expected, given)
            if decided is not None:
                return decided
        return bool(verify(expected, given, timeout_seconds=None))

    def rounds(self, expression: str, decimal: str) -> bool:
        parsed = _parsed(expression, _complex(expression), False)
        _check_size(parsed)
        return isinstance(parsed, sympy.Expr) and _rounded_from(parsed, decimal, least_digits=1)

    def equations(self, reference: tuple[str, str], prediction: tuple[str, str]) -> bool:
        return self._proportional(reference, prediction, positive=False)

    def inequalities(self, reference: tuple[str, str], prediction: tuple[str, str]) -> bool:
        return self._proportional(reference, prediction, positive=True)

    def sets(self, reference: str, prediction: str) -> bool:
        is_complex = _complex(reference, prediction)
        expected, given = _parsed(reference, is_complex, True), _parsed(prediction, is_complex, False)
        if not isinstance(expected, sympy.Set) or not isinstance(given, sympy.Set):
            return False
        return bool(verify(expected, given, timeout_seconds=None))

    def _proportional(
        self, reference: tuple[str, str], prediction: tuple[str, str], *, positive: bool
    ) -> bool:
        """a = b and c = d are one equation where (a - b) / (c - d) is a constant; an inequality needs it positive."""
        is_complex = _complex(*reference, *prediction)
        sides = [_parsed(text, is_complex, True) for text in reference]
        sides += [_parsed(text, is_complex, False) for text in prediction]
        if not all(isinstance(side, sympy.Expr) for side in sides):
            return False
        for side in sides:
            _check_size(side)
        ratio = None
        for values in _values(sides):
            expected, given = values[0] - values[1], values[2] - values[3]
            if abs(expected) < AGREEMENT or abs(given) < AGREEMENT:
                if abs(expected) > AGREEMENT or abs(given) > AGREEMENT:
                    return False
                continue
            here = expected / given
            if ratio is not None and abs(here - ratio) > AGREEMENT * abs(ratio):
                return False
            ratio = here
        if ratio is None:
            return False
        return not positive or bool(abs(sympy.im(ratio)) < AGREEMENT and sympy.re(ratio) > 0)


def _complex(*texts: str) -> bool:
    return any(
        should_treat_as_complex(text) or re.search(r"(?<![A-Za-z\\])i(?![A-Za-z])", text) for text in texts
    )


@lru_cache(maxsize=256)
def _parsed(text: str, is_complex: bool, is_reference: bool) -> Any:
    """The SymPy object of a LaTeX text, as exact as it was written: decimals become fractions."""
    exact = _DECIMAL.sub(lambda m: f"\\frac{{{int(m[1] + m[2])}}}{{{10 ** len(m[2])}}}", text)
    if _TRIGONOMETRY.search(exact):
        exact = _DEGREES.sub(r"(\\frac{\1\\pi}{180})", exact)
    exact = exact.replace("\\newrow", r"\\")
    exact = re.sub(r"\\degree(?!\d)", "", exact)
    try:
        parsed = latex2sympy(
            exact,
            is_real=not is_complex,
            convert_degrees=False,
            normalization_config=None,
            conversion_config=_CONVERSION,
        )
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # the grammar raises bare Exception for a syntax error
        whose = "reference answer" if is_reference else "answer"
        raise UnreadableAnswer(f"{whose} {text[:60]!r} is not understood") from error
    if is_complex and isinstance(parsed, sympy.Basic):
        parsed = parsed.subs({symbol: sympy.I for symbol in parsed.free_symbols if symbol.name == "i"})
    return parsed


def _rounded_from(expected: sympy.Expr, decimal: str, least_digits: int = 6) -> bool:
    """Whether the text is a decimal of at least so many digits that the expression rounds to."""
    if plain_number(decimal) is None or expected.free_symbols:
        return False
    value = sympy.N(expected, DIGITS)
    if not value.is_Float:
        return False
    exact = sympy.Rational(value)
    return rounds_to(Fraction(int(exact.p), int(exact.q)), decimal, least_digits=least_digits)


def _agree(expected: sympy.Expr, given: sympy.Expr) -> bool | None:
    """Whether both have the same value at every point; None where too few points have one."""
    agreed = 0
    for left, right in _values([expected, given]):
        size = max(abs(left), abs(right))
        if size < AGREEMENT:
            continue  # both vanish: says nothing, and their digits are noise
        if abs(left - right) > AGREEMENT * size:
            return False
        agreed += 1
        if not (expected.free_symbols | given.free_symbols):
            return True
    return True if agreed >= 4 else None


def _values(expressions: list[sympy.Expr]) -> list[list[sympy.Expr]]:
    """The values of all expressions at each point where every one of them has a finite value."""
    symbols = sorted(
        set().union(*(expression.free_symbols for expression in expressions)), key=lambda s: s.name
    )
    rows = []
    for index in range(len(_POINTS) if symbols else 1):
        point = {}
        for place, symbol in enumerate(symbols):
            top, bottom = _POINTS[(index + 3 * place) % len(_POINTS)]
            point[symbol] = sympy.Rational(top + index + 2 * place, bottom)
        row = [sympy.N(expression.subs(point), DIGITS) for expression in expressions]
        if all(value.is_number and value.is_finite and _is_numeric(value) for value in row):
            rows.append(row)
    return rows


def _is_numeric(value: sympy.Expr) -> bool:
    real, imaginary = value.as_real_imag()
    return real.is_Float or real.is_Integer or real.is_Rational if imaginary == 0 else imaginary.is_Number


def _check_size(expression: Any) -> None:
    if isinstance(expression, sympy.Basic) and _bits(expression) > LARGEST_BITS:
        raise UnreadableAnswer("its value is too large to work out")


def _bits(expression: sympy.Basic) -> float:
    """An upper bound of the size in bits of any integer met while the expression is evaluated; infinite where unknown."""
    inner = max((_bits(argument) for argument in expression.args), default=0.0)
    if isinstance(expression, sympy.Integer):
        return float(int(expression).bit_length())
    if isinstance(expression, sympy.Rational):
        return float(expression.p.bit_length() + expression.q.bit_length())
    if isinstance(expression, sympy.Pow):
        base, exponent = expression.args
        size = _bits(exponent)
        power = 2.0**size if size < 64 else math.inf
        return max(inner, max(_bits(base), 1.0) * power if base.is_number and exponent.is_number else inner)
    if isinstance(expression, sympy.factorial) and expression.args[0].is_number:
        size = inner
        return 2.0**size * size if size < 64 else math.inf
    return inner + len(expression.args)
