r"""What an answer is: a number with a unit, a list, a tuple, an interval, a set, a matrix, a relation, words.

The outer shape is read here, by us, because it is where leniency can be exploited (a list that contains the right answer, a set for
a tuple, a closed interval for an open one). The expressions at its leaves are left to `expression`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations, product

from .numerals import in_digits
from .phrases import Ranges, accepted, plain_statement, speaks, take_conditions, without_victory
from .sayings import as_formula
from .symbols import symbols_of
from .tokens import (
    CLOSERS,
    MAX_ITEMS,
    OPENERS,
    Tokens,
    UnreadableAnswer,
    bare,
    closes,
    commands,
    filled,
    is_word,
    join,
    last_bracket,
    listed,
    split,
    step,
    word_of,
)
from .units import NO_UNIT, Unit, compound, take_unit

ORDER = frozenset({"<", ">", "\\le", "\\ge"})
FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}
RELATIONS = ORDER | {
    *("=", "\\ne", "\\in", "\\notin", "\\approx", "\\equiv", "\\subset", "\\subseteq", "\\propto", "\\cong"),
    *("\\parallel", "\\perp", "\\nmid", "\\mid", "\\to", "\\nequiv"),
}
BOUND = "bound"
"""The form of a relation inside of the braces of a set, where its variable has no meaning outside."""
_UNNAMED = ("\\kappa",)
"""The name of what "at least 5" is said of."""
SET_OPERATIONS = {"\\cup": "union", "\\cap": "intersection", "\\setminus": "difference"}
_SEPARATORS = frozenset({",", ";", "\\text{and}", "\\text{or}"})
_IF = frozenset({"\\text{if}", "\\text{for}", "\\text{when}"})
_OTHERWISE = listed("otherwise else elsewhere")
_EXTREMES = {
    **dict.fromkeys(("\\max", "\\text{max}", "\\text{Max}"), "\\text{maximum}"),
    **dict.fromkeys(("\\min", "\\text{min}", "\\text{Min}"), "\\text{minimum}"),
}
_FOR = frozenset({"\\text{for}", "\\text{where}", "\\text{with}"})
_LONGEST_LABEL = 3
_LINKS = listed("is are was has have had gets get costs cost the a an : of")
_ARGUING = listed("so thus hence therefore since because answer")
_PERMUTATIONS = listed(
    "and all any every its the their cyclic permutation permutations thereof of it these this triple up to in order"
)
_POINT_NAMES = frozenset("ABDEMQRS")
"""Letters before the coordinates of a point; others call: C(8, 3), P(A), F(2, 3)."""
EMPTY_WORDS = listed("emptyset none") | {
    f"{lead}no{kind}{noun}{end}"
    for lead in ("", "has", "equationhas")
    for kind in ("", "real", "such", "integer", "possible", "valid")
    for noun, end in product(
        listed("solution solutions root roots value values number numbers integer integers"), ("", "exist", "exists")
    )
}
ALL_WORDS = listed(
    "allrealnumbers allreals anyrealnumber realnumbers allrealx allrealnumber therealnumbers "
    "allx everyx anyx allrealvaluesofx allvaluesofx allrealvalues everyrealnumber everyrealx anyrealx"
)
"""What is said for no number, and for every number, as `plain_words` writes it."""


@dataclass(frozen=True)
class Node:
    """One answer or a part of it."""

    kind: str
    """"leaf", "words", "list", "tuple", "set", "union", "intersection", "difference", "matrix", "cases", "relation", "residue",
    "described" (a set by its elements and their condition) or "conditional"."""
    tokens: Tokens
    """The canonical tokens of the whole part."""
    items: tuple[Node, ...] = ()
    """Its parts, in order; the cells of a matrix row by row; of a residue the value and the modulus."""
    form: str = ""
    """Of a tuple its brackets, "()", "[)", ..., ":" for a ratio; of a matrix its number of columns; of a list "and" or "or"."""
    operators: Tokens = ()
    """The relations between the items of a relation."""
    unit: Unit = NO_UNIT
    """Of a leaf: what stands beside its value."""
    whole: Tokens = ()
    """Of a leaf: its tokens with the unit."""
    ranges: Ranges = ()
    """Of any answer: the number sets of its parameters, where it names them."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.tokens, self.items, self.form, self.ranges))

    @property
    def text(self) -> str:
        return join(self.tokens)


