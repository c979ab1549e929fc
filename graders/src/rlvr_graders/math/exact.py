"""Exact values: expressions as fractions where they are rational, and decimals as roundings of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

from .expression import Expression
from .tokens import step

QUICK_BITS = 4096
"""Largest number worked out in the process that trains; what is larger is left to a worker."""
LARGEST_BITS = 4_000_000
"""Largest number worked out at all: 5^{5^{5^{5^5}}} has no business in memory."""
_MOST_TERMS = 10_000
_DECIMAL = re.compile(r"[-+]?(?P<integer>[0-9]*)(?:\.(?P<places>[0-9]+))?")


class TooLarge(Exception):
    """The value is too large to be worked out."""


def exact_value(
    expression: Expression, largest: int = LARGEST_BITS, names: dict[str, Fraction] | None = None
) -> Fraction | None:
    """The value of an expression, where arithmetic shows it to be rational; None where it does not (or there is no value).

    `names` are the values of its variables. Raises `TooLarge` where a number on the way would have more than `largest` bits.
    """
    return _Exact(largest).value(expression, names or {})


class _Exact:
    def __init__(self, largest: int) -> None:
        self.largest = largest
        self.terms = 0

    def checked(self, bits: float) -> None:
        if bits > self.largest:
            raise TooLarge

    def value(self, expression: Expression, names: dict[str, Fraction]) -> Fraction | None:
        step(4)
        head, *parts = expression
        if head == "number":
            number: Fraction = parts[0]
            return number
        if head == "symbol":
            return names.get(parts[0])
        if head in ("sum", "prod"):
            return self.repeated(head, parts, names)
        if head not in _OPERATIONS:
            return None
        values = [self.value(part, names) for part in parts]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        self.checked(sum(map(_bits, known)))
        return _OPERATIONS[head](self, *known)

    def repeated(self, head: str, parts: list[Expression], names: dict[str, Fraction]) -> Fraction | None:
        name, low, high = str(parts[0]), self.value(parts[1], names), self.value(parts[2], names)
        if low is None or high is None or low.denominator != 1 or high.denominator != 1:
            return None
        self.terms += max(int(high - low), 0)  # of all sums, those inside others too
        if self.terms > _MOST_TERMS:
            raise TooLarge
        total = Fraction(head == "prod")
        for counter in range(int(low), int(high) + 1):
            value = self.value(parts[3], {**names, name: Fraction(counter)})
            if value is None:
                return None
            total = total * value if head == "prod" else total + value
            self.checked(_bits(total))
        return total

    def power(self, base: Fraction, exponent: Fraction) -> Fraction | None:
        if exponent.denominator != 1:
            root = self.root(base, Fraction(exponent.denominator))
            return None if root is None else self.power(root, Fraction(exponent.numerator))
        if base == 0 and exponent <= 0:
            return None
        if abs(base) != 1:
            self.checked(_bits(base) * abs(exponent.numerator))
        return base ** (exponent.numerator if abs(base) != 1 else exponent.numerator % 2)

    def root(self, value: Fraction, degree: Fraction) -> Fraction | None:
        """The root where it is rational. The odd root of a negative number is the real one, as at school."""
        if degree.denominator != 1 or not 0 < degree <= 64 or (value < 0 and degree % 2 == 0):
            return None
        self.checked(_bits(value) * 8)  # the search below squares numbers of that size
        top, bottom = (_whole_root(abs(part), int(degree)) for part in value.as_integer_ratio())
        if top is None or bottom is None:
            return None
        return Fraction(top if value >= 0 else -top, bottom)

    def factorial(self, value: Fraction, product: Callable[[int], int] = math.factorial) -> Fraction | None:
        if value.denominator != 1 or value < 0:
            return None
        number = int(value)
        self.checked(number * number.bit_length())
        return Fraction(product(number))

    def binomial(self, above: Fraction, below: Fraction) -> Fraction | None:
        if above.denominator != 1 or below.denominator != 1 or above < 0 or below < 0:
            return None
        n, k = int(above), min(int(below), int(above) - int(below))
        if k < 0:
            return Fraction(0)
        self.checked(k * n.bit_length())
        return Fraction(math.comb(n, k))

    def arrangements(self, above: Fraction, below: Fraction) -> Fraction | None:
        count, orders = self.binomial(above, below), self.factorial(below)
        return None if count is None or orders is None else count * orders

    def integers(self, function: Callable[..., int], *values: Fraction) -> Fraction | None:
        if any(value.denominator != 1 for value in values):
            return None
        return Fraction(function(*map(int, values)))


_OPERATIONS: dict[str, Callable[..., Fraction | None]] = {
    "+": lambda exact, *terms: sum(terms[1:], terms[0]),
    "*": lambda exact, *factors: math.prod(factors[1:], start=factors[0]),
    "/": lambda exact, top, bottom: top / bottom if bottom else None,
    "-": lambda exact, value: -value,
    "^": _Exact.power,
    "root": _Exact.root,
    "!": _Exact.factorial,
    "!!": lambda exact, value: exact.factorial(value, lambda number: math.prod(range(number, 0, -2))),
    "binom": _Exact.binomial,
    "arrangements": _Exact.arrangements,
    "abs": lambda exact, value: abs(value),
    "floor": lambda exact, value: Fraction(math.floor(value)),
    "ceil": lambda exact, value: Fraction(math.ceil(value)),
    "max": lambda exact, *values: max(values),
    "min": lambda exact, *values: min(values),
    "gcd": lambda exact, *values: exact.integers(math.gcd, *values),
    "lcm": lambda exact, *values: exact.integers(math.lcm, *values),
}


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _whole_root(value: int, degree: int) -> int | None:
    """The whole number whose power is `value`; None where there is none. By Newton's rule, exact for any size."""
    if value < 2 or degree == 1:
        return value
    guess = 1 << -(-value.bit_length() // degree)
    while True:
        better = ((degree - 1) * guess + value // guess ** (degree - 1)) // degree
        if better >= guess:
            return guess if guess**degree == value else None
        guess = better


def rounds_to(value: Fraction, decimal: str, *, least_digits: int = 6, cut: bool = False) -> bool:
    """Whether `decimal` is `value` correctly rounded (or, with `cut`, cut off), with at least that many significant digits."""
    match = _DECIMAL.fullmatch(decimal)
    if match is None:
        return False
    places = match["places"] or ""
    digits = (match["integer"] + places).lstrip("0")
    unit = Fraction(1, 10 ** len(places))
    off = abs(Fraction(decimal) - value)
    return len(digits) >= least_digits and (
        off <= unit / 2 or (cut and off < unit and abs(Fraction(decimal)) < abs(value))
    )


def terminates(value: Fraction) -> bool:
    """Whether the decimal expansion ends, so that a decimal can state the value exactly."""
    rest = value.denominator
    while (shared := math.gcd(rest, 10**64)) > 1:
        rest //= shared
    return rest == 1
