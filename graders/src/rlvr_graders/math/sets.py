r"""Sets of real numbers: intervals, points, and what inequalities, \mathbb{R} and set operations make of them.

A set is kept as its stretches between two cuts. A cut stands just before or just behind a number, so that open and closed ends,
single points and complements need no cases of their own. Works with values, so it runs in a worker, like `numeric`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import reduce

from .exact import exact_value
from .expression import parse, symbols
from .numeric import real_value
from .structure import FLIPPED, Node, is_name
from .words import phrase

Cut = tuple[int, Fraction, int]
"""(-1, 0, 0) is below and (1, 0, 0) above every number; (0, value, 0) stands just before a number and (0, value, 1) just behind it."""
Stretches = tuple[tuple[Cut, Cut], ...]
BELOW: Cut = (-1, Fraction(0), 0)
ABOVE: Cut = (1, Fraction(0), 0)
EVERYTHING: Stretches = ((BELOW, ABOVE),)
_KEPT_BITS = 256
"""An irrational end of an interval is kept to so many bits: two spellings of one number are then one."""
_NAMED: dict[str, Stretches] = {
    "\\mathbb{R}": EVERYTHING,
    "\\emptyset": (),
    "\\mathbb{R}^{*}": ((BELOW, (0, Fraction(0), 0)), ((0, Fraction(0), 1), ABOVE)),
    "\\mathbb{R}_{\\ne0}": ((BELOW, (0, Fraction(0), 0)), ((0, Fraction(0), 1), ABOVE)),
    "\\mathbb{R}^{+}": (((0, Fraction(0), 1), ABOVE),),
    "\\mathbb{R}_{>0}": (((0, Fraction(0), 1), ABOVE),),
    "\\mathbb{R}_{\\ge0}": (((0, Fraction(0), 0), ABOVE),),
    "\\mathbb{R}^{-}": ((BELOW, (0, Fraction(0), 0)),),
}


def real_set(node: Node) -> Stretches | None:
    """The set that an answer describes; None where it is none of real numbers."""
    if node.kind == "tuple" and len(node.items) == 2 and node.form in ("()", "(]", "[)", "[]"):
        low, high = _cut(node.items[0], node.form[0] == "("), _cut(node.items[1], node.form[1] == "]")
        if low is None or high is None or low >= high:
            return None
        includes_infinity = (low[0] and node.form[0] == "[") or (high[0] and node.form[1] == "]")
        return None if includes_infinity else ((low, high),)
    if node.kind == "set":
        points = _known([_point(item) for item in node.items])
        return None if points is None else _union(points)
    if node.kind in ("union", "intersection", "difference"):
        members = _members(node)
        if members is None:
            return None
        if node.kind == "union":
            return _union(members)
        if node.kind == "difference":
            members[1:] = map(_complement, members[1:])
        return reduce(_intersection, members)
    if node.kind == "list":
        return _of_list(node)
    if node.kind == "relation":
        return _of_relation(node)
    return _NAMED.get(phrase(node), _NAMED.get(node.text))


def _of_list(node: Node) -> Stretches | None:
    """x < 1 or x > 3 is a union, x > 1 and x < 3 an intersection; a comma is whichever of them says something."""
    members = _members(node)
    if members is None or all(item.kind == "leaf" for item in node.items):
        return None
    both, either = reduce(_intersection, members), _union(members)
    said_once = node.tokens.count("\\ne") == 1  # x is not 1 or 2
    if all(item.operators == ("\\ne",) for item in node.items) and (node.form != "or" or said_once):
        return both
    if node.form == "and":
        return both
    return either if node.form == "or" or either != EVERYTHING else both


def _of_relation(node: Node) -> Stretches | None:
    if node.operators in (("\\in",), ("\\notin",)) and is_name(node.items[0]):
        inner = real_set(node.items[1])
        return inner if inner is None or node.operators == ("\\in",) else _complement(inner)
    result = EVERYTHING
    shift: tuple[Fraction, Fraction] | None = None
    for left, operator, right in zip(node.items, node.operators, node.items[1:], strict=False):
        if _is_unknown(right) and not _is_unknown(left):
            left, right, operator = right, left, FLIPPED.get(operator, operator)
        if not _is_unknown(left) or operator not in ("<", ">", "\\le", "\\ge", "=", "\\ne"):
            return None
        before, behind = _cut(right, False), _cut(right, True)
        if before is None or behind is None:
            return None
        result = _intersection(
            result,
            {
                "<": ((BELOW, before),),
                "\\le": ((BELOW, behind),),
                ">": ((behind, ABOVE),),
                "\\ge": ((before, ABOVE),),
                "=": ((before, behind),),
                "\\ne": ((BELOW, before), (behind, ABOVE)),
            }[operator],
        )
        shift = _inside_bars(left)
    if shift is None:
        return result
    slope, start = shift
    return _union([tuple(_moved(s, slope, start) for s in _mirrored(result))])


def _is_unknown(node: Node) -> bool:
    return is_name(node) or _inside_bars(node) is not None


def _inside_bars(node: Node) -> tuple[Fraction, Fraction] | None:
    """Of |ax + b| the a and b."""
    if node.kind != "leaf" or node.tokens[0] != "|":
        return None
    expression = parse(node.tokens)
    names = symbols(expression)
    if expression[0] != "abs" or len(names) != 1:
        return None
    (name,) = names
    values = [exact_value(expression[1], names={name: Fraction(x)}) for x in (0, 1, 2, 7)]
    start, first, second, far = values
    if start is None or first is None or second is None or far is None or first == start:
        return None
    slope = first - start
    return (slope, start) if second - first == slope and far == start + 7 * slope else None


def _moved(stretch: tuple[Cut, Cut], slope: Fraction, start: Fraction) -> tuple[Cut, Cut]:
    """The x for which slope * x + start is in the stretch."""
    low, high = ((cut[0], (cut[1] - start) / abs(slope) if not cut[0] else cut[1], cut[2]) for cut in stretch)
    return (low, high) if slope > 0 else (_negated(high), _negated(low))


def _members(node: Node) -> list[Stretches] | None:
    return _known(
        [
            real_set(item) if item.kind != "leaf" or item.text in _NAMED or phrase(item) in _NAMED else _point(item)
            for item in node.items
        ]
    )


def _known(members: Sequence[Stretches | None]) -> list[Stretches] | None:
    known = [member for member in members if member is not None]
    return known if len(known) == len(members) else None


def _point(node: Node) -> Stretches | None:
    before, behind = _cut(node, False), _cut(node, True)
    return None if before is None or behind is None or before[0] else ((before, behind),)


def _cut(node: Node, behind: bool) -> Cut | None:
    if node.tokens == ("\\infty",):
        return ABOVE
    if node.tokens == ("-", "\\infty"):
        return BELOW
    value = real_value(parse(node.tokens)) if node.kind == "leaf" else None
    if value is None:
        return None
    shift = _KEPT_BITS - abs(value.numerator).bit_length() + value.denominator.bit_length()
    kept = Fraction(round(value * Fraction(2) ** shift)) / Fraction(2) ** shift
    exact = value if value.denominator.bit_length() <= _KEPT_BITS // 2 else kept
    return (0, exact, int(behind))


def _mirrored(sizes: Stretches) -> Stretches:
    """The numbers whose absolute values are in the set: |x| < 3."""
    positive = _intersection(sizes, (((0, Fraction(0), 0), ABOVE),))
    negative = tuple((_negated(high), _negated(low)) for low, high in reversed(positive))
    return _union([positive, negative])


def _negated(cut: Cut) -> Cut:
    return (-cut[0], -cut[1], 0 if cut[0] else 1 - cut[2])


def _union(members: Sequence[Stretches]) -> Stretches:
    merged: list[tuple[Cut, Cut]] = []
    for low, high in sorted(stretch for member in members for stretch in member):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        elif low < high:
            merged.append((low, high))
    return tuple(merged)


def _complement(stretches: Stretches) -> Stretches:
    cuts = [BELOW, *(cut for stretch in stretches for cut in stretch), ABOVE]
    return tuple((low, high) for low, high in zip(cuts[::2], cuts[1::2], strict=True) if low < high)


def _intersection(one: Stretches, other: Stretches) -> Stretches:
    return _complement(_union([_complement(one), _complement(other)]))