def read(tokens: Tokens) -> Node:
    """The structure of an answer's tokens."""
    tokens = _inward(bare(tokens))
    step(20 + 2 * len(tokens))
    if not tokens:
        raise UnreadableAnswer("the answer is empty")
    if len(tokens) == 1 and not is_word(tokens[0]):
        return _single(tokens)
    says = speaks(tokens)
    if says:
        tokens = accepted(as_formula(without_victory(tokens)))
    if (parts := _labelled(tokens)) is not None:
        return Node("list", tuple(_EXTREMES.get(token, token) for token in tokens), parts, form="and")
    if says:
        tokens = in_digits(plain_statement(tokens))
    measures = compound(tokens)
    if measures is not None:
        return Node("leaf", measures[0], unit=measures[1], whole=tokens)
    if all(is_word(token) or token in ",.'-():" for token in tokens) and _SEPARATORS.isdisjoint(tokens):
        return Node("words", tokens)
    residue = _residue(tokens)
    if residue is not None:
        return residue
    ranges: Ranges = ()
    conditions: list[Tokens] = []
    if said_cases := _said_cases(tokens):
        return said_cases
    if says and (members := _permuted(tokens)):
        return Node("list", tokens, members, form=",")
    if members := _members(tokens):
        return Node("list", tokens, members, form="or")
    if speaks(tokens):
        tokens, ranges, conditions = take_conditions(tokens)
    node = _except(tokens) or _list(tokens)
    if conditions:
        return Node("conditional", tokens, (node, *map(read, conditions)))
    return replace(node, ranges=ranges) if ranges else node


def _inward(tokens: Tokens) -> Tokens:
    """]0, 1[, the open interval of the French, as (0, 1), also in a union of such."""
    if "]" not in tokens and "[" not in tokens:
        return tokens
    turned = list(tokens)
    ends = [at for at, token in enumerate(tokens) if token in SET_OPERATIONS or token == "\\in"]
    for before, end in zip([-1, *ends], [*ends, len(tokens)], strict=True):
        first, inside, last = tokens[before + 1 : before + 2], tokens[before + 2 : end - 1], tokens[end - 1]
        is_interval = len([token for token in inside if token in ",;"]) == 1 and not {"[", "]"} & {*inside}
        if is_interval and first[0] in "[](" and last in "[])":
            turned[before + 1] = first[0].replace("]", "(")
            turned[end - 1] = last.replace("[", ")")
    return tuple(turned)


def _continued(parts: list[Tokens]) -> list[Tokens]:
    r"""1, 2, \dots, 5 with all its numbers; where they do not end, or not in a number, its first two."""
    if ("\\dots",) not in parts:
        return parts
    at = parts.index(("\\dots",))
    texts = ["".join(part) for part in parts]
    if not at or not all(re.fullmatch(r"-?\d{1,9}", text) for text in texts[:at]) or len(parts) > at + 2:
        return parts
    numbers = [int(text) for text in texts[:at]]
    steps = {second - first for first, second in pairwise(numbers)} or {1}
    step = steps.pop()
    if steps or not step or len(parts) == 2:
        return parts
    count = 2
    if re.fullmatch(r"-?\d{1,9}", texts[-1]):
        count, rest = divmod(int(texts[-1]) - numbers[0] + step, step)
        if rest or not 2 <= count <= MAX_ITEMS:
            return parts
        at = len(parts)
    listed_numbers = (str(numbers[0] + step * n) for n in range(count))
    return [*(("-", t[1:]) if t[0] == "-" else (t,) for t in listed_numbers), *parts[at:]]


