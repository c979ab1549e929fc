r"""Relations: equations, inequalities and the sets that they describe, assignments, residues, families with a parameter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import ceil, floor

from .exact import QUICK_BITS, exact_value
from .expression import Expression, parse, symbols
from .families import whole_parameter
from .leaves import Judge, Sides, is_rounding
from .parts import whole
from .phrases import Ranges, same_ranges
from .structure import BOUND, FLIPPED, ORDER, Node, is_name, letters, plain_words, read
from .symbols import are_moments, names_quantity
from .tokens import Tokens, UnreadableAnswer, commands, listed, word_of
from .words import phrase

# A prediction that only restates the task (\int_0^1 x dx where 1/2 is asked) is not an answer, although it equals one.
TASKS = commands("int iint iiint oint sum prod lim limsup liminf max min sup inf det gcd lcm bmod")
OF_VARIABLES = commands("max min gcd lcm")
"""Those of them that an answer with variables may have."""
_PARAMETER = "\\kappa"
_WHOLE_NUMBERS = listed("all every any the is are an a if for when integer integers number numbers whole values of")
_NOT = listed("not never isn't unless except excluding without")
_PLACES = frozenset({"\\text{at}", "\\text{when}", "\\text{for}", "\\text{if}", "\\text{where}"})
_ANGLE = re.compile(r"^m?\\angle ?(?=[A-Z]$)")
_CALLED = re.compile("e|d[a-z]")
"""The eccentricity and a differential: alone before an equals sign they are names."""
_FEW = 30
"""Whole numbers between two ends that are listed."""
_SAME_NAMES = {
    **dict.fromkeys(("f(x)", "f^{-1}(x)"), "y"), **dict.fromkeys(("f'(x)", "\\frac{dy}{dx}", "\\frac{df}{dx}"), "y'"),
    **dict.fromkeys(("f''(x)", "\\frac{d^{2}y}{dx^{2}}", "\\frac{d^{2}f}{dx^{2}}"), "y''"),
}  # fmt: skip


def describes_set(node: Node) -> bool:
    if node.kind in ("union", "intersection", "difference", "set") or (node.kind == "tuple" and node.form != ":"):
        return True
    if node.kind == "relation":
        return not {*ORDER, "\\ne", "\\in", "\\notin"}.isdisjoint(node.operators)
    if node.kind == "list":
        return any(map(describes_set, node.items))
    return phrase(node) == "\\emptyset" or phrase(node).startswith("\\mathbb{R}") or node.tokens[0] == "\\mathbb{R}"


def same_sets(asked: Node, given: Node, by: Judge) -> bool:
    """Whether both describe one set, of the same variable where both name one."""
    names, others = variables(asked), variables(given)
    if len(names) > 1 or len(others) > 1 or (names and others and names != others):
        return False
    return describes_set(asked) and describes_set(given) and by.algebra.sets(asked, given)


def same_in_order(asked: Sequence[Node], given: Sequence[Node], by: Judge) -> bool:
    return len(asked) == len(given) and all(by.same(a, g, in_list=True) for a, g in zip(asked, given, strict=True))


def variables(node: Node) -> set[Tokens]:
    if node.kind == "list":
        return set().union(*map(variables, node.items))
    name = _variable(node) if node.kind == "relation" and node.form != BOUND else None
    return {name} if name is not None else set()


def as_residue(tokens: Tokens) -> Tokens:
    return tuple("\\mod" if token == "\\bmod" else token for token in tokens)


def same_residues(asked: Node, given: Node, by: Judge) -> bool:
    r"""5 \pmod 7: the modulus may be left out; where both have it, 12 \pmod 7 is the same. 8k + 3 is 3 \pmod 8."""
    families = _as_family(asked), _as_family(given)
    heads = [n for n in (node.items[0] if node.kind == "residue" else node for node in (asked, given)) if n.operators]
    if len(heads) == 2 and not _same_name(heads[0].items[0], heads[1].items[0]):
        return False
    if asked.kind != given.kind:
        if families[0] and families[1]:
            return by.algebra.families(families[0], families[1], _PARAMETER)
        value, other = (asked.items[0], given) if asked.kind == "residue" else (asked, given.items[0])
        if given.kind == "residue" and not _is_reduced(given):
            return False  # 6 mod 4 is still to be worked out
        if not _is_value(value) or not _is_value(other) or (given.kind == "residue" and asked.kind == "tuple"):
            return False
        is_congruence = (
            value.kind in ("relation", "leaf") and asked.kind == "residue" and letters(_last(value).tokens)
        )  # a \equiv b \pmod 5 is not a = b
        return not is_congruence and by.same(_last(value), _last(other))
    (one, modulus), (other, modulus_given) = asked.items, given.items
    if len(heads) == 2 and one.operators != other.operators:
        return False
    if by.same(modulus, modulus_given) and by.same(_last(one), _last(other)):
        return True
    return bool(families[0] and families[1]) and by.algebra.families(families[0], families[1], _PARAMETER)


def parity(node: Node) -> tuple[int, str] | None:
    """Of "all odd integers", "n is even", "odd n" the remainder and the name, if one is said; None for anything else."""
    tokens = node.whole or node.tokens
    if len(tokens) == 1 and tokens[0][0] != "\\":
        return None
    text = "".join(tokens).lower()
    if "{even}" not in text and "{odd}" not in text:
        return None
    words = [word_of(token) or token for token in tokens]
    said = [word for word in words if word not in _WHOLE_NUMBERS]
    names = [word for word in said if len(word) == 1 and word.isalpha()]
    return (int("odd" in said), "".join(names)) if len(said) == 1 + len(names) <= 2 else None


def same_parity(asked: Node, given: Node, by: Judge) -> bool | None:
    """The odd integers beside n \\equiv 1 \\pmod 2 or 2k + 1; None where no parity is said."""
    said = parity(asked), parity(given)
    if said == (None, None):
        return None
    if said[0] and said[1]:
        return said[0][0] == said[1][0] and (said[0][1] == said[1][1] or "" in (said[0][1], said[1][1]))
    known = said[0] or said[1]
    saying = asked if said[0] else given
    is_alone = len(saying.whole or saying.tokens) == 1  # even is a function, too
    members = _as_family(given if said[0] else asked) if known and not is_alone else []
    if known is None or not members:
        return None
    multiple = ("*", whole(2), ("symbol", _PARAMETER))
    return by.algebra.families([("+", whole(known[0]), multiple)], members, _PARAMETER)


def _is_value(node: Node) -> bool:
    """x = 3 and 3, but neither x < 3 nor a condition on the name, as in "all primes p = 3"."""
    if node.kind != "relation":
        return True
    words = {word_of(token) for token in node.items[0].tokens} - {"", *_WHOLE_NUMBERS}
    return set(node.operators) == {"="} and not words


def _is_reduced(residue: Node) -> bool:
    leaves = [_last(residue.items[0]), residue.items[1]]
    value, modulus = (exact_value(parse(x.tokens), QUICK_BITS) if x.kind == "leaf" else None for x in leaves)
    return value is None or modulus is None or abs(value) < modulus


def _as_family(node: Node) -> list[Expression]:
    """The members of a residue class, or of a list like 8k + 3, as expressions in one parameter; nothing for any other answer."""
    if node.ranges and any(numbers != "Z" for _, numbers in node.ranges):
        return []
    try:
        if node.kind == "residue":
            if not all(map(_is_value, (node.items[0], *node.items[0].items))):
                return []
            values = _last(node.items[0])
            modulus = parse(node.items[1].tokens)
            step = ("*", modulus, ("symbol", _PARAMETER))
            return (
                [("+", parse(_last(item).tokens), step) for item in values.items or (values,)]
                if not symbols(modulus)
                else []
            )
        items = node.items if node.kind in ("list", "set") else (node,)
        names = {whole_parameter(item) for item in items}
        if len(names) != 1 or "" in names:
            return []
        (name,) = names
        return [_with_parameter(parse(_last(item).tokens), name) for item in items]
    except UnreadableAnswer:
        return []


def _with_parameter(expression: Expression, name: str) -> Expression:
    if expression == ("symbol", name):
        return ("symbol", _PARAMETER)
    return tuple(_with_parameter(part, name) if isinstance(part, tuple) else part for part in expression)


def _last(node: Node) -> Node:
    return node.items[-1] if node.kind == "relation" else node


def same_families(asked: Node, given: Node, by: Judge) -> bool:
    r"""\frac{\pi}{4} + k\pi, k \in \mathbb{Z}: the parameter may have any name, and the clause may be left out."""
    one, other = asked.ranges, given.ranges
    asked, given = (_periodic(n.items[0] if n.kind == "set" and len(n.items) == 1 else n) for n in (asked, given))
    if (parity(asked) or parity(given)) and {"Z"} != {numbers for _, numbers in (*one, *other)}:
        return False
    if any(node.ranges and node.operators and ORDER.issuperset(node.operators) for node in (asked, given)):
        if "tuple" in (asked.kind, given.kind) and "Z" in {s for _, s in (*one, *other)}:
            return False  # whole numbers do not fill an interval
        return by.same(_whole_numbers(asked, one or other), _whole_numbers(given, other or one))
    if one and other and not same_ranges(one, other):
        return False
    if len(one) == 1 and not other and given.kind != "residue":
        other = tuple((name, one[0][1]) for item in [given] if (name := whole_parameter(item)))
    elif len(other) == 1 and not one and asked.kind != "residue":
        one = tuple((name, other[0][1]) for item in [asked] if (name := whole_parameter(item)))
    if "residue" in (asked.kind, given.kind) and {s for _, s in (*one, *other)} == {"Z"}:
        return by.same(replace(asked, ranges=()), replace(given, ranges=()))
    if len(one) == len(other) == 1 and one != other:
        ours, theirs = one[0][0], other[0][0]
        renamed = read(tuple(ours if token == theirs else token for token in given.tokens))
        given = _periodic(replace(renamed, ranges=one))
    asked, given = replace(asked, ranges=()), replace(given, ranges=())
    if by.same(asked, given):
        return True
    if not one or one[0][1] != "Z" or len(one) > 1:
        return False
    listed_items = [node.items if node.kind in ("list", "set") else [node] for node in (asked, given)]
    if not _same_heads(*listed_items):
        return False
    members = [[_last(item) for item in items] for items in listed_items]
    if any(item.kind != "leaf" for part in members for item in part):
        return False
    left, right = ([parse(item.tokens) for item in part] for part in members)
    return by.algebra.families(left, right, one[0][0])


def _periodic(node: Node) -> Node:
    r"""2k\pi < x < (2k + 1)\pi as the interval between its ends, where these have the parameter."""
    names = {name for name, _ in node.ranges}
    if (
        len(node.items) != 3
        or not {*node.operators} <= {"<", "\\le"}
        or not node.operators
        or not names & {*node.tokens}
    ):
        return node
    low, name, high = node.items
    if not is_name(name) or names & {*name.tokens}:
        return node
    form = ("[" if node.operators[0] == "\\le" else "(") + ("]" if node.operators[1] == "\\le" else ")")
    return replace(node, kind="tuple", items=(low, high), operators=(), form=form)


def _same_heads(asked: Sequence[Node], given: Sequence[Node]) -> bool:
    """Whether all are values, and of one name where both sides name theirs."""
    named = [[item for item in items if item.kind == "relation"] for items in (asked, given)]
    if any(item.operators != ("=",) for items in named for item in items):
        return False
    return all(_same_name(a.items[0], g.items[0]) for a in named[0][:1] for g in named[1])


def _whole_numbers(node: Node, ranges: Ranges) -> Node:
    r"""1 < n \le 3, n \in \mathbb{Z} as \{2, 3\}, where the numbers are few; otherwise with ends that belong to it."""
    plain = replace(node, ranges=())
    span = _interval(plain) if node.operators else None
    if span is None or span.kind != "tuple" or len(ranges) != 1 or ranges[0][1] not in ("Z", "N", "N1"):
        return plain
    ends = [None if "\\infty" in x.tokens else exact_value(parse(x.tokens), QUICK_BITS) for x in span.items]
    low = None if ends[0] is None else floor(ends[0]) + 1 if span.form[0] == "(" else ceil(ends[0])
    high = None if ends[1] is None else ceil(ends[1]) - 1 if span.form[1] == ")" else floor(ends[1])
    if ranges[0][1] != "Z" and (low is None or low < 1):
        return plain
    if low is not None and high is not None and 0 <= high - low < _FEW:
        return read(
            ("\\{", *",".join(map(str, range(low, high + 1))).replace(",", " , ").replace("-", "- ").split(), "\\}")
        )
    if None in (low, high) and all(
        "\\infty" in x.tokens or e is not None for x, e in zip(span.items, ends, strict=True)
    ):
        name = _variable(plain) or ()
        number = high if low is None else low
        return (
            read((*name, "\\le" if low is None else "\\ge", *str(number).replace("-", "- ").split()))
            if number is not None
            else plain
        )
    return plain


# --- relations ---


def same_relation(asked: Node, given: Node, by: Judge) -> bool:
    if asked.kind == "relation" and given.kind == "relation":
        return _same_relations(asked, given, by)
    inequality, other = (given, asked) if given.kind == "relation" else (asked, given)
    ends = frozenset(item.tokens for item in other.items) if other.kind == "tuple" else frozenset()
    span = _interval(inequality, ends)
    if span is not None:
        if span.kind == "tuple" and other.kind in ("list", "matrix") and not describes_set(other):
            return False  # -1 < x < 3 is an interval, not the two numbers
        return by.same(asked, span) if given.kind == "relation" else by.same(span, given)
    if describes_set(asked) and describes_set(given):
        return same_sets(asked, given, by)
    if given.kind == "relation":
        return _answers_with_name(asked, given, by)
    if asked.operators[-1] == "\\approx":  # the reference states a value and its rounding
        return any(by.same(side, given) for at, side in enumerate(asked.items) if at or not is_name(side))
    # "x = 5" is asked and "5" is given: the name may be left out. Only a name, or a quantity whose value is the answer (AB + CD = 5);
    # 2x + z = 1 is an equation, and 1 does not answer it.
    if set(asked.operators) == {"="} or asked.operators == ("\\in",):
        left, right = asked.items[0], asked.items[-1]
        is_quantity = letters(left.tokens) and not letters(right.tokens) and not re.search(r"\d", left.text)
        return (
            _is_called(left) or is_quantity or _is_constant(left) or bool(TASKS.intersection(left.tokens))
        ) and by.same(right, given)
    return False


def _is_called(node: Node) -> bool:
    return is_name(node) or _CALLED.fullmatch(node.text) is not None


def _is_constant(node: Node) -> bool:
    """Whether nothing unknown is in it, as in C_5^2 = 10."""
    try:
        return node.kind == "leaf" and not symbols(parse(node.tokens))
    except UnreadableAnswer:
        return False


def _answers_with_name(asked: Node, given: Node, by: Judge) -> bool:
    r"""x = 5, x = 2 + 3 = 5, 2 + 3 = 5, \frac{1}{3} \approx 0.33 where a value is asked."""
    sides = list(given.items)
    if not _NOT.isdisjoint(map(word_of, given.tokens)):
        return False
    if set(given.operators) == {"="}:
        if _is_called(sides[0]) or TASKS.intersection(sides[0].tokens) or _is_quantity(sides[0], asked):
            sides = sides[1:]
        elif is_name(sides[-1]):  # 5 = x
            sides.pop()
        sides = _worked_out(sides) if len(sides) < len(given.items) else sides
        # Every side that is left must be the value: "x = 3 = 5" is not an answer.
        return bool(sides) and not TASKS.intersection(sides[-1].tokens) and all(by.same(asked, side) for side in sides)
    if given.operators[-1] == "\\approx" and set(given.operators[:-1]) <= {"="}:
        rounded = sides.pop()
        exact = [side for side in sides if not is_name(side)]
        if not exact:  # x \approx 3.14
            return by.same(asked, rounded)
        # Both may be given, but they must be one value: "3 \approx 4" is two answers.
        if not all(is_rounding(side, rounded, by.algebra) for side in exact):
            return False
        return all(by.same(asked, side) for side in exact) or by.same(asked, rounded)
    return False


def _worked_out(sides: Sequence[Node]) -> list[Node]:
    """Of KE = mv^2/2 = 250 J the 250: a formula in between is the way to it."""
    is_value = bool(sides) and not letters(sides[-1].tokens)
    return [side for side in sides if not (is_value and letters(side.tokens))]


def _is_quantity(side: Node, asked: Node) -> bool:
    r"""Whether an equation's left side may be what is asked for: a + b, AB^2, \sin x. Not 2x or x + 1: there x is still unknown."""
    if not _PLACES.isdisjoint(side.tokens):  # 5 at x = 2
        return False
    try:
        expression = parse(side.tokens) if side.kind == "leaf" else ()
    except UnreadableAnswer:  # \dim V, |\{1, 2\}|
        return True
    if "\\dots" in side.tokens:  # 1 + 2 + \\dots + n
        return True
    if not letters(side.tokens) or letters(asked.tokens):
        return False
    if expression[:1] == ("+",) and any(_is_number(part) for part in expression[1:]):  # x^2 - 6x + 5 = 0
        return "(" in side.tokens
    is_linear = expression[:1] in (("*",), ("+",), ("/",)) and len(symbols(expression)) == 1
    return not (is_linear and all(part[0] in ("number", "symbol", "-") for part in expression[1:]))


