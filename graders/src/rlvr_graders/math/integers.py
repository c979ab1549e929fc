"""Conditions on whole numbers, said in different ways: "all odd integers n > 1" and "n is odd and n >= 3"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .phrases import COMPARED
from .tokens import Tokens, is_word, listed, word_of

_LONGEST = 24
_WHOLE = listed("integer integers odd even positive natural")
_SAYING_NOTHING = listed(
    "all any every each the are is a an for with such that where which and number numbers whole values of"
)
_BOUND = re.compile(r"([a-zA-Z]*?)(<|>|\\le|\\ge) ?(-?)(\d{1,9})([a-zA-Z]*)")


@dataclass(frozen=True)
class _Members:
    step: int
    """1 for all whole numbers, 2 for the odd or even ones; 0 where nothing says that they are whole."""
    name: str
    is_least: bool
    end: int
    """The first of them, or the last."""


def same_integers(asked: Tokens, given: Tokens) -> bool:
    """Whether both say in words or signs from where on, or up to where, the same whole numbers go; the reference says that they are."""
    if not any(map(is_word, asked)) or len(asked) + len(given) > 2 * _LONGEST:
        return False
    one = _members(asked)
    other = _members(given, is_whole=one is not None and one.step == 1)
    if one is None or other is None or not one.step or one.step != other.step:
        return False
    same_name = one.name == other.name or "" in (one.name, other.name)
    return same_name and (one.is_least, one.end) == (other.is_least, other.end)


def _members(tokens: Tokens, *, is_whole: bool = False) -> _Members | None:
    words = tuple(word_of(token) for token in tokens)
    for said, sign in COMPARED.items():  # greater than 3
        at = next((at for at in range(len(words)) if words[at : at + len(said)] == said), -1)
        if at >= 0:
            tokens = (*tokens[:at], sign, *tokens[at + len(said) :])
            break
    plain = [
        word_of(token) if len(token) == 8 and is_word(token) and token != "\\text{a}" else token for token in tokens
    ]  # \text{n}
    kinds = {word_of(token) for token in plain if word_of(token) in _WHOLE}
    is_whole |= bool(kinds - {"positive"})
    others = {word_of(token) for token in plain if is_word(token)} - _WHOLE
    match = _BOUND.fullmatch("".join(token for token in plain if not is_word(token) and token not in ",()"))
    if match is None or not others <= _SAYING_NOTHING or len({*match[1], *match[5]}) > 1 or {"odd", "even"} <= kinds:
        return None
    is_least, end = match[2] in (">", "\\ge"), int(match[3] + match[4])
    if match[2] in ("<", ">") and is_whole:
        end += 1 if is_least else -1
    if "positive" in kinds or "natural" in kinds:
        if not is_least:
            return None
        end = max(end, int("positive" in kinds))
    step = 2 if {"odd", "even"} & kinds else int(is_whole)
    if step == 2 and end % 2 != ("odd" in kinds):
        end += 1 if is_least else -1
    return _Members(step, "".join({*match[1], *match[5]}), is_least, end)
