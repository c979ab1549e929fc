"""Equality of expressions by their values. Runs in a worker process only: it may be slow, and then it is killed.

Rational numbers are compared exactly. Everything else is compared at fixed points, as `evaluation` works it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import mpmath
from mpmath import mp

from .evaluation import Value, mentions
from .exact import TooLarge, exact_value
from .expression import Expression, symbols
from .points import equal_exactly, evaluations, has_head

_ENOUGH = 3
"""Points that must have a value: two formulas that people write do not agree at three of them by chance."""
_INTEGRATED = frozenset({"x", "t", "u", "y", "z", "s", "r", "\\theta"})
_CONSTANTS = frozenset({"c", "K", "k", "C_{1}", "c_{1}", "D", "A", "C_{0}", "const", "constant", "C'"})
_BASIS = frozenset({"basis"})
_UNKNOWN = frozenset({"apply"})
_ENDLESS = frozenset({"sum", "prod"})
_LOGARITHMS = frozenset({"ln", "log"})
_FAMILY_REACH = 12


def equal(expected: Expression, given: Expression) -> bool:
    """Whether both have the same value, whatever their variables are."""
    if expected == given:
        return True
    try:
        return _agree(expected, given)
    except TooLarge:
        # 10^{10^{10}} and 10^{10000000000}: part by part
        if (
            expected[0] != given[0]
            or len(expected) != len(given)
            or not any(isinstance(part, tuple) for part in expected)
        ):
            raise
        parts = zip(expected[1:], given[1:], strict=True)
        if all(equal(one, other) if isinstance(one, tuple) else one == other for one, other in parts):
            return True
        raise


def _agree(expected: Expression, given: Expression) -> bool:
    if has_head(expected, _BASIS) or has_head(given, _BASIS):  # 3i - 2j is (3, -2, 0)
        expected, given = _in_space(expected), _in_space(given)
    if _are_of_matrices(expected, given):
        expected, given = _of_matrices(expected), _of_matrices(given)
    names, others = symbols(expected), symbols(given)
    if "C" in names and len(names) == 2 and names - {"C"} <= _INTEGRATED:
        constant = others - names
        if "C" not in others and len(constant) == 1 and constant <= _CONSTANTS:
            (name,) = constant
            given = _replaced(given, name, ("symbol", "C"))
        return _same_antiderivative(expected, given)
    return _same_everywhere(expected, given)


def _are_of_matrices(*expressions: Expression) -> bool:
    """Whether letters stand in products whose order matters: AB and BA, or capitals alone with an inverse or a transpose."""
    pairs = _neighbours(expressions[0])
    if any(one != two and (two, one) in pairs for one, two in pairs):
        return True
    names = frozenset().union(*map(symbols, expressions))
    if len(names) < 2 or not all(len(name) == 1 and name.isupper() for name in names):
        return False
    powers = (("number", Fraction(-1)), ("-", ("number", Fraction(1))), ("symbol", "T"))
    is_inverse = any(mentions(expression, power) for expression in expressions for power in powers)
    return is_inverse and not any(has_head(expression, frozenset({"/"})) for expression in expressions)


def _neighbours(expression: Expression) -> set[tuple[Expression, Expression]]:
    """Capitals, or letters with hats, that follow each other in a product."""
    found: set[tuple[Expression, Expression]] = set()
    if expression[0] == "*":
        bases = [part[1] if part[0] == "^" else part for part in expression[1:]]
        found = {(one, two) for one, two in pairwise(bases) if _is_operator(one) and _is_operator(two)}
    inner = (_neighbours(part) for part in expression[1:] if isinstance(part, tuple))
    return found.union(*inner)


def _is_operator(expression: Expression) -> bool:
    is_capital = expression[0] == "symbol" and (expression[1][0].isupper() or expression[1].startswith("\\hat"))
    return is_capital or expression[:2] == ("apply", "\\hat")


def _in_space(expression: Expression) -> Expression:
    parts = [_in_space(part) if isinstance(part, tuple) else part for part in expression[1:]]
    if (expression[0], len(parts)) == ("vector", 2) or (
        expression[0] == "matrix" and expression[1] == 2 and len(parts) == 3
    ):
        return ("vector", *parts[-2:], ("number", Fraction(0)))
    return (expression[0], *parts)


def _of_matrices(expression: Expression) -> Expression:
    if _is_operator(expression):
        name = expression[1] if expression[0] == "symbol" else f"\\hat{expression[2]}"
        return ("symbol", f"\\mathbf{{{name}}}")
    parts = [_of_matrices(part) if isinstance(part, tuple) else part for part in expression[1:]]
    if expression[0] == "^" and expression[2] == ("symbol", "T"):
        return ("transpose", parts[0])
    return (expression[0], *parts)


def _same_everywhere(expected: Expression, given: Expression) -> bool:
    enough = _ENOUGH if symbols(expected) | symbols(given) else 1
    decided = equal_exactly(expected, given)
    if decided is not None:
        return decided
    agreed = outside = 0
    of_positive = len(symbols(expected)) > 1 and all(has_head(e, _LOGARITHMS) for e in (expected, given))
    of_positive &= not any(has_head(e, frozenset({"abs"})) for e in (expected, given))
    for point in evaluations([expected, given], are_two=True):
        left, right = point.values
        if not point.is_complex and not isinstance(left, mpmath.matrix) and not isinstance(right, mpmath.matrix):
            real = point.is_real(left), point.is_real(right)
            if real == (False, False):  # outside the domain of both
                outside += point.same(left, right)
                continue
            if not all(real):
                if of_positive:  # \log x + \log y has no value where \log xy has one
                    continue
                return False
        if not point.same(left, right):
            return False
        agreed += 1
    return agreed >= enough or (not agreed and outside >= enough)


def _same_antiderivative(expected: Expression, given: Expression) -> bool:
    """Formulas with a free constant C are the same where they differ by a constant."""
    one = ("+", ("symbol", "C"), ("number", Fraction(1)))
    difference: Value = None
    agreed = 0
    for point in evaluations([expected, given, _replaced(expected, "C", one), _replaced(given, "C", one)]):
        if any(isinstance(value, mpmath.matrix) for value in point.values):
            return _same_everywhere(expected, given)
        left, right, raised_left, raised_right = point.values
        if not (point.same(raised_left - left, mp.mpf(1)) and point.same(raised_right - right, mp.mpf(1))):
            return _same_everywhere(expected, given)
        if not point.is_complex and not (point.is_real(left) and point.is_real(right)):
            continue
        if difference is not None and not point.same(left - right, difference):
            return False
        difference = left - right
        agreed += 1
    return agreed >= _ENOUGH


def _replaced(expression: Expression, name: str, other: Expression) -> Expression:
    if expression == ("symbol", name):
        return other
    return tuple(_replaced(part, name, other) if isinstance(part, tuple) else part for part in expression)


def proportional(expected: Expression, given: Expression, *, positive: bool) -> bool:
    """Whether one is the other times a constant (that is positive): then both vanish at the same places (and have one sign)."""
    ratio: Value = None
    agreed = 0
    for point in evaluations([expected, given]):
        left, right = point.values
        if isinstance(left, mpmath.matrix) or isinstance(right, mpmath.matrix):
            return False
        if point.vanishes(left) or point.vanishes(right):
            if point.vanishes(left) != point.vanishes(right):
                return False
            continue
        here = left / right
        if ratio is not None and not point.same(here, ratio):
            return False
        if positive and not (point.is_real(here) and mp.re(here) > 0):
            return False
        ratio = here
        agreed += 1
    return agreed >= (_ENOUGH if symbols(expected) | symbols(given) else 1)


def solves(name: str, value: Expression, equation: Expression) -> bool:
    """Whether `equation` = 0 says the same as `name` = `value`: it is linear in the name, and the value solves it."""
    if name in symbols(value) or name not in symbols(equation):
        return False
    steps = [("+", ("symbol", name), ("number", Fraction(step))) for step in (1, 2)]
    agreed = 0
    for point in evaluations(
        [_replaced(equation, name, value), equation, *(_replaced(equation, name, s) for s in steps)]
    ):
        if any(isinstance(value, mpmath.matrix) for value in point.values):
            return False
        solved, first, second, third = point.values
        slope = second - first
        if not point.vanishes(solved) or point.vanishes(slope) or not point.same(third - second, slope):
            return False
        agreed += 1
    return agreed >= _ENOUGH


def real_value(expression: Expression) -> Fraction | None:
    """The value as a fraction, exact or with hundreds of digits; None where it is not a real number."""
    value = exact_value(expression)
    if value is not None or symbols(expression):
        return value
    if has_head(expression, _UNKNOWN) or has_head(expression, _ENDLESS):  # f(2) is no number
        return None
    for point in evaluations([expression]):
        number = point.values[0]
        if isinstance(number, mpmath.matrix) or not point.is_real(number) or mp.isinf(number):
            return None
        return Fraction(*mpmath.libmp.to_rational(mp.re(number)._mpf_))
    return None


def same_family(reference: Sequence[Expression], prediction: Sequence[Expression], parameter: str) -> bool:
    """Whether both take the same values while the parameter runs through the whole numbers: near zero, each among the other's."""

    def values(expressions: Sequence[Expression], reach: int) -> list[Expression]:
        steps = sorted(range(-reach, reach + 1), key=abs)
        return [_replaced(e, parameter, ("number", Fraction(step))) for e in expressions for step in steps]

    if any(symbols(expression) - {parameter} for expression in (*reference, *prediction)):
        return False
    for ours, theirs in ((reference, prediction), (prediction, reference)):
        others = values(theirs, _FAMILY_REACH)
        if not all(any(equal(value, other) for other in others) for value in values(ours, 2)):
            return False
    return True