def _is_number(expression: Expression) -> bool:
    return expression[0] == "number" or (expression[0] == "-" and _is_number(expression[1]))


def _same_relations(asked: Node, given: Node, by: Judge) -> bool:
    spans = _interval(asked), _interval(given)
    if spans[0] is not None and spans[1] is not None:
        same_name = BOUND in (asked.form, given.form) or _variable(asked) == _variable(given)
        return same_name and by.same(spans[0], spans[1])
    if set(asked.operators) | set(given.operators) == {"="}:
        return _same_equations(asked, given, by)
    if asked.operators == given.operators and same_in_order(asked.items, given.items, by):
        return True
    if asked.operators == ("\\approx",) and given.tokens[:2] == ("B", "(") and given.tokens[-1] == ")":
        return by.same(asked.items[1], given)  # X \\sim B(3, 0.5)
    turned = tuple(FLIPPED.get(operator, operator) for operator in reversed(given.operators))
    is_similarity = turned == ("\\approx",) and asked.tokens[0] == "\\triangle"
    is_turned = asked.operators == turned and (is_similarity or {*turned} <= ORDER | {"\\parallel", "\\perp"})
    if is_turned and same_in_order(asked.items, given.items[::-1], by):
        return True  # c > b > a is a < b < c
    if len(asked.items) == len(given.items) == 2 and {*asked.operators, *given.operators} <= ORDER:
        left, right = _as_less(asked), _as_less(given)
        return left[1] == right[1] and by.algebra.inequalities(left[0], right[0])
    if asked.operators == given.operators == ("\\ne",):
        return by.algebra.equations(_sides(asked), _sides(given))
    if describes_set(asked) and describes_set(given):
        return same_sets(asked, given, by)
    if given.operators[-1] == "\\approx" and asked.operators == ("=",):  # x = \sqrt{2} \approx 1.41
        same_name = given.items[0].tokens == asked.items[0].tokens
        return same_name and _answers_with_name(asked.items[1], given, by)
    return False


