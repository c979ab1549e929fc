"""Values of expressions, with as many digits as it takes to tell two of them apart.

The precision follows from the numbers themselves: `Spread` keeps the largest and the smallest size met on the way, and two values
are one only if they agree far below the smallest of them. So 1 and 1 - e^{-1000} differ, and no threshold is absolute.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import mpmath
from mpmath import mp

from .exact import TooLarge, exact_value
from .expression import Expression, symbols
from .tokens import listed

FIRST_BITS = 512
"""Precision of the first attempt: enough for numbers whose sizes differ by a factor of 2^64."""
MOST_BITS = 60_000
_WEIGHTS = [pow(3, n, 31) for n in range(25)]
"""Of a sum without an end the first terms are added, each so many times: so only sums of the same terms are the same."""
_LARGEST_ARGUMENT = 64
"""Bits of the largest argument of exp, sin and the like."""
_MOST_TERMS = 5000
_MOST_CELLS = 400

Value = Any
"""An mpmath number or matrix."""
Point = dict[str, Any]
"""The values of the variables: fractions, or several of them for a complex number, a vector or a matrix."""


class NoValue(Exception):
    """The expression has no value there."""


class Spread:
    """The largest and the smallest size (binary exponent) of the numbers met."""

    def __init__(self) -> None:
        self.largest, self.smallest = 1, 0

    def meet(self, value: Value) -> Value:
        if isinstance(value, mpmath.matrix):
            for cell in value:
                self.meet(cell)
            return value
        if mp.isnan(value):
            raise NoValue
        for part in (value.real, value.imag) if isinstance(value, mpmath.mpc) else (value,):
            if part and not mp.isinf(part):
                size = mp.mag(part)
                self.largest, self.smallest = max(self.largest, size), min(self.smallest, size)
        return value


class Evaluation:
    """The values of some expressions at one point, and whether two of them are one."""

    def __init__(self, expressions: Sequence[Expression], point: Point, *, are_two: bool = False) -> None:
        """With `are_two`, all that matters is whether two values are one: it stops as soon as they are not."""
        self.is_complex = any(mentions(expression, ("constant", "i")) for expression in expressions)
        self.is_complex |= any(isinstance(value, tuple) and len(value) == 2 for value in point.values())
        self.point = point
        self.bits = FIRST_BITS
        self.work_out(expressions)
        needed = 256 + 4 * int(self.spread.largest - self.spread.smallest)
        if needed <= self.bits or (are_two and self.clearly_differ(*self.values)):
            return
        if needed > MOST_BITS:
            raise TooLarge
        # Once more is enough: a number that stays as small is there, and one that shrinks again is noise around zero.
        self.bits = needed
        self.work_out(expressions)

    def work_out(self, expressions: Sequence[Expression]) -> None:
        self.spread, self.terms = Spread(), 0
        with mp.workprec(self.bits):
            self.values = [self.value(expression) for expression in expressions]

    def clearly_differ(self, left: Value, right: Value) -> bool:
        """Whether two values differ by far more than the noise of numbers as large as those met."""
        if any(isinstance(value, mpmath.matrix) or mp.isinf(value) for value in (left, right)):
            return False
        with mp.workprec(self.bits):
            return left != right and bool(mp.mag(left - right) > self.spread.largest - self.bits // 4)

    def same(self, left: Value, right: Value) -> bool:
        if isinstance(left, mpmath.matrix) or isinstance(right, mpmath.matrix):
            if not (isinstance(left, mpmath.matrix) and isinstance(right, mpmath.matrix)):
                return all(map(self.vanishes, left if isinstance(left, mpmath.matrix) else right)) and not (
                    right if isinstance(left, mpmath.matrix) else left
                )
            shape = (left.rows, left.cols) == (right.rows, right.cols)
            return shape and all(self.same(a, b) for a, b in zip(left, right, strict=True))
        if mp.isinf(left) or mp.isinf(right):
            return bool(left == right)
        return self.vanishes(left - right)

    def vanishes(self, value: Value) -> bool:
        """Whether a number is nothing but noise beside those that it was made of."""
        return not value or bool(mp.mag(value) < self.spread.largest - self.bits // 2)

    def is_real(self, value: Value) -> bool:
        return not isinstance(value, mpmath.mpc) or self.vanishes(value.imag)

    # --- values ---

    def value(self, expression: Expression) -> Value:
        head, *parts = expression
        try:
            return self.spread.meet(self._value(head, parts))
        except _NO_VALUE as error:
            raise NoValue from error

    def _value(self, head: str, parts: list[Any]) -> Value:
        if head == "number":
            return mp.mpf(parts[0].numerator) / parts[0].denominator
        if head == "symbol":
            at = self.point[parts[0]]
            if isinstance(at, tuple):
                numbers = [mp.mpf(part.numerator) / part.denominator for part in at]
                width = 3 if len(at) == 9 else 1
                return (
                    mp.mpc(*numbers)
                    if len(at) == 2
                    else mp.matrix([numbers[n : n + width] for n in range(0, len(at), width)])
                )
            return mp.mpf(at.numerator) / at.denominator
        if head == "constant":
            return {"pi": +mp.pi, "e": +mp.e, "i": mp.mpc(0, 1), "infinity": mp.inf}[parts[0]]
        if head in ("vector", "basis"):
            head, parts = "matrix", [len(parts), *parts]
        if head == "matrix":
            if len(parts) > _MOST_CELLS:
                raise TooLarge
            rows, cells = parts[0], [self.value(cell) for cell in parts[1:]]
            columns = len(cells) // rows
            return mp.matrix([cells[row * columns : (row + 1) * columns] for row in range(rows)])
        if head in ("sum", "prod"):
            return self.repeated(head, parts)
        if head == "apply" and parts[0] in _FUNCTIONS and len(parts) == 2:
            head, *parts = parts
        if head == "^":
            return self.power(*parts)
        if head == "piecewise":
            return self.piecewise(parts)
        if head == "apply":
            return self.unknown(parts[0], [self.value(part) for part in parts[1:]], parts[1:])
        values = [self.value(part) for part in parts]
        if head in _BOUNDED and any(
            mp.mag(value) > _LARGEST_ARGUMENT for value in values if value and not mp.isinf(value)
        ):
            raise TooLarge
        if head in _TAILS and not isinstance(values[0], mpmath.matrix):
            self.spread.meet(_TAILS[head](values[0]))
        if head == "root":
            return self.root(*values)
        if head in _OF_MATRICES:
            is_table = isinstance(values[0], mpmath.matrix)
            if not is_table or (head != "transpose" and values[0].rows != values[0].cols):
                raise NoValue  # the trace of a number
        return _FUNCTIONS[head](*values)

    def power(self, base_of: Expression, exponent_of: Expression) -> Value:
        base, exponent = self.value(base_of), self.value(exponent_of)
        if exponent and not mp.isinf(exponent) and mp.mag(exponent) > _LARGEST_ARGUMENT and abs(base) != 1:
            raise TooLarge
        if isinstance(base, mpmath.matrix):
            return base ** int(exponent)
        if base == 0 and exponent == 0:
            raise NoValue
        degree = exact_value(exponent_of, _LARGEST_ARGUMENT * 4) if self.is_real(exponent) else None
        if degree is not None and degree.denominator == 1:
            return base ** int(degree)
        if (
            degree is not None
            and degree.denominator % 2
            and not self.is_complex
            and self.is_real(base)
            and mp.re(base) < 0
        ):
            # (-8)^{1/3} is -2, as at school
            return (-1) ** degree.numerator * abs(mp.re(base)) ** exponent
        return base**exponent

    def root(self, value: Value, degree: Value) -> Value:
        if self.is_real(value) and mp.re(value) < 0 and degree == int(degree) and int(degree) % 2:
            return -(abs(mp.re(value)) ** (1 / degree))
        return mp.sqrt(value) if degree == 2 else value ** (1 / degree)

    def piecewise(self, parts: list[Any]) -> Value:
        """The value of the branch whose condition holds: (value, condition, value, condition, ...)."""
        branches = list(zip(parts[::2], parts[1::2], strict=True))
        held = [value for value, condition in branches if condition != ("and",) and self.holds(condition)]
        held = held or [value for value, condition in branches if condition == ("and",)]  # otherwise
        values = [self.value(value) for value in held]
        if values and all(self.same(value, values[0]) for value in values[1:]):
            return values[0]
        return mp.mpc(0, 1)  # not real, like a formula outside its domain: a gap or contradiction on one side is seen

    def holds(self, condition: Expression) -> bool:
        head, *parts = condition
        if head in ("and", "or"):
            return (all if head == "and" else any)(self.holds(part) for part in parts)
        left, right = map(self.value, parts)
        if not (self.is_real(left) and self.is_real(right)):
            raise NoValue
        off = 0 if self.vanishes(left - right) else mp.sign(mp.re(left - right))
        return bool(
            {"<": off < 0, "\\le": off <= 0, ">": off > 0, "\\ge": off >= 0, "=": off == 0, "\\ne": off != 0}[head]
        )

    def repeated(self, head: str, parts: list[Any]) -> Value:
        name, low, high = parts[0], self.value(parts[1]), self.value(parts[2])
        is_endless = high == mp.inf and not mp.isinf(low)
        high = low + len(_WEIGHTS) - 1 if is_endless else high
        if low != int(low) or high != int(high):
            raise NoValue
        self.terms += max(int(high - low), 0)  # of all sums, those inside others too
        if self.terms > _MOST_TERMS:
            raise TooLarge
        before = self.point
        total = mp.mpf(head == "prod")
        for counter in range(int(low), int(high) + 1):
            self.point = {**before, name: Fraction(counter)}
            term = self.value(parts[3])
            if is_endless:
                weight = _WEIGHTS[counter - int(low)]
                term = term**weight if head == "prod" else term * weight
            total = total * term if head == "prod" else total + term
        self.point = before
        return total

    def unknown(self, name: str, values: list[Value], parts: list[Expression]) -> Value:
        """A function that nothing is known of: some number that depends on its name and its arguments alone."""
        are_complex = (isinstance(self.point.get(symbol), tuple) for symbol in symbols(parts[0]))
        is_conjugate = all(are_complex) or mentions(parts[0], ("constant", "i"))
        if name == "\\overline" and is_conjugate and not isinstance(values[0], mpmath.matrix):
            return mp.conj(values[0])
        values = [number for value in values for number in (value if isinstance(value, mpmath.matrix) else [value])]
        digits = [mp.nstr(mp.chop(value, mp.mpf(10) ** -30), 25) for value in values]
        number = int.from_bytes(hashlib.sha256("|".join((name, *digits)).encode()).digest()[:8], "big")
        return 1 + mp.mpf(number) / 2**64


def _times(one: Value, other: Value) -> Value:
    """A product; of two vectors the dot product."""
    both = isinstance(one, mpmath.matrix) and isinstance(other, mpmath.matrix)
    if both and one.cols == other.cols == 1 and one.rows == other.rows > 1:
        return sum(a * b for a, b in zip(one, other, strict=True))
    return one * other


def _cross(one: list[Value], other: list[Value]) -> Value:
    if len(one) != 3 or len(other) != 3:
        raise NoValue
    return mp.matrix([one[n - 2] * other[n - 1] - one[n - 1] * other[n - 2] for n in range(3)])


def _stairs(base: Value, count: Value, step: int) -> Value:
    """base (base - 1) (base - 2) ..., so many factors; or upwards."""
    if count != int(count) or not 0 <= count <= _MOST_TERMS:
        raise NoValue
    return reduce(lambda product, n: product * (base + step * n), range(int(count)), mp.mpf(1))


def _stepped(step: Callable[[Value], Value], value: Value) -> Value:
    """Rounded up or down; what is a whole number but for noise is that number."""
    nearest = mp.nint(value)
    return nearest if abs(value - nearest) < mp.mpf(2) ** (-mp.prec // 2) else step(value)


def _whole(values: Sequence[Value], name: str) -> Value:
    if any(value != int(value) for value in values):
        raise NoValue
    return mp.mpf(getattr(math, name)(*map(int, values)))


def mentions(expression: Expression, part: Expression) -> bool:
    inner = (each for each in expression[1:] if isinstance(each, tuple))
    return expression == part or any(mentions(each, part) for each in inner)


# What these leave of a large argument: tanh(100) is not 1, by a number that is met nowhere else.
_TAILS: dict[str, Callable[[Value], Value]] = {
    "tanh": lambda value: mp.exp(-2 * abs(value)),
    "coth": lambda value: mp.exp(-2 * abs(value)),
    "erf": lambda value: mp.exp(-(abs(value) ** 2)),
    "\\zeta": lambda value: mp.mpf(2) ** -abs(mp.re(value)),
}
_NO_VALUE = (
    *(ZeroDivisionError, OverflowError, ValueError, TypeError, mpmath.libmp.NoConvergence),
    AssertionError,  # mpmath divides by no matrix
    AttributeError,  # and compares none with a number
)
_BOUNDED = listed("sin cos tan cot sec csc cis sinh cosh tanh coth sech csch exp ! !! binom arrangements erf root")
_OF_MATRICES = listed("trace transpose det")
_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "+": lambda *terms: sum(terms[1:], terms[0]),
    "*": lambda *factors: reduce(_times, factors),
    "cross": lambda one, other: _cross(list(one), list(other)),
    "falling": lambda base, count: _stairs(base, count, -1),
    "rising": lambda base, count: _stairs(base, count, 1),
    "trace": lambda matrix: sum(matrix[n, n] for n in range(matrix.rows)),
    "/": lambda top, bottom: top / bottom,
    "-": lambda value: -value,
    "!": mp.factorial,
    "!!": mp.fac2,
    "binom": mp.binomial,
    "arrangements": lambda above, below: mp.binomial(above, below) * mp.factorial(below),
    "abs": lambda value: mp.norm(value) if isinstance(value, mpmath.matrix) else abs(value),
    "floor": lambda value: _stepped(mp.floor, value),
    "ceil": lambda value: _stepped(mp.ceil, value),
    "ln": mp.log,
    "log": lambda value, base=None: mp.log(value) if base is None else mp.log(value) / mp.log(base),
    "exp": mp.exp,
    "cis": lambda value: mp.expj(value),
    "arcsin": mp.asin, "arccos": mp.acos, "arctan": mp.atan, "arccot": mp.acot, "arcsec": mp.asec, "arccsc": mp.acsc,
    "arcsinh": mp.asinh, "arccosh": mp.acosh, "arctanh": mp.atanh,
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cot": mp.cot, "sec": mp.sec, "csc": mp.csc,
    "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "coth": mp.coth, "sech": mp.sech, "csch": mp.csch,
    "sign": mp.sign, "arg": mp.arg, "erf": mp.erf, "Re": mp.re, "Im": mp.im, "\\Gamma": mp.gamma, "\\zeta": mp.zeta,
    "max": lambda *values: max(values), "min": lambda *values: min(values),
    "gcd": lambda *values: _whole(values, "gcd"), "lcm": lambda *values: _whole(values, "lcm"),
    "det": lambda matrix: mp.det(matrix), "transpose": lambda matrix: matrix.T,
}  # fmt: skip
