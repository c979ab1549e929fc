"""Plain numbers as exact fractions: integers, decimals, fractions, mixed numbers, repeating decimals, scientific notation."""

from __future__ import annotations

import re
from fractions import Fraction

_DIGITS = r"\d+"
_DECIMAL = r"(?:\d+(?:\.\d*)?|\.\d+)"
_NUMBER = re.compile(
    rf"""
    (?P<sign>[-+]*)
    (?:
        (?P<whole>{_DIGITS})?\\frac\{{(?P<top>-?{_DECIMAL})\}}\{{(?P<bottom>-?{_DECIMAL})\}}
      | (?P<left>{_DECIMAL})/(?P<right>-?{_DECIMAL})
      | (?P<repeating>\d*\.\d*)\\overline\{{(?P<period>{_DIGITS})\}}
      | (?P<decimal>{_DECIMAL})(?:\\cdot10\^\{{(?P<power>[-+]?\d{{1,3}})\}}|[eE](?P<exponent>[-+]?\d{{1,3}}))?
    )
    """,
    re.VERBOSE | re.ASCII,
)
_PLAIN_DECIMAL = re.compile(r"[-+]?(?P<integer>\d*)(?:\.(?P<places>\d+))?", re.ASCII)


def plain_number(text: str) -> Fraction | None:
    """The exact value of a canonical answer that is one plain number; None where it is anything else."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    sign = -1 if match["sign"].count("-") % 2 else 1
    if match["top"]:
        return _fraction(match, sign)
    if match["left"]:
        bottom = Fraction(match["right"])
        return sign * Fraction(match["left"]) / bottom if bottom else None
    if match["period"]:
        return sign * _repeating(match["repeating"], match["period"])
    value = sign * Fraction(match["decimal"])
    scale = int(match["power"] or match["exponent"] or 0)
    return value * Fraction(10) ** scale


def _fraction(match: re.Match[str], sign: int) -> Fraction | None:
    top, bottom = Fraction(match["top"]), Fraction(match["bottom"])
    if bottom == 0:
        return None
    part = top / bottom
    if match["whole"] is None:
        return sign * part
    # 1\frac{4}{5} is the mixed number 1 + 4/5 by the convention of every school text; 1\frac{9}{5} is not one.
    return sign * (int(match["whole"]) + part) if 0 <= part < 1 else None


def _repeating(head: str, period: str) -> Fraction:
    integer, _, places = head.partition(".")
    # 0.1666... with places "1" and period "6": (16 - 1) / 90
    shifted = int((integer or "0") + places + period) - int((integer or "0") + places)
    return Fraction(shifted, (10 ** len(period) - 1) * 10 ** len(places))


def rounds_to(value: Fraction, decimal: str, *, least_digits: int = 6) -> bool:
    """Whether `decimal` is `value` correctly rounded, with at least that many significant digits."""
    match = _PLAIN_DECIMAL.fullmatch(decimal)
    if match is None:
        return False
    places = match["places"] or ""
    digits = (match["integer"] + places).lstrip("0")
    half_unit = Fraction(1, 2 * 10 ** len(places))
    return len(digits) >= least_digits and abs(Fraction(decimal) - value) <= half_unit


def terminates(value: Fraction) -> bool:
    """Whether the decimal expansion ends, so that a decimal can state the value exactly."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1