def _members(tokens: Tokens) -> tuple[Node, ...]:
    r"""Of e^{2\pi i k/3}, k = 0, 1, 2 the three numbers; none for anything else."""
    if "=" not in tokens or tokens[-1] == "\\dots" or _SEPARATORS.isdisjoint(tokens):
        return ()
    value, *parts = filled(tokens, _SEPARATORS | _FOR)
    name = parts[0][:1] if parts and parts[0][1:2] == ("=",) else ("",)
    if name[0] not in value or not name[0].isalpha() or "_" in value:
        return ()
    numbers = _continued([parts[0][2:], *parts[1:]])
    if len(numbers) < 2 or not all("".join(number).lstrip("-").isdigit() for number in numbers):
        return ()
    return tuple(
        read(tuple(part for token in value for part in (("(", *number, ")") if token == name[0] else (token,))))
        for number in numbers
    )


def _labelled(tokens: Tokens) -> tuple[Node, ...] | None:
    """The parts of "center (2, 3), radius 5", of "Alice has 5 and Bob 3" and of "(a) 5 (b) 3", each as label = value."""
    sides = _lettered(tokens) if "(" in tokens[:2] or tokens[1:2] == (")",) else []
    if not sides:
        if _SEPARATORS.isdisjoint(tokens) or not any(is_word(token) or token in _EXTREMES for token in tokens):
            return None
        sides = [_label(part) for part in filled(tokens, _SEPARATORS - {"\\text{or}"})]
        if any(symbols_of("".join(map(word_of, label))) for label, _ in sides):  # center (1, 2), r = 3
            sides = [side if side[0] else _assignment(side[1]) for side in sides]
    if (
        len(sides) < 2
        or not all(label and value for label, value in sides)
        or len({label for label, _ in sides}) < len(sides)
    ):
        return None
    return tuple(
        Node("relation", (*label, "=", *value), (_single(label), read(value)), operators=("=",))
        for label, value in sides
    )


def _label(part: Tokens) -> tuple[Tokens, Tokens]:
    """Of "Alice has 5", "Alice: 5" and "5 (Alice)" the label and the value; both empty where it is anything else."""
    start = last_bracket(part)
    if start and all(map(is_word, part[start + 1 : -1])) and not is_word(part[0]):
        label, value = part[start + 1 : -1], part[:start]
    else:
        end = next((at for at, t in enumerate(part) if not is_word(t) and t not in _EXTREMES), len(part))
        if end == len(part) and "\\text{is}" in part:  # Alice is a knight
            end = part.index("\\text{is}") + 1
            end += word_of(part[end]) in ("a", "an") if part[end:] else 0
        label, value = part[:end], bare(part[end:]) if part[end : end + 1] != ("_",) else ()
    value = bare(value[1:]) if value[:1] == ("=",) else value
    named = tuple(_EXTREMES.get(token, token.lower()) for token in label if word_of(token) not in _LINKS)
    is_letter = len(label) == 1 and len(word_of(label[0])) == 1 and label[0] != "\\text{a}"
    label = (label[0][6],) if is_letter else named  # \\text{A: } 30
    is_label = len(label) <= _LONGEST_LABEL and "\\text{or}" not in part and _ARGUING.isdisjoint(map(word_of, label))
    return (label, value) if is_label else ((), ())


def _assignment(part: Tokens) -> tuple[Tokens, Tokens]:
    """Of r = 3 its sides."""
    at = part.index("=") if "=" in part[:2] else 0
    return (part[:at], bare(part[at + 1 :])) if at else ((), ())