def _same_equations(asked: Node, given: Node, by: Judge) -> bool:
    name, value = asked.items[0], asked.items[-1]
    if len(asked.items) == len(given.items) == 2 and _is_usual(name, given.items[0]):
        return by.same(value, given.items[1])
    if is_name(name) and name.form != ":":
        for side, others in ((given.items[0], given.items[1:]), (given.items[-1], given.items[:-1])):
            if _same_name(name, side):
                return all(by.same(value, other) for other in _worked_out(others))
        if not letters(value.tokens):
            # "x = 5" is asked: an equation that still has to be solved (2x = 10) restates the task.
            return False
    if len(asked.items) != 2 or len(given.items) != 2:
        return same_in_order(asked.items, given.items, by)
    if any(item.kind != "leaf" for item in asked.items + given.items):
        turned = given.items[::-1]
        return any(same_in_order(asked.items, items, by) for items in (given.items, turned))
    return by.algebra.equations(_sides(asked), _sides(given))


def _is_usual(name: Node, other: Node) -> bool:
    r"""Whether one is the usual symbol of what the other says: "variance", \sigma^2 and D(X)."""
    if name.kind == "words" or other.kind == "words":
        said, symbol = (name, other) if name.kind == "words" else (other, name)
        return symbol.kind != "words" and names_quantity(plain_words(said), symbol.text)
    return are_moments(name.text, other.text)


