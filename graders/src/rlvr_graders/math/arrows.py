"""Letters that are vectors on one side of a comparison only."""

from __future__ import annotations

from .latex import tokens_of
from .tokens import Tokens

BASIS = {letter: f"\\vec{{{letter}}}" for letter in "ijk"}


def with_basis(tokens: Tokens, other: Tokens) -> Tokens:
    """3i - 2j beside a vector of numbers, or beside the unit vectors in bold: there its letters are the unit vectors."""
    names, others = ({token for token in side if token.isalpha()} for side in (tokens, other))
    if others or len(names) < 2 or not names <= BASIS.keys():
        return tokens
    is_vector = other[:1] in (("(",), ("\\langle",), ("\\begin{matrix}",)) or not {*BASIS.values()}.isdisjoint(other)
    return tuple(BASIS.get(token, token) for token in tokens) if is_vector else tokens


def has_vectors(tokens: Tokens) -> bool:
    return any(map(_is_vector, tokens))


def same_arrows(expected: Tokens, reading: Tokens, reference: str, prediction: str) -> tuple[Tokens, Tokens]:
    """Where one side sets no arrows, the other's say nothing; but a cross product keeps its order, so there both have them."""
    names = frozenset(filter(_is_vector, (*expected, *reading)))
    if "\\times" in (*expected, *reading):
        one, other = (tokens_of(text, crosses=True) for text in (reference, prediction))
        return _plain(one, names), _plain(other, names)
    return _plain(expected), _plain(reading)


def _is_vector(token: str) -> bool:
    return token.startswith(("\\vec{", "\\mathbf{")) and token[-3] == "{" and token not in BASIS.values()


def _plain(tokens: Tokens, but: frozenset[str] = frozenset()) -> Tokens:
    return tuple(token[-2] if _is_vector(token) and token not in but else token for token in tokens)
