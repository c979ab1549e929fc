"""The ends of an answer's structure: numbers and expressions with their units, and whether two of them are one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from .exact import QUICK_BITS, TooLarge, exact_value, rounds_to, terminates
from .expression import Expression, parse
from .numerals import ROMAN
from .structure import Node, letters
from .tokens import Tokens, UnreadableAnswer, join
from .units import NO_UNIT, Unit, plain_unit, units_conflict

Sides = tuple[Expression, Expression]
"""The two sides of an equation or inequality."""
_NUMERAL = re.compile(
    r"(-?)\(?([0-9A-Za-z]+)\)?(?:_\{(?:\\text\{base\})?([0-9]+|\\text\{[a-z]+\})\}|\(?\\text\{base\}([0-9]+)\)?)"
)
_BASES = {
    f"\\text{{{name}}}": base
    for base, name in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 2)
} | {"\\text{twelve}": 12, "\\text{sixteen}": 16}
_DEGREES, _RADIANS = Unit((("degree", 1),)), Unit((("radian", 1),))
_DECIMAL = re.compile(r"[-+]?[0-9]*\.[0-9]+")


class Undecided(Exception):
    """Text and exact numbers do not settle it: algebra is needed."""


class Algebra:
    """Decides what needs values. This one may not work out any: whoever asks it learns that the question is open."""

    def equal(self, reference: Expression, prediction: Expression) -> bool:
        raise Undecided

    def rounds(self, value: Expression, decimal: str, least_digits: int, cut: bool) -> bool:
        raise Undecided

    def equations(self, reference: Sides, prediction: Sides) -> bool:
        raise Undecided

    def inequalities(self, reference: Sides, prediction: Sides) -> bool:
        raise Undecided

    def sets(self, reference: Node, prediction: Node) -> bool:
        raise Undecided

    def families(self, reference: Sequence[Expression], prediction: Sequence[Expression], parameter: str) -> bool:
        raise Undecided


class Judge:
    """Whether a part of the reference and a part of the prediction are the same: what `compare` does, for those who compare parts."""

    algebra: Algebra

    def same(self, asked: Node, given: Node, *, in_list: bool = False) -> bool:
        raise NotImplementedError


class UnreadableReference(UnreadableAnswer):
    """It is the reference that cannot be read."""


def is_rounding(exact: Node, rounded: Node, algebra: Algebra) -> bool:
    if rounded.kind != "leaf" or exact.kind != "leaf" or not re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?", rounded.text):
        return False
    expression = parse(exact.tokens)
    value = exact_value(expression, QUICK_BITS)
    if value is None:
        return algebra.rounds(expression, rounded.text, 1, False)
    return rounds_to(value, rounded.text, least_digits=1)


def same_leaf(asked: Node, given: Node, algebra: Algebra, *, in_list: bool = False) -> bool:
    in_degrees = _DEGREES in (asked.unit, given.unit)
    is_angle = in_degrees and NO_UNIT in (asked.unit, given.unit) and "\\pi" in asked.tokens + given.tokens
    if is_angle or {asked.unit, given.unit} == {_DEGREES, _RADIANS}:
        angles = [
            ("\\frac", "{", "(", *n.tokens, ")", "\\pi", "}", "{", "180", "}") if n.unit == _DEGREES else n.tokens
            for n in (asked, given)
        ]
        return _same_value(angles[0], angles[1], algebra)
    # 1.6 \cdot 10^{-19} C is asked: beside the number alone, the letter is no variable
    is_alone = (
        given.unit == NO_UNIT and asked.tokens[-2:-1] == ("}",) and "10" in asked.tokens and not letters(given.tokens)
    )
    asked, given = _with_short_unit(asked, given.unit, is_alone=is_alone), _with_short_unit(given, asked.unit)
    if in_degrees and asked.unit.offset != given.unit.offset:  # 25 degrees are said of any scale
        asked, given = replace(asked, unit=NO_UNIT), replace(given, unit=NO_UNIT)
    if units_conflict(asked.unit, given.unit, counts_matter=in_list):
        return False
    if asked.unit.measure and given.unit.measure and "unit" not in dict(asked.unit.measure + given.unit.measure):
        (unit, bases), (other, other_bases) = asked.unit.in_bases(), given.unit.in_bases()
        offsets = asked.unit.offset, given.unit.offset
        if bases == other_bases and (unit, offsets[0]) != (other, offsets[1]):
            value = _times(_plus(given.tokens, offsets[1]), other / unit)
            return _same_value(_plus(asked.tokens, offsets[0]), value, algebra)
    if asked.tokens == given.tokens and asked.unit.is_percent == given.unit.is_percent:
        return True
    if asked.unit.is_percent != given.unit.is_percent:
        # 50% is 50 with its sign left out, and it is 0.5: both are the same answer.
        texts = [
            ("\\frac", "{", *n.tokens, "}", "{", "100", "}") if n.unit.is_percent else n.tokens for n in (asked, given)
        ]
        is_part = _is_below_one(asked.tokens) or _is_below_one(given.tokens)  # a probability 0.05 is not 0.05 %
        is_same = not is_part and _same_value(asked.tokens, given.tokens, algebra)
        return is_same or _same_value(texts[0], texts[1], algebra)
    return _same_value(asked.tokens, given.tokens, algebra)


def _is_below_one(tokens: Tokens) -> bool:
    """Of a number that can be worked out at once."""
    value = exact_value(parse(tokens), QUICK_BITS)
    return value is not None and 0 < abs(value) < 1


def _with_short_unit(node: Node, unit: Unit, *, is_alone: bool = False) -> Node:
    r"""75 s where a time is asked, and 1.6 \cdot 10^{-19} C where a charge is: there the letters are the unit."""
    if len(node.tokens) < 2 or not (unit.measure or is_alone):
        return node
    found = plain_unit(node.whole or node.tokens, unit)
    return replace(node, tokens=found[0], unit=found[1]) if found else node


def _plus(tokens: Tokens, offset: Fraction) -> Tokens:
    top, bottom = map(str, offset.as_integer_ratio())
    return (*tokens, "+", "\\frac", "{", top, "}", "{", bottom, "}") if offset else tokens


def _times(tokens: Tokens, factor: Fraction | int) -> Tokens:
    top, bottom = map(str, Fraction(factor).as_integer_ratio())
    return tokens if factor == 1 else ("\\frac", "{", "(", *tokens, ")", "\\cdot", top, "}", "{", bottom, "}")


def _same_value(asked: Tokens, given: Tokens, algebra: Algebra) -> bool:
    numerals = _numeral(asked), _numeral(given)
    if (numerals[0] is None) != (numerals[1] is None):  # ff_{16} may be a product, but not beside FF_{16}
        numerals = _numeral(asked, is_number=True), _numeral(given, is_number=True)
    if numerals[1] is not None and numerals[1][2] == 10 and numerals[0] is None:
        given = (numerals[1][1],)
    elif numerals != (None, None):
        # 52_8 is asked for in base 8: its digits and its base, nothing equal to it
        return numerals[0] == numerals[1]
    asked, given = _arabic(asked, given), _arabic(given, asked)
    if _spells(asked) and _spells(given):
        return asked == given  # HTT and TTH are words, not products
    value, number = reference_expression(asked), parse(_without_dots(given))
    try:
        exact, decimal = exact_value(value, QUICK_BITS), exact_value(number, QUICK_BITS)
    except TooLarge:
        return algebra.equal(value, number)
    text, reference = join(_without_dots(given)), join(asked)
    if exact is not None and decimal is not None:
        return exact == decimal or (bool(_DECIMAL.fullmatch(text)) and rounds_to(exact, text) and not terminates(exact))
    if decimal is not None and _DECIMAL.fullmatch(text):
        return algebra.rounds(value, text, 6, given[-1] == "\\dots") or algebra.equal(value, number)
    if exact is not None and _DECIMAL.fullmatch(reference) and algebra.rounds(number, reference, 6, False):
        return True
    return algebra.equal(value, number)


def _arabic(tokens: Tokens, other: Tokens) -> Tokens:
    """II as 2, where the other is a number."""
    value = ROMAN.get("".join(tokens)) if tokens[0] in ("I", "V", "X") and other[0].isdigit() else None
    return tokens if value is None else (value,)


def reference_expression(tokens: Tokens) -> Expression:
    try:
        return parse(tokens)
    except UnreadableAnswer as error:
        raise UnreadableReference(str(error)) from error


def _without_dots(tokens: Tokens) -> Tokens:
    r"""1.41421356\dots is a decimal that goes on."""
    return tokens[:-1] if tokens[-1] == "\\dots" and len(tokens) > 1 and "." in tokens[-2] else tokens


def _spells(tokens: Tokens) -> bool:
    """Whether the letters are a word: capitals, or a letter that comes twice, which a product would write as a power."""
    if len(tokens) < 2 or not all(len(token) == 1 and token.isalpha() for token in tokens):
        return False
    return all(map(str.isupper, tokens)) or len(set(tokens)) < len(tokens)


def _numeral(tokens: Tokens, *, is_number: bool = False) -> tuple[str, str, int] | None:
    """A number written in another base than ten: sign, digits and base. Small letters alone are one where it is known."""
    text = re.sub(r"\\text\{(\w+)\}(?=_)", r"\1", join(tokens).replace(" ", "")) if len(tokens) > 2 else ""
    match = _NUMERAL.fullmatch(text)
    if match is None:
        return None
    written = match[3] or match[4]
    base = _BASES.get(written) or (int(written) if written.isdigit() and len(written) < 3 else 0)
    digits = match[2].lstrip("0") or "0"
    if not digits.isupper() and not digits.isdigit():  # 3f_{16}; but 2x_{16} is no number
        is_number |= match[2][0].isdigit()
        is_number &= all(int(digit, 36) < base for digit in digits)
        digits = digits.upper() if is_number else "_"
    if not 2 <= base <= 36 or (len(digits) == 1 and not digits.isdigit()) or (base == 10 and not digits.isdigit()):
        return None
    return match[1], digits, base
