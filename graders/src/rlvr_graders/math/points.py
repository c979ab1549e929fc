"""The points at which two expressions are compared, and their values there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from mpmath import matrix, mp

from .evaluation import Evaluation, NoValue, Point, mentions
from .exact import TooLarge, exact_value
from .expression import Expression, symbols
from .tokens import listed

_SIZES = [(37, 23), (3, 7), (53, 41), (29, 17), (5, 13), (7, 5), (61, 47), (19, 31)]
_COUNTS = [5, 8, 3, 12, 7, 10, 4, 9]
_COUNTERS = frozenset({"n", "k", "m", "N"})
"""Letters that stand for whole numbers: (-1)^n is cos(n pi)."""
_POINTS = 16
_KINKED = listed(
    "abs floor ceil max min sign root binom ! !! arrangements gcd lcm piecewise arcsin arccos arctan arccot arg ln log falling rising"
)
"""Where one of these occurs, two expressions may agree here and differ elsewhere."""
_COMPLEX = frozenset({"Re", "Im", "arg", "\\overline"})


def points(*expressions: Expression) -> Iterator[Point]:
    """Values for the variables of the expressions, of both signs and different sizes. Without variables there is one point."""
    names = sorted(frozenset().union(*map(symbols, expressions)))
    for index in range(_POINTS if names else 1):
        point: Point = {}
        for place, name in enumerate(names):
            turn = (index + 3 * place) % len(_SIZES)
            top, bottom = _SIZES[turn]
            negative = index >> (place % 3) & 1
            value = Fraction((-1) ** negative * (top + index + 2 * place), bottom)
            if name in _COUNTERS:
                point[name] = Fraction(_COUNTS[turn] + 2 * (index // len(_COUNTS)))
            elif name[0] in "zw\\" and _width(name, names, expressions) > 1:
                point[name] = tuple(
                    value * (n + 2) / (n * n + 3) - n + place * place * n * n / Fraction(3)
                    for n in range(_width(name, names, expressions))
                )
            else:
                point[name] = value
        yield point
    if names and any(has_head(expression, _KINKED) for expression in expressions):
        yield from _far_points(names, expressions)


def _width(name: str, names: Sequence[str], expressions: Sequence[Expression]) -> int:
    """How many numbers a variable is: two for a complex one, three for a vector, nine for a matrix."""
    if name.startswith("\\vec{"):
        return 3
    if name.startswith("\\mathbf{"):
        return 9
    if name[0] not in "zw" and name not in ("\\psi", "\\Psi"):
        return 1
    is_plane = any(has_head(e, _COMPLEX) or mentions(e, ("constant", "i")) for e in expressions)
    of_size = any(mentions(e, ("abs", ("symbol", name))) or has_head(e, frozenset({"abs"})) for e in expressions)
    return 2 if is_plane or (of_size and not {"x", "y"}.intersection(names)) else 1


def _far_points(names: Sequence[str], expressions: Sequence[Expression]) -> Iterator[Point]:
    """Points at which absolute values, floors and the like differ: on both sides of every constant, beyond all, near whole numbers."""
    constants = sorted({abs(value) for expression in expressions for value in _constants(expression)} - {0})
    constants = [*constants[:2], *constants[2:][-4:]] or [Fraction(1)]
    least, most = constants[0], max(constants[-1], Fraction(1))
    reals = [sign * (c + side * least / 3) for c in constants for sign in (1, -1) for side in (1, -1)]
    reals += [Fraction(0), *constants, *(-c for c in constants)]  # a step itself
    reals += [sign * (far * most + Fraction(37, 23)) for far in (2, 5, 40) for sign in (1, -1)]
    reals += [7 - min(least, Fraction(1)) / 2, min(least, Fraction(1)) / 2 - 4, Fraction(1, 97), Fraction(-1, 89)]
    counts = [math.ceil(far * most) + more for far, more in ((1, 1), (2, 3), (1, 22), (5, 8))] + [37, 123]
    if any(has_head(expression, frozenset({"piecewise"})) for expression in expressions):  # n = 1 apart from n > 1
        small = {int(c) + more for c in constants if c.denominator == 1 and c < 100 for more in (0, 1)}
        counts = [*sorted(small), *counts]
    for index in range(len(reals)):
        point: Point = {}
        for place, name in enumerate(names):
            turn = index * (2 * place + 1) + 5 * place
            width = _width(name, names, expressions)
            value = reals[turn % len(reals)]
            point[name] = Fraction(counts[turn % len(counts)]) if name in _COUNTERS else value
            if width > 1:
                point[name] = tuple(value * (n + 1) - n + place * place * n * n for n in range(width))
        yield point


def _constants(expression: Expression) -> Iterator[Fraction]:
    """The values of the largest parts without variables."""
    if expression[0] not in ("<", ">", "\\le", "\\ge", "=", "\\ne", "and", "or") and not symbols(expression):
        try:
            with mp.workprec(64):
                value = exact_value(expression, 4096)
                found = Evaluation([expression], {}).values[0] if value is None else value
                yield Fraction(found if value is not None else str(mp.nstr(mp.re(found), 15)))
        except (NoValue, TooLarge, ValueError, TypeError):
            pass
        return
    for part in expression[1:]:
        if isinstance(part, tuple):
            yield from _constants(part)


def has_head(expression: Expression, heads: frozenset[str]) -> bool:
    inner = (part for part in expression[1:] if isinstance(part, tuple))
    is_here = expression[0] in heads or (expression[0] == "apply" and expression[1] in heads)
    return is_here or any(has_head(part, heads) for part in inner)


def evaluations(expressions: Sequence[Expression], *, are_two: bool = False) -> Iterator[Evaluation]:
    """Their values at each point where all of them have one."""
    for index, point in enumerate(points(*expressions)):
        try:
            evaluation = Evaluation(expressions, point, are_two=are_two)
        except NoValue:
            continue
        except TooLarge:
            if index < _POINTS:
                raise
            continue
        if index >= _POINTS and any(not isinstance(value, matrix) and mp.isinf(value) for value in evaluation.values):
            continue  # on a pole
        with mp.workprec(evaluation.bits):  # what the caller does with the values has their precision
            yield evaluation


def equal_exactly(expression: Expression, other: Expression) -> bool | None:
    """Whether both have the same value at every point; None where one of them is not rational everywhere."""
    for index, point in enumerate(points(expression, other)):
        known = {name: value for name, value in point.items() if isinstance(value, Fraction)}
        try:
            left, right = exact_value(expression, names=known), exact_value(other, names=known)
        except TooLarge:
            if index < _POINTS:
                raise
            continue
        if left is None or right is None:
            return None
        if left != right:
            return False
    return True
