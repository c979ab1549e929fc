r"""Spans, \operatorname{span}\{(1, 0, 1), (0, 1, 0)\}: two are the same where they are the same subspace."""

from __future__ import annotations

from fractions import Fraction

from .exact import TooLarge, exact_value
from .expression import parse
from .leaves import Judge
from .structure import Node, read
from .tokens import OPENERS, Tokens, UnreadableAnswer, bare, closes, step, word_of

_MOST, _LONGEST = 8, 120
"""Vectors, and tokens, of the largest span that is worked out."""
_MOST_BITS = 256
_NAMES = frozenset({"\\text{span}", "\\text{Span}", "\\text{lin}", "\\span", "\\Span"})


def same_span(asked: Tokens, given: Tokens, by: Judge) -> bool | None:
    """Whether both are spans of the same space; None where the reference is none."""
    if _NAMES.isdisjoint(asked):
        return None
    one, other = _vectors(asked), _vectors(given)
    if one is None:
        return None
    if other is None:
        return False
    rows = _numbers(one), _numbers(other)
    if rows[0] is None or rows[1] is None:  # polynomials
        return by.same(Node("set", one.tokens, one.items), Node("set", other.tokens, other.items))
    return _reduced(rows[0]) == _reduced(rows[1])


def _vectors(tokens: Tokens) -> Node | None:
    """What stands in the braces, or brackets, behind the name."""
    at = next((at for at, token in enumerate(tokens) if token in _NAMES), -1)
    is_named = at in (0, 2) and (at == 0 or tokens[1] == "=")
    inside = bare(tuple(token for token in tokens[at + 1 :] if word_of(token) not in ("of", "the", "vectors")))
    if not is_named or not inside or len(inside) > _LONGEST:
        return None
    holds_vectors = inside[0] == "\\{" or (
        inside[0] == "(" and (inside[1] in OPENERS or inside[1].startswith("\\begin"))
    )
    if holds_vectors and closes(inside, 0) == len(inside) - 1:
        inside = inside[1:-1]
    node = read(inside)
    items = node.items if node.kind in ("list", "set") else (node,)
    return Node("list", inside, items) if len(items) <= _MOST else None


def _numbers(vectors: Node) -> list[list[Fraction]] | None:
    """The vectors as rows; None where they are anything but numbers in one length."""
    rows = []
    for vector in vectors.items:
        is_column = vector.kind == "matrix" and vector.form in ("1", str(len(vector.items)))
        if not is_column and not (vector.kind == "tuple" and vector.form in ("()", "[]")):
            return None
        try:
            row = [
                exact_value(parse(item.tokens), _MOST_BITS) if item.kind == "leaf" else None for item in vector.items
            ]
        except (UnreadableAnswer, TooLarge):
            return None
        rows.append([value for value in row if isinstance(value, Fraction)])
    widths = {len(row) for row in rows} | {len(vector.items) for vector in vectors.items}
    return rows if len(widths) == 1 and widths.pop() <= _MOST else None


def _reduced(rows: list[list[Fraction]]) -> tuple[int, list[list[Fraction]]]:
    """The width and the rows of the reduced echelon form that are not zero."""
    rows, width, done = [row[:] for row in rows], len(rows[0]), 0
    for column in range(width):
        pivot = next((at for at in range(done, len(rows)) if rows[at][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        head = rows[done][column]
        rows[done] = [value / head for value in rows[done]]
        for at, row in enumerate(rows):
            if at != done and row[column]:
                factor = row[column]
                rows[at] = [value - factor * first for value, first in zip(row, rows[done], strict=True)]
        done += 1
        step(20 * len(rows))
    return width, rows[:done]
