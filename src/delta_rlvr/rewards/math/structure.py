r"""What an answer is: a number with a unit, a list, a tuple, an interval, a set, a union, a matrix, a relation, words.

The outer shape is read here, by us, because it is where leniency can be exploited (a list that contains the right answer, a set for
a tuple, a closed interval for an open one). The expressions at its leaves are left to algebra.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .latex import UnreadableAnswer, join
from .units import take_unit

Tokens = tuple[str, ...]

_PAIRS = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "\\langle": "\\rangle"}
_OPENERS, _CLOSERS = frozenset(_PAIRS), frozenset(_PAIRS.values())
RELATIONS = frozenset({"=", "<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\approx", "\\equiv"})
MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix"})
MAX_ITEMS = 64

# What may be said around a value without being part of it.
_EMPTY_WORDS = frozenset(
    {
        *(
            "the",
            "a",
            "an",
            "is",
            "about",
            "approximately",
            "approx",
            "roughly",
            "answer",
            "final",
            "exactly",
            "total",
        ),
        *("of", "only", "each"),
    }
)


@dataclass(frozen=True)
class Node:
    """One answer or a part of it."""

    kind: str
    """"leaf", "words", "list", "tuple", "set", "union", "matrix" or "relation"."""
    tokens: Tokens
    """The canonical tokens of the whole part."""
    items: tuple[Node, ...] = ()
    """Its parts, in order; the cells of a matrix row by row."""
    form: str = ""
    """Of a tuple its brackets, "()", "[)", ..., ":" for a ratio; of a matrix its number of columns."""
    operators: Tokens = ()
    """The relations between the items of a relation."""
    unit: str = ""
    """Of a leaf: its unit by its canonical name, "%" for a percentage, or whatever words stand beside it."""

    whole: Tokens = ()
    """Of a leaf: its tokens with the unit."""

    @property
    def text(self) -> str:
        return join(self.tokens)


def read(tokens: Tokens) -> Node:
    """The structure of an answer's tokens."""
    tokens = _bare(tokens)
    if not tokens:
        raise UnreadableAnswer("the answer is empty")
    tokens = _without_lead(tokens)
    parts = _split(tokens, {",", ";", "\\text{and}", "\\text{or}", "\\text{, and}", "\\text{, or}"})
    parts = [part for part in map(_bare, parts) if part]  # "1, 2, and 3" has an empty part
    if len(parts) > 1:
        return Node("list", tokens, _expanded(parts))
    if not parts:
        raise UnreadableAnswer("the answer is empty")
    tokens = parts[0]
    if tokens[0] == "\\{" and _closes(tokens, 0) == len(tokens) - 1:
        named = _split(tokens[1:-1], {"|", ":"})
        if len(named) == 2 and len(_bare(named[0])) == 1:  # {x | 1 < x < 2}: the condition says it all
            return read(named[1])
        inside = [part for part in map(_bare, _split(tokens[1:-1], {",", ";"})) if part]
        return Node("set", tokens, _expanded(inside))
    if "\\pm" in tokens or "\\mp" in tokens:
        return Node("list", tokens, _expanded([tokens]))
    return _single(tokens)


def _single(tokens: Tokens) -> Node:
    sides, operators = _relation(tokens)
    if operators:
        return Node("relation", tokens, tuple(read(side) for side in sides), operators=operators)
    members = _split(tokens, {"\\cup"})
    if len(members) > 1:
        return Node("union", tokens, tuple(read(member) for member in members))
    last = len(tokens) - 1
    if tokens[0] in _OPENERS and _closes(tokens, 0) == last:
        inside = _split(tokens[1:-1], {",", ";"})
        grouping = tokens[0] in ("(", "{") and tokens[-1] in (")", "}")
        if len(inside) == 1 and (grouping or _matrix(inside[0]) is not None):
            return read(tokens[1:-1])  # brackets that only group
        if all(map(_bare, inside)):
            form = ("(" if tokens[0] == "\\langle" else tokens[0]) + (
                ")" if tokens[-1] == "\\rangle" else tokens[-1]
            )
            return Node("tuple", tokens, tuple(read(part) for part in inside), form=form)
    matrix = _matrix(tokens)
    if matrix is not None:
        return matrix
    terms = _split(tokens, {":"})
    if len(terms) > 1 and all(map(_bare, terms)):
        return Node("tuple", tokens, tuple(read(term) for term in terms), form=":")
    if all(token.startswith("\\text{") for token in tokens):
        return Node("words", tokens)
    return _leaf(tokens)


def _bare(tokens: Tokens) -> Tokens:
    """Without spaces, full stops and redundant braces around."""
    while tokens and tokens[0] in (" ", ":", ",", ";"):
        tokens = tokens[1:]
    while tokens and tokens[-1] in (" ", ".", ",", ";", ":"):
        tokens = tokens[:-1]
    while len(tokens) > 1 and tokens[0] == "{" and _closes(tokens, 0) == len(tokens) - 1:
        tokens = _bare(tokens[1:-1])
    return tokens