def _lettered(tokens: Tokens) -> list[tuple[Tokens, Tokens]]:
    """The parts behind (a), (b), (c) or (i), (ii), (iii)."""
    tokens = tuple(token for token in tokens if word_of(token) != "part")
    opening = ("(",) if "(" in tokens[:2] else ()  # a) 2, b) 3
    for names in ("a b c d e f", "i ii iii iv", "1 2 3 4"):
        spans: list[tuple[int, int, str]] = []
        for name in names.split():
            last = spans[-1][1] if spans and not spans[0][0] else 0
            marks = (*opening, *name, ")"), (*opening, f"\\text{{{name}}}", ")")
            found = (
                (at, at + len(m)) for at in range(last, len(tokens)) for m in marks if tokens[at : at + len(m)] == m
            )
            span = next(found, (-1, 0))
            if span[0] < 0:
                break
            spans.append((*span, name))
        spans.sort()
        if len(spans) > 1 and not spans[0][0]:
            ends = [*(start for start, _, _ in spans[1:]), len(tokens)]
            return [
                ((f"\\text{{({name})}}",), bare(tokens[start:end]))
                for (_, start, name), end in zip(spans, ends, strict=True)
            ]
    return []


def _permuted(tokens: Tokens) -> tuple[Node, ...]:
    """Of "(1, 2, 3) and its permutations" the six."""
    start = len(tokens)
    while start and (is_word(tokens[start - 1]) or tokens[start - 1] == ","):
        start -= 1
    words = {word_of(token) for token in tokens[start:]}
    if not words & {"permutation", "permutations"} or not words <= _PERMUTATIONS:
        return ()
    one = read(tokens[:start]) if start else None
    if one is None or one.kind != "tuple" or not 2 <= len(one.items) <= 4:
        return ()
    items = one.items
    orders = [items[at:] + items[:at] for at in range(len(items))] if "cyclic" in words else [*permutations(items)]
    each = {tuple(item.tokens for item in order): order for order in orders}
    return tuple(
        Node("tuple", ("(", *[t for item in order for t in (",", *item.tokens)][1:], ")"), tuple(order), form="()")
        for order in each.values()
    )


def _said_cases(tokens: Tokens) -> Node | None:
    """The function of "1 if n is even, 0 if n is odd", perhaps with its name, a_n = 1 if ...; None where this is anything else."""
    if _IF.isdisjoint(tokens):
        return None
    parts = [filled(part, _IF) for part in filled(tokens, _SEPARATORS)]
    if len(parts[-1]) == 1:
        last = parts[-1][0]
        if word_of(last[-1]) in _OTHERWISE:
            parts[-1] = [last[:-1], last[-1:]]
        elif word_of(last[0]) in _OTHERWISE:
            parts[-1] = [last[1:], last[:1]]
    if len(parts) < 2 or any(len(part) != 2 or not all(map(bare, part)) for part in parts):
        return None
    sides = [split(value, {"="}) for value, _ in parts]
    names = {side[0] for side in sides if len(side) == 2}
    if len(names) > 1:
        return None
    branches = tuple(
        Node("conditional", value, (read(side[-1] if len(side) == 2 else value), read(condition)))
        for side, (value, condition) in zip(sides, parts, strict=True)
    )
    cases = Node("cases", tokens, branches)
    return Node("relation", tokens, (read(names.pop()), cases), operators=("=",)) if names else cases


def _except(tokens: Tokens) -> Node | None:
    """All real numbers except 1 and 3."""
    sides = [bare(side) for side in split(tokens, {"\\text{except}"})]
    if len(sides) != 2 or not all(sides):
        return None
    members = _list(sides[1])
    points = members.items if members.kind == "list" else (members,)
    return Node("difference", tokens, (read(sides[0]), Node("set", sides[1], points)))