def _same_name(asked: Node, given: Node) -> bool:
    """Whether both name the same quantity; one solution of several may have a number: x_1 for x."""
    names = [_SAME_NAMES.get(node.text, _event(_ANGLE.sub("", node.text))) for node in (asked, given)]
    calls = [re.sub(r"(?<=^[a-zA-Z])\([a-z](?:,[a-z])*\)$", "", name) for name in names]
    if (names[0] in calls or names[1] in calls) and calls[0] == calls[1]:  # y(x) and y
        return True
    if any(
        re.fullmatch(rf"{re.escape(a.text)}\([a-z]\)", b.text) for a, b in ((asked, given), (given, asked))
    ):  # f and f(x)
        return True
    if (
        names[0] == names[1]
        or asked.text.split("(")[0] == given.text
        or any(re.fullmatch(rf"{re.escape(a)}_\{{\d(?:,\d)?\}}", b) for a, b in (names, names[::-1]))
    ):
        return True
    try:
        return parse(asked.tokens) == parse(given.tokens)  # \Re(z) and \Re z
    except UnreadableAnswer:
        return False


def _event(name: str) -> str:
    """E[X] and \\mathbb{P}(A) as E(X) and P(A), a partial derivative as f_x."""
    name = re.sub(r"^\\frac\{\\partial ?(\w)\}\{\\partial ?(\w)\}$", r"\1_{\2}", name)
    name = re.sub(r"^S_\{(?:\\triangle ?)?([A-Z]{3,8})\}$", r"[\1]", name)  # the area of a figure
    name = re.sub(r"^\\(?:mathbb\{([EP])\}|(P)r)", r"\1\2", name)
    return name.replace("[", "(").replace("]", ")") if name[:1] in "EPV" else name