def _without_lead(tokens: Tokens) -> Tokens:
    r"""Drops ``\text{The answer is}``, ``\approx`` and ``+`` from the front: they say nothing about the value."""
    while len(tokens) > 1:
        first = tokens[0]
        words = first[6:-1].lower().replace(":", " ").split() if first.startswith("\\text{") else None
        if first in ("+", "\\approx", "\\therefore", "\\implies", "\\Rightarrow") or (
            words is not None and words and set(words) <= _EMPTY_WORDS
        ):
            tokens = _bare(tokens[1:])
        else:
            break
    return tokens


def _closes(tokens: Tokens, start: int) -> int:
    """Where the bracket that opens at `start` closes; -1 where it never does. Half-open intervals mix their brackets."""
    depth = 0
    for index in range(start, len(tokens)):
        if tokens[index] in _OPENERS or tokens[index].startswith("\\begin"):
            depth += 1
        elif tokens[index] in _CLOSERS or tokens[index].startswith("\\end"):
            depth -= 1
            if depth == 0:
                return index
    return -1


def _split(tokens: Tokens, separators: set[str]) -> list[Tokens]:
    """Splits at the separators that stand outside every bracket."""
    parts: list[Tokens] = []
    depth, begin = 0, 0
    for index, token in enumerate(tokens):
        if token in _OPENERS or token.startswith("\\begin"):
            depth += 1
        elif token in _CLOSERS or token.startswith("\\end"):
            depth -= 1
        elif depth == 0 and token in separators:
            parts.append(tokens[begin:index])
            begin = index + 1
    parts.append(tokens[begin:])
    if len(parts) > MAX_ITEMS:
        raise UnreadableAnswer(f"the answer lists {len(parts)} items, more than {MAX_ITEMS}")
    return parts


def _relation(tokens: Tokens) -> tuple[list[Tokens], Tokens]:
    sides = _split(tokens, set(RELATIONS))
    if len(sides) == 1 or not all(map(_bare, sides)):
        return [tokens], ()
    operators, position = [], -1
    for side in sides[:-1]:
        position += len(side) + 1
        operators.append(tokens[position])
    return sides, tuple(operators)


def _expanded(parts: list[Tokens]) -> tuple[Node, ...]:
    r"""The parts as nodes, ``\pm`` written out: 1 \pm \sqrt2 stands for two values."""
    nodes: list[Node] = []
    for part in parts:
        if "\\pm" not in part and "\\mp" not in part:
            nodes.append(read(part))
            continue
        for plus, minus in (("+", "-"), ("-", "+")):
            signed = tuple(plus if t == "\\pm" else minus if t == "\\mp" else t for t in part)
            nodes.append(read(signed))
    return tuple(nodes)


def _matrix(tokens: Tokens) -> Node | None:
    if not tokens or not tokens[0].startswith("\\begin{") or _closes(tokens, 0) != len(tokens) - 1:
        return None
    if tokens[0][7:-1] not in MATRICES:
        return None
    rows = [_split(row, {"&"}) for row in _split(tokens[1:-1], {"\\newrow"}) if _bare(row)]
    if (
        not rows
        or len({len(row) for row in rows}) != 1
        or not all(_bare(cell) for row in rows for cell in row)
    ):
        raise UnreadableAnswer("the rows of a matrix differ in length or have an empty cell")
    cells = tuple(read(cell) for row in rows for cell in row)
    return Node("matrix", tokens, cells, form=str(len(rows[0])))


def _leaf(tokens: Tokens) -> Node:
    whole = tokens
    tokens, unit = take_unit(tokens)
    # One pair of brackets may be left around what stood beside the unit: (5) cm
    while len(tokens) > 2 and tokens[0] in ("(", "{") and _closes(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return Node("leaf", tokens, unit=unit, whole=whole)


def plain_words(node: Node) -> str:
    r"""The answer read as words: ``\text{}`` and bare words alike, case, spaces and quotes ignored."""
    joined = "".join(
        token[6:-1] if token.startswith("\\text{") else token for token in node.whole or node.tokens
    )
    plain = re.sub(r"[\s{}()'\"]+", "", joined).rstrip(".!")
    return plain.lower() if len(plain) > 1 else plain  # a single letter may be a variable: X is not x


def letters(tokens: Tokens) -> bool:
    """Whether variables or words stand among the tokens (pi, e, i and functions are none)."""
    greek = {
        "\\theta",
        "\\alpha",
        "\\beta",
        "\\gamma",
        "\\delta",
        "\\lambda",
        "\\mu",
        "\\sigma",
        "\\phi",
        "\\omega",
    }
    return any(
        token in greek
        or token.startswith("\\text{")
        or (len(token) == 1 and token.isalpha() and token not in "ei")
        for token in tokens
    )