def _list(tokens: Tokens) -> Node:
    if word_of(tokens[0]) == "either" and "\\text{or}" in tokens:
        tokens = tokens[1:]
    parts = _continued([part for part in filled(tokens, _SEPARATORS) if part != ("\\text{respectively}",)])
    for separator in {";", "\\text{or}"}.intersection(tokens):  # p=5, q=2; p=7, q=2
        groups = filled(tokens, {separator})
        each = {(len(filled(group, _SEPARATORS)), group.count("=")) for group in groups}
        are_points = separator == ";" or (len(each) == 1 and len({*each.pop()}) == 1)
        if 1 < len(groups) < len(parts) and are_points:
            return Node("list", tokens, tuple(map(read, groups)), form=",")
    if len(parts) > 1:
        form = "or" if "\\text{or}" in tokens else "and" if "\\text{and}" in tokens else ","
        return Node("list", tokens, _expanded(_unequal_to_each(parts)), form=form)
    if not parts:
        raise UnreadableAnswer("the answer is empty")
    tokens = parts[0]
    if tokens[0] == "\\{" and closes(tokens, 0) == len(tokens) - 1:
        return _set(tokens)
    if "\\pm" in tokens or "\\mp" in tokens:
        return Node("list", tokens, _expanded([tokens]), form="or")
    return _single(tokens)


def _unequal_to_each(parts: list[Tokens]) -> list[Tokens]:
    r"""x \ne 1, 2 says x \ne 1 and x \ne 2."""
    start = parts[0].index("\\ne") + 1 if "\\ne" in parts[0] else 0
    if not start or any(not RELATIONS.isdisjoint(part) for part in parts[1:]):
        return parts
    return [parts[0], *((*parts[0][:start], *part) for part in parts[1:])]


def _set(tokens: Tokens) -> Node:
    inside = tokens[1:-1]
    for bar in ("\\mid", ":", "|"):
        elements = split(inside, {bar})[0]
        condition = bare(inside[len(elements) + 1 :])
        if bare(elements) and condition and len(split(elements, {","})) == 1:
            return _described(tokens, bare(elements), condition)
    items = _expanded(_continued(filled(inside, {",", ";"})))
    named = len(items) > 1 and all(item.operators == ("=",) and is_name(item.items[0]) for item in items)
    return Node("list", tokens, items, form="and") if named else Node("set", tokens, items)  # {x = 4, y = -1}


def _described(tokens: Tokens, elements: Tokens, condition: Tokens) -> Node:
    r"""\{x \mid 1 < x < 2\}: where a real number is described, the condition says it all."""
    sides = split(elements, {"\\in"})
    if (
        len(sides[0]) == 1
        and sides[0][0] in condition
        and (len(sides) == 1 or sides[1] in (("\\mathbb{R}",), ("\\mathbb{C}",)))
    ):
        return _bound(read(condition))
    if len(sides) == 2 and sides[1] == ("\\mathbb{Z}",) and sides[0][0] in condition:
        described = _bound(read(condition))
        if described.kind == "relation":
            return replace(described, ranges=((sides[0][0], "Z"),))
    if ORDER.intersection(elements) and len(names := {*filter(str.isalpha, elements)}) == 1 and names <= {*condition}:
        return _bound(Node("list", tokens, (read(elements), read(condition)), form="and"))  # x > 0 \mid x \ne 1
    if elements[0] == "(" and all(t in "(,)" or (t.isalpha() and t in condition) for t in elements):
        return _bound(read(condition))  # (x, y) \\mid x^2 + y^2 < 1
    parameter = take_conditions((*elements, ",", *condition))
    if parameter[1] and not parameter[2]:  # \{2k+1 \mid k \in \mathbb{Z}\}
        return replace(Node("set", tokens, _expanded([elements])), ranges=parameter[1])
    return Node("described", tokens, (read(elements), read(condition)))


def _bound(node: Node) -> Node:
    """The condition of a set: another letter for its variable is no other set."""
    if node.kind == "list":
        return replace(node, items=tuple(map(_bound, node.items)))
    return replace(node, form=BOUND) if node.kind == "relation" else node