def _sides(node: Node) -> Sides:
    return parse(node.items[0].tokens), parse(node.items[1].tokens)


def _as_less(node: Node) -> tuple[Sides, bool]:
    """The inequality as (smaller side, larger side) and whether it is strict."""
    left, right = _sides(node)
    operator = node.operators[0]
    return ((left, right) if operator in ("<", "\\le") else (right, left)), operator in ("<", ">")


def _variable(node: Node) -> Tokens | None:
    """What an inequality is about: x in 1 < x < 2 and in |x| < 3."""
    name = next((item.tokens for item in node.items if is_name(item)), None)
    if name is None:
        inside = [item.tokens for item in node.items if item.tokens[0] == item.tokens[-1] == "|"]
        found = {token for tokens in inside for token in tokens if letters((token,))}
        return tuple(found) if len(found) == 1 else None
    return name[1:-1] if name[0] == name[-1] == "|" else name


def _interval(node: Node, ends: frozenset[Tokens] = frozenset()) -> Node | None:
    r"""x > 2, 1 < x \le 2, x \in S as the interval or set they describe, with letters only in these `ends`; None for the rest."""
    if node.operators == ("\\in",) and is_name(node.items[0]):
        return node.items[1]
    if node.operators == ("\\notin",) and is_name(node.items[0]):
        return read(("\\mathbb{R}", "\\setminus", *node.items[1].tokens))
    if not set(node.operators) <= ORDER:
        return None
    items, operators = list(node.items), list(node.operators)
    named = [i for i, item in enumerate(items) if is_name(item) and item.tokens not in ends]
    others = [item for i, item in enumerate(items) if i not in named and item.tokens not in ends]
    if len(named) != 1 or any(letters(item.tokens) for item in others):
        return None
    if items[named[0]].tokens[0] == "|":  # |x| < 3 is left to `sets`
        return None
    if operators[0] in (">", "\\ge"):  # turn it, so that it rises from left to right
        items.reverse()
        operators = [FLIPPED[operator] for operator in reversed(operators)]
    if not set(operators) <= {"<", "\\le"} or len(items) > 3:
        return None
    at = next(i for i, item in enumerate(items) if is_name(item) and item.tokens not in ends)
    if len(items) == 3 and at != 1:
        return None
    low = items[at - 1] if at > 0 else read(("-", "\\infty"))
    high = items[at + 1] if at + 1 < len(items) else read(("\\infty",))
    opener = "[" if at > 0 and operators[at - 1] == "\\le" else "("
    closer = "]" if at < len(operators) and operators[at] == "\\le" else ")"
    tokens = (opener, *low.tokens, ",", *high.tokens, closer)
    return Node("tuple", tokens, (low, high), form=opener + closer)
