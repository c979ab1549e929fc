r"""A sum sign beside the terms that it begins with: \sum_{n=0}^\infty (-1)^n x^n and 1 - x + x^2 - x^3 + \cdots."""

from __future__ import annotations

from .expression import Expression, parse, symbols
from .leaves import Judge
from .parts import whole
from .tokens import CLOSERS, OPENERS, Tokens

LEAST, MOST = 3, 12
"""How many of the terms must be shown (with the last of a finite sum), and how many are looked at."""
_INFINITY = ("constant", "infinity")


def same_series(asked: Tokens, given: Tokens, by: Judge) -> bool | None:
    """Whether one is the sum of which the other shows the first terms (and the last, of a finite one); None for any other pair."""
    total, shown = (asked, given) if asked[0] == "\\sum" else (given, asked)
    if total[0] != "\\sum" or "\\dots" not in shown or "\\dots" in total:
        return None
    first, last = _terms(shown)
    expression = parse(total)
    if expression[0] != "sum" or not LEAST <= len(first) + len(last) <= MOST:
        return None
    _, name, low, high, body = expression
    if (
        low[0] != "number"
        or low[1].denominator > 1
        or (high == _INFINITY) != (not last)
        or (last and symbols(high) == frozenset())
    ):
        return None
    start = int(low[1])
    terms = [_at(body, name, whole(start + n)) for n in range(len(first) + 1)]
    if by.algebra.equal(terms[0], whole(0)):  # n x^n from n = 0 on
        del terms[0]
    pairs = [*zip(first, terms, strict=False), *((part, _at(body, name, high)) for part in last)]
    return all(by.algebra.equal(term, parse(part)) for part, term in pairs)


def _terms(tokens: Tokens) -> tuple[list[Tokens], list[Tokens]]:
    """The terms before the dots and behind them, each with its sign."""
    terms: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in OPENERS) - (token in CLOSERS)
        if depth == 0 and token in "+-" and terms[-1]:
            terms.append([])
        if token != "+" or terms[-1]:
            terms[-1].append(token)
    parts = [tuple(term) for term in terms]
    at = next((at for at, part in enumerate(parts) if part[-1] == "\\dots" and len(part) < 3), 0)
    return parts[:at], parts[at + 1 :]


def _at(expression: Expression, name: str, value: Expression) -> Expression:
    if expression == ("symbol", name):
        return value
    return tuple(_at(part, name, value) if isinstance(part, tuple) else part for part in expression)