def _single(tokens: Tokens) -> Node:
    if tokens[0] in ORDER and len(tokens) > 1:  # at least 5: of what, is not said
        return _single((*_UNNAMED, *tokens))
    sides, operators = _relation(tokens)
    if operators:
        return _related(tokens, tuple(map(read, sides)), operators)
    for operation, kind in SET_OPERATIONS.items():
        members = split(tokens, {operation})
        if len(members) > 1 and all(map(bare, members)):
            return Node(kind, tokens, tuple(read(member) for member in members))
    value = _bracketed(tokens) or matrix(tokens) or _cases(tokens)
    if value is not None:
        return value
    terms = split(tokens, {":", "\\text{to}"})
    if len(terms) > 1 and all(map(bare, terms)):
        return Node("tuple", tokens, tuple(read(term) for term in terms), form=":")
    if all(map(is_word, tokens)):
        return Node("words", tokens)
    if tokens[0] in _POINT_NAMES and tokens[1:2] == ("(",) and closes(tokens, 1) == len(tokens) - 1 and "," in tokens:
        return Node("relation", tokens, (_leaf(tokens[:1]), read(tokens[1:])), operators=("=",))  # A(2, 3)
    return _each_with_unit(_leaf(tokens), tokens) if "," in tokens else _leaf(tokens)


def _each_with_unit(leaf: Node, tokens: Tokens) -> Node:
    """(2, -3) m/s: the unit is that of each component."""
    inside = tokens[: closes(tokens, 0) + 1]
    if (
        not leaf.unit.measure
        or not 2 < len(inside) < len(tokens)
        or tokens[0] not in ("(", "[", "\\langle")
        or "," in tokens[len(inside) :]
    ):
        return leaf
    vector = read(inside)
    if vector.kind != "tuple" or any(item.kind != "leaf" or item.unit != NO_UNIT for item in vector.items):
        return leaf
    return replace(vector, items=tuple(replace(item, unit=leaf.unit) for item in vector.items), unit=leaf.unit)


def _related(tokens: Tokens, items: tuple[Node, ...], operators: Tokens) -> Node:
    *names, value = items
    if len(names) > 1 and set(operators) == {"="} and all(map(is_name, names)) and not letters(value.tokens):
        each = [(*name.tokens, "=", *value.tokens) for name in names]  # x = y = 1
        return Node("list", tokens, tuple(map(read, each)), form="and")
    is_unnamed = any(item.tokens == _UNNAMED for item in items)
    return Node("relation", tokens, items, operators=operators, form=BOUND if is_unnamed else "")


def _bracketed(tokens: Tokens) -> Node | None:
    if tokens[0] not in OPENERS or closes(tokens, 0) != len(tokens) - 1:
        return None
    inside = split(tokens[1:-1], {",", ";"})
    grouping = tokens[0] in ("(", "{") and tokens[-1] in (")", "}")
    is_table = inside[0][:1] == ("\\begin{matrix}",) and closes(inside[0], 0) == len(inside[0]) - 1
    if len(inside) == 1 and (grouping or is_table):
        return read(tokens[1:-1])  # brackets that only group
    if tokens[0] not in ("(", "[", "\\langle") or not all(map(bare, inside)):
        return None
    form = (tokens[0] + tokens[-1]).replace("\\langle", "(").replace("\\rangle", ")")
    return Node("tuple", tokens, tuple(map(read, inside)), form=form)


def _residue(tokens: Tokens) -> Node | None:
    r"""x \equiv 5 \pmod 7: a value and its modulus."""
    if tokens.count("\\mod") != 1:
        return None
    at = tokens.index("\\mod")
    value, modulus = tokens[:at], tokens[at + 1 :]
    if filled(modulus, _SEPARATORS) != [bare(modulus)]:
        body = take_conditions(tokens)[0]
        return _residue(body) if len(body) < len(tokens) else None  # 3 \\pmod 5, 4 are two answers
    if value[-1:] == ("(",) and modulus[-1:] == (")",):
        value, modulus = value[:-1], modulus[:-1]
    if not bare(value) or not bare(modulus) or not CLOSERS.isdisjoint(t for t in modulus if t != "}"):
        return None
    return Node("residue", tokens, (read(value), read(modulus)))


