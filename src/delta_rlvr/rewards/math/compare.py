r"""Whether a prediction answers as the reference does: shape by shape, with the expressions at the leaves left to `Algebra`.

The decisions taken here are listed in docs/rewards.md. The reference always comes first: it says what is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from ..extract import choice_letter
from ..verdict import CORRECT, WRONG
from .exact import plain_number, rounds_to, terminates
from .latex import UnreadableAnswer, has_thousands, tokens_of
from .structure import Node, letters, plain_words, read
from .units import units_conflict

_ORDER = frozenset({"<", ">", "\\le", "\\ge"})
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}
# A prediction that only restates the task (\int_0^1 x dx where 1/2 is asked) is not an answer, although it equals one.
_TASKS = frozenset(
    {
        *(
            r"\int",
            r"\iint",
            r"\iiint",
            r"\oint",
            r"\sum",
            r"\prod",
            r"\lim",
            r"\limsup",
            r"\liminf",
            r"\max",
            r"\min",
        ),
        *(r"\sup", r"\inf", r"\det", r"\gcd", r"\lcm", r"\bmod", r"\pmod", r"\mod"),
        *(f"\\text{{{name}}}" for name in ("lcm", "gcd", "mod", "lim")),
    }
)
_NUMERAL = re.compile(r"-?[0-9A-Z]+_\{[^{}]*\}")


class Algebra(Protocol):
    """Decides equality of expressions, given as canonical LaTeX; raises `UnreadableAnswer` where it cannot read the prediction."""

    def equal(self, reference: str, prediction: str) -> bool: ...

    def rounds(self, expression: str, decimal: str) -> bool: ...

    def equations(self, reference: tuple[str, str], prediction: tuple[str, str]) -> bool: ...

    def inequalities(self, reference: tuple[str, str], prediction: tuple[str, str]) -> bool: ...

    def sets(self, reference: str, prediction: str) -> bool: ...


class Undecided(Exception):
    """Text and exact numbers do not settle it: algebra is needed."""


class NoAlgebra:
    """Stands where no algebra may run: whoever asks it learns that the question is open."""

    def equal(self, reference: str, prediction: str) -> bool:
        raise Undecided

    def rounds(self, expression: str, decimal: str) -> bool:
        raise Undecided

    def equations(self, reference: tuple[str, str], prediction: tuple[str, str]) -> bool:
        raise Undecided

    def inequalities(self, reference: tuple[str, str], prediction: tuple[str, str]) -> bool:
        raise Undecided

    def sets(self, reference: str, prediction: str) -> bool:
        raise Undecided


def judge(reference: str, prediction: str, algebra: Algebra) -> str:
    """Why the prediction is right ("correct") or not, in words."""
    try:
        reading = tokens_of(prediction)
    except UnreadableAnswer as error:
        return f"unparsable answer: {error}"
    try:
        expected = tokens_of(reference)
        asked = read(expected)
    except UnreadableAnswer as error:
        return f"unparsable reference answer: {error}"
    if expected == reading or _same_choice(reference, prediction):
        return CORRECT
    unworked = _TASKS.intersection(reading) - set(expected)
    if unworked:
        return f"not worked out: {sorted(unworked)[0]} is left in the answer"
    try:
        given = read(reading)
        if _same(asked, given, algebra):
            return CORRECT
        # "100,200" may be one number or a list of two: the list is tried where the number did not match.
        if has_thousands(reference) or has_thousands(prediction):
            lists = [read(tokens_of(text, thousands=False)) for text in (reference, prediction)]
            if _same(lists[0], lists[1], algebra):
                return CORRECT
    except UnreadableAnswer as error:
        return f"unparsable answer: {error}"
    if given.kind == "list" and asked.kind not in ("list", "tuple", "set", "union", "matrix"):
        return "wrong answer: several answers where one is asked"
    return WRONG


def _same(asked: Node, given: Node, algebra: Algebra) -> bool:
    if asked == given:
        return True
    if asked.kind == "words" or given.kind == "words":
        return plain_words(asked) == plain_words(given) != ""
    if given.kind == "relation" or asked.kind == "relation":
        return _same_relation(asked, given, algebra)
    if asked.kind == "leaf" and given.kind == "leaf":
        return _same_leaf(asked, given, algebra)
    asked, given = _plain(asked), _plain(given)
    kinds = {asked.kind, given.kind}
    if "list" in kinds and _union_of(asked) is not None and _union_of(given) is not None:
        asked, given = _union_of(asked) or asked, _union_of(given) or given
        kinds = {asked.kind, given.kind}
    if kinds <= {"list", "set"} or kinds == {"union"}:
        if _same_unordered(asked.items, given.items, algebra):
            return True
        return kinds == {"union"} and algebra.sets(asked.text, given.text)
    if kinds == {"tuple"}:
        return asked.form == given.form and _same_in_order(asked.items, given.items, algebra)
    if kinds == {"list", "tuple"}:  # brackets forgotten on one side: then the order is all that tells a tuple
        return _same_in_order(_values(asked), _values(given), algebra)
    if kinds == {"matrix"}:
        return asked.form == given.form and _same_in_order(asked.items, given.items, algebra)
    if kinds == {"matrix", "tuple"}:  # a vector as a column, a row or in brackets
        matrix, vector = (asked, given) if asked.kind == "matrix" else (given, asked)
        is_vector = matrix.form in ("1", str(len(matrix.items)))
        return is_vector and vector.form in ("()", "[]") and _same_in_order(asked.items, given.items, algebra)
    if kinds & {"union", "set", "tuple"} and _names_a_set(asked) | _names_a_set(given):
        return algebra.sets(asked.text, given.text)
    asked, given = _quotient(asked), _quotient(given)
    return asked.kind == given.kind == "leaf" and _same_leaf(asked, given, algebra)


def _plain(node: Node) -> Node:
    """A set or list of one value is that value."""
    return node.items[0] if node.kind in ("set", "list") and len(node.items) == 1 else node


def _quotient(node: Node) -> Node:
    """A ratio 3:4 as the fraction 3/4, for where a number stands on the other side. Two ratios (or times) are compared as they are."""
    if node.kind != "tuple" or node.form != ":" or len(node.items) != 2:
        return node
    top, bottom = node.items
    return Node("leaf", ("\\frac", "{", *top.tokens, "}", "{", *bottom.tokens, "}"))


def _names_a_set(node: Node) -> bool:
    return node.kind == "union" or any(
        token in ("\\setminus", "\\mathbb", "\\emptyset", "\\backslash") for token in node.tokens
    )


def _same_in_order(asked: Sequence[Node], given: Sequence[Node], algebra: Algebra) -> bool:
    return len(asked) == len(given) and all(_same(a, g, algebra) for a, g in zip(asked, given, strict=True))


def _same_unordered(asked: Sequence[Node], given: Sequence[Node], algebra: Algebra) -> bool:
    """Every asked item has its own partner. Equality is transitive, so taking the first partner is safe."""
    left = list(given)
    if len(asked) != len(left):
        return False
    for item in asked:
        partner = next((i for i, other in enumerate(left) if _same(item, other, algebra)), None)
        if partner is None:
            return False
        del left[partner]
    return True


def _values(node: Node) -> Sequence[Node]:
    """The items, without their names where each is an assignment to a name of its own: x = 1, y = 2."""
    if all(item.kind == "relation" and item.operators == ("=",) for item in node.items):
        names = {item.items[0].tokens for item in node.items}
        if len(names) == len(node.items):
            return [item.items[1] for item in node.items]
    return node.items


# --- relations ---


def _same_relation(asked: Node, given: Node, algebra: Algebra) -> bool:
    if asked.kind == "relation" and given.kind == "relation":
        return _same_relations(asked, given, algebra)
    if given.kind == "relation":
        span = _interval(given)
        if span is not None:
            return _same(asked, span, algebra)
        return _answers_with_name(asked, given, algebra)
    span = _interval(asked)
    if span is not None:
        return _same(span, given, algebra)
    # "x = 5" is asked and "5" is given: the name may be left out. Only a name, or a quantity whose value is the answer (AB + CD = 5);
    # 2x + z = 1 is an equation, and 1 does not answer it.
    if asked.operators in (("=",), ("\\in",)):
        left, right = asked.items
        is_quantity = letters(left.tokens) and not letters(right.tokens) and not re.search(r"\d", left.text)
        return (_is_name(left) or is_quantity) and _same(right, given, algebra)
    return False


def _answers_with_name(asked: Node, given: Node, algebra: Algebra) -> bool:
    r"""x = 5, x = 2 + 3 = 5, 2 + 3 = 5, \frac{1}{3} \approx 0.33 where a value is asked."""
    sides = list(given.items)
    if set(given.operators) == {"="}:
        if (letters(sides[0].tokens) and not letters(asked.tokens)) or _is_name(sides[0]):
            sides = sides[1:]
        # Every side that is left must be the value: "x = 3 = 5" is not an answer.
        return bool(sides) and all(_same(asked, side, algebra) for side in sides)
    if given.operators[-1] == "\\approx" and set(given.operators[:-1]) <= {"="}:
        rounded = sides.pop()
        exact = [side for side in sides if not _is_name(side)]
        if not exact:  # x \approx 3.14
            return _same(asked, rounded, algebra)
        # Both may be given, but they must be one value: "3 \approx 4" is two answers.
        if not all(_is_rounding(side, rounded, algebra) for side in exact):
            return False
        return all(_same(asked, side, algebra) for side in exact) or _same(asked, rounded, algebra)
    return False


def _is_rounding(exact: Node, rounded: Node, algebra: Algebra) -> bool:
    number = plain_number(rounded.text)
    if number is None or "/" in rounded.text or "frac" in rounded.text:
        return False
    value = plain_number(exact.text)
    if value is None:
        return algebra.rounds(exact.text, rounded.text)
    return rounds_to(value, rounded.text, least_digits=1)


def _same_relations(asked: Node, given: Node, algebra: Algebra) -> bool:
    spans = _interval(asked), _interval(given)
    if spans[0] is not None and spans[1] is not None:
        return _variable(asked) == _variable(given) and _same(spans[0], spans[1], algebra)
    if set(asked.operators) | set(given.operators) == {"="}:
        return _same_equations(asked, given, algebra)
    if asked.operators == given.operators and _same_in_order(asked.items, given.items, algebra):
        return True
    if len(asked.items) == len(given.items) == 2 and {*asked.operators, *given.operators} <= _ORDER:
        left, right = _as_less(asked), _as_less(given)
        return left[1] == right[1] and algebra.inequalities(left[0], right[0])
    if asked.operators == given.operators == ("\\ne",):
        return algebra.equations(_two_sides(asked), _two_sides(given))
    return False


def _same_equations(asked: Node, given: Node, algebra: Algebra) -> bool:
    name, value = asked.items[0], asked.items[-1]
    if _is_name(name) and len(asked.items) == 2:
        for side, others in ((given.items[0], given.items[1:]), (given.items[-1], given.items[:-1])):
            if side.tokens == name.tokens:
                return all(_same(value, other, algebra) for other in others)
        if not letters(value.tokens):
            # "x = 5" is asked: an equation that still has to be solved (2x = 10) restates the task.
            return False
    if len(asked.items) != 2 or len(given.items) != 2:
        return _same_in_order(asked.items, given.items, algebra)
    return algebra.equations(_two_sides(asked), _two_sides(given))


def _two_sides(node: Node) -> tuple[str, str]:
    return node.items[0].text, node.items[1].text


def _as_less(node: Node) -> tuple[tuple[str, str], bool]:
    """The inequality as (smaller side, larger side) and whether it is strict."""
    left, right = _two_sides(node)
    operator = node.operators[0]
    return ((left, right) if operator in ("<", "\\le") else (right, left)), operator in ("<", ">")


def _is_name(node: Node) -> bool:
    r"""A variable, f(x), a_1, AB, \angle ABC, \text{Area}: what may stand before the equals sign of an answer."""
    if node.kind == "words":
        return True
    if node.kind == "tuple":  # (x, y) = (1, 2)
        return all(map(_is_name, node.items))
    text = node.text
    return bool(
        re.fullmatch(
            r"(?:\\text\{[^{}]*\}|m?\\angle ?|\\triangle ?|\\overline\{[A-Z]+\}|\||\\[a-z]+(?![a-z])|[A-Za-z])+'*"
            r"(?:_\{[^{}]*\})?'*(?:\([A-Za-z0-9,+\-\\ ]*\))?\|?",
            text,
        )
    ) and letters(node.tokens)


def _variable(node: Node) -> tuple[str, ...] | None:
    return next((item.tokens for item in node.items if _is_name(item)), None)


def _interval(node: Node) -> Node | None:
    r"""x > 2, 1 < x \le 2 and x \in S as the interval or set they describe; None for any other relation."""
    if node.operators == ("\\in",) and _is_name(node.items[0]):
        return node.items[1]
    if not set(node.operators) <= _ORDER:
        return None
    items, operators = list(node.items), list(node.operators)
    named = [i for i, item in enumerate(items) if _is_name(item)]
    if len(named) != 1 or any(letters(item.tokens) for i, item in enumerate(items) if i != named[0]):
        return None
    if operators[0] in (">", "\\ge"):  # turn it, so that it rises from left to right
        items.reverse()
        operators = [_FLIPPED[operator] for operator in reversed(operators)]
    if not set(operators) <= {"<", "\\le"} or len(items) > 3:
        return None
    at = next(i for i, item in enumerate(items) if _is_name(item))
    if len(items) == 3 and at != 1:
        return None
    low = items[at - 1] if at > 0 else read(("-", "\\infty"))
    high = items[at + 1] if at + 1 < len(items) else read(("\\infty",))
    opener = "[" if at > 0 and operators[at - 1] == "\\le" else "("
    closer = "]" if at < len(operators) and operators[at] == "\\le" else ")"
    tokens = (opener, *low.tokens, ",", *high.tokens, closer)
    return Node("tuple", tokens, (low, high), form=opener + closer)


def _union_of(node: Node) -> Node | None:
    """A list of inequalities (x < 1 or x > 3) as a union; a union or an interval as it is."""
    if node.kind in ("union", "tuple"):
        return node
    if node.kind != "list" or any(item.kind != "relation" for item in node.items):
        return None
    spans = [_interval(item) for item in node.items]
    if any(span is None for span in spans) or len({_variable(item) for item in node.items}) != 1:
        return None
    members = tuple(span for span in spans if span is not None)
    tokens = members[0].tokens
    for member in members[1:]:
        tokens = (*tokens, "\\cup", *member.tokens)
    return Node("union", tokens, members)


# --- leaves ---


def _same_leaf(asked: Node, given: Node, algebra: Algebra) -> bool:
    if units_conflict(asked.unit, given.unit):
        return False
    if asked.tokens == given.tokens:
        return True
    if "%" in (asked.unit, given.unit) and asked.unit != given.unit:
        # 50% is 50 with its sign left out, and it is 0.5: both are the same answer.
        texts = [
            f"\\frac{{{node.text}}}{{100}}" if node.unit == "%" else node.text for node in (asked, given)
        ]
        return _same_value(asked.text, given.text, algebra) or _same_value(texts[0], texts[1], algebra)
    return _same_value(asked.text, given.text, algebra)


def _same_value(asked: str, given: str, algebra: Algebra) -> bool:
    value, number = plain_number(asked), plain_number(given)
    if value is not None and number is not None:
        return value == number or (not terminates(value) and rounds_to(value, given))
    if _NUMERAL.fullmatch(asked) or _NUMERAL.fullmatch(given):
        return False  # 52_8 is asked for in base 8: its digits and its base, nothing equal to it
    if asked.count("'") != given.count("'"):
        return False  # x' is not x; the grammar drops the prime
    for text in (asked, given):
        if " " in text and re.search(r"\d \d", text):
            raise UnreadableAnswer(f"two numbers stand side by side in {text[:60]!r}")
    return algebra.equal(asked, given)


# --- choices ---


def _same_choice(reference: str, prediction: str) -> bool:
    """A reference that is one letter is a choice: the prediction may repeat the text of the option behind it."""
    asked = choice_letter(reference)
    return asked is not None and len(reference) <= 20 and choice_letter(prediction) == asked