def _relation(tokens: Tokens) -> tuple[list[Tokens], Tokens]:
    sides = split(tokens, RELATIONS)
    if len(sides) == 1 or not all(map(bare, sides)):
        return [tokens], ()
    operators, position = [], -1
    for side in sides[:-1]:
        position += len(side) + 1
        operators.append("=" if tokens[position] in ("\\equiv", "\\cong") else tokens[position])  # f \\equiv 0
    return sides, tuple(operators)


def _expanded(parts: list[Tokens]) -> tuple[Node, ...]:
    r"""The parts as nodes, ``\pm`` written out: 1 \pm \sqrt2 stands for two values, \pm 1 \pm \sqrt2 for four."""
    nodes: list[Node] = []
    for part in parts:
        signs = [index for index, token in enumerate(part) if token in ("\\pm", "\\mp")]
        if len(signs) > 4:
            raise UnreadableAnswer("too many signs of two meanings")
        if not signs:
            nodes.append(read(part))
            continue
        together = "\\mp" in part  # \pm ... \mp: one choice for both
        for choice in range(2 if together else 2 ** len(signs)):
            signed = list(part)
            for place, index in enumerate(signs):
                plus = (choice >> (0 if together else place) & 1 == 0) == (part[index] == "\\pm")
                signed[index] = "+" if plus else "-"
            nodes.append(read(tuple(signed)))
    return tuple(nodes)


def matrix(tokens: Tokens) -> Node | None:
    if not tokens or tokens[0] != "\\begin{matrix}" or closes(tokens, 0) != len(tokens) - 1:
        return None
    rows = [split(row, {"&"}) for row in filled(tokens[1:-1], {"\\newrow"})]
    if len({len(row) for row in rows}) != 1 or not all(bare(cell) for row in rows for cell in row):
        raise UnreadableAnswer("the rows of a matrix differ in length or have an empty cell")
    cells = tuple(read(cell) for row in rows for cell in row)
    if len(rows[0]) == 1 and all(cell.operators for cell in cells):  # the lines of a system
        return Node("list", tokens, cells, form="and")
    return Node("matrix", tokens, cells, form=str(len(rows[0])))


def _cases(tokens: Tokens) -> Node | None:
    """The lines of a system are a list; those of a function by cases are values with their conditions."""
    if tokens[0] != "\\begin{cases}" or closes(tokens, 0) != len(tokens) - 1:
        return None
    lines = [_cells(row) for row in filled(tokens[1:-1], {"\\newrow"})]
    if not lines or not all(1 <= len(line) <= 2 for line in lines):
        raise UnreadableAnswer("the lines of the cases are not understood")
    if all(len(line) == 1 for line in lines) or all(line[-1][0] in RELATIONS for line in lines):
        items = _expanded([tuple(token for cell in line for token in cell) for line in lines])
        return items[0] if len(items) == 1 else Node("list", tokens, items, form="and")
    branches = []
    for line in lines:
        dropped = ("if", "for", "when")
        cells = (tuple(token for token in cell if word_of(token) not in dropped) for cell in line)
        branches.append(Node("conditional", line[0], tuple(map(read, cells))))
    return Node("cases", tokens, tuple(branches))


def _cells(row: Tokens) -> list[Tokens]:
    r"""The value and the condition of a line of cases; a comma alone may stand between them: 2n, n \ge 2."""
    cells = filled(row, {"&"})
    parts = filled(row, {","}) if len(cells) == 1 else []
    is_conditional = len(parts) == 2 and RELATIONS.isdisjoint(parts[0]) and not RELATIONS.isdisjoint(parts[1])
    return parts if is_conditional else cells


def _leaf(tokens: Tokens) -> Node:
    whole = tokens
    if tokens[-2:] == ("'", "'") and tokens[-3:-2] and (tokens[-3][0].isdigit() or tokens[-3] == "}"):
        tokens = (*tokens[:-2], "\\text{inch}")
    tokens, unit = take_unit(_continued_decimal(tokens))
    # One pair of brackets may be left around what stood beside the unit: (5) cm
    while len(tokens) > 2 and tokens[0] in ("(", "{") and closes(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return Node("leaf", tokens, unit=unit, whole=whole)


def _continued_decimal(tokens: Tokens) -> Tokens:
    r"""0.333\dots as 0.\overline{3}, where the period is plain."""
    if tokens[-1] != "\\dots" or len(tokens) < 2 or "." not in tokens[-2] or len(tokens[-2]) > 60:
        return tokens
    match = re.fullmatch(r"([0-9]+\.[0-9]*?)([0-9]+?)\2+", tokens[-2])
    repeats = 0 if match is None else (len(tokens[-2]) - len(match[1])) // len(match[2])
    if match is None or repeats < (3 if len(match[2]) == 1 else 2):
        return tokens
    return (*tokens[:-2], match[1], "\\overline", "{", match[2], "}")


def plain_words(node: Node) -> str:
    r"""The answer read as words: ``\text{}`` and bare words alike, case, spaces and quotes ignored."""
    joined = "".join(token[6:-1] if is_word(token) else token for token in node.whole or node.tokens)
    plain = re.sub(r"[\s{}()'\".,]+", "", joined).rstrip("!")
    return plain.lower() if len(plain) > 1 else plain  # a single letter may be a variable: X is not x


def letters(tokens: Tokens) -> bool:
    """Whether variables or words stand among the tokens (pi, e, i and functions are none)."""
    return any(
        token in _GREEK
        or token.startswith(("\\text{", "\\vec{", "\\mathbf{", "\\mathbb{P", "\\mathbb{E"))
        or (len(token) == 1 and token.isalpha() and token not in "ei")
        for token in tokens
    )


_GREEK = commands(
    "theta alpha beta gamma delta lambda mu sigma phi omega rho tau psi epsilon chi xi zeta eta kappa nu iota upsilon"
)


# --- names ---

_PREFIX = r"(?:m?\\(?:angle|triangle|measuredangle|Delta|square|odot|partial|nabla) ?)*"
_ATOM = (
    r"(?:(?:\\text\{[^{}]*\})+|\\(?:overline|tilde|dot|ddot|hat|vec|mathbf)\{\\?[A-Za-z]+\}|\\(?:mathbb|mathfrak)\{[A-Z]\}|[A-Z]+|[a-z]"
    r"|\\(?!frac|sqrt|binom|cdot|pi|infty|log|ln|sin|cos|tan)[A-Za-z]+|\\pi(?=_)) ?"
)
_INSIDE = r"[^()\[\]]*(?:\([^()\[\]]*\)[^()\[\]]*)*"
_NAME = re.compile(
    rf"\|?{_PREFIX}{_ATOM}(?:_\{{[^{{}}]*\}}|'|\^\{{(?:-1|\*|\(\w\))\}})*(?:\({_INSIDE}\)|\[{_INSIDE}\])?\|?"
)


def is_name(node: Node) -> bool:
    r"""What may stand before the equals sign of an answer: x, f(x), a_1, AB, \angle ABC, [ABC], P(X > 1), dy/dx, \text{Area}."""
    if node.kind == "words":
        return True
    if node.kind in ("tuple", "matrix"):  # (x, y) = (1, 2)
        return all(map(is_name, node.items))
    tokens = node.whole or node.tokens
    if tokens[0] == "\\frac" and tokens[2] in ("d", "\\partial"):
        return True
    return letters(tokens) and _NAME.fullmatch(join(tokens)) is not None
