r"""What the parts of this room pass to each other: canonical tokens, and how they are taken apart.

A canonical token is a number, a letter, a command, a sign, or a word: ``\text{word}``. Arguments stand in braces.
"""

from __future__ import annotations

import threading

Tokens = tuple[str, ...]

MAX_ITEMS = 64
"""Most items of a list that are looked at."""
OPENERS = frozenset({"(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil"})
CLOSERS = frozenset({")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil"})


class UnreadableAnswer(ValueError):
    """The answer cannot be read; the message says why."""


class OutOfSteps(Exception):
    """More work than the process that trains may do: a worker goes on, where a time limit holds."""


class _Steps(threading.local):
    left: float = float("inf")


_STEPS = _Steps()


class at_most:  # a generator would take three times as long
    """Reading and comparing inside of it may take so many steps (about a microsecond each), then it raises `OutOfSteps`."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def __enter__(self) -> None:
        self._before, _STEPS.left = _STEPS.left, self._steps

    def __exit__(self, *error: object) -> None:
        _STEPS.left = self._before


def step(cost: int) -> None:
    """Called wherever work is done that an answer can ask for more of."""
    _STEPS.left -= cost
    if _STEPS.left < 0:
        raise OutOfSteps


def listed(names: str) -> frozenset[str]:
    """The names in a text, for tables that are long."""
    return frozenset(names.split())


def commands(names: str) -> frozenset[str]:
    """The same as LaTeX commands, with their backslash."""
    return frozenset("\\" + name for name in names.split())


def is_word(token: str) -> bool:
    return token.startswith("\\text{")


def word_of(token: str) -> str:
    """The word in lower case; nothing for any other token."""
    return token[6:-1].lower() if token.startswith("\\text{") else ""


def join(tokens: Tokens | list[str]) -> str:
    """Tokens as LaTeX again: a space only where a command would swallow the next letter."""
    parts: list[str] = []
    for token in tokens:
        if parts and token[0].isalpha() and parts[-1][0] == "\\" and parts[-1][-1].isalpha():
            parts.append(" ")
        parts.append(token)
    return "".join(parts)


def bare(tokens: Tokens) -> Tokens:
    """Without spaces, full stops and redundant braces around."""
    while tokens and tokens[0] in (" ", ":", ",", ";", "."):
        tokens = tokens[1:]
    while tokens and tokens[-1] in (" ", ".", ",", ";", ":"):
        tokens = tokens[:-1]
    while len(tokens) > 1 and tokens[0] == "{" and closes(tokens, 0) == len(tokens) - 1:
        tokens = bare(tokens[1:-1])
    return tokens


def closes(tokens: Tokens, start: int) -> int:
    """Where the bracket that opens at `start` closes; -1 where it does not."""
    depth = 0
    for index in range(start, len(tokens)):
        if tokens[index] in OPENERS or tokens[index].startswith("\\begin"):
            depth += 1
        elif tokens[index] in CLOSERS or tokens[index].startswith("\\end"):
            depth -= 1
            if depth == 0:
                return index
    return -1


def split(tokens: Tokens, separators: set[str] | frozenset[str]) -> list[Tokens]:
    """The parts between the separators that stand outside every bracket."""
    if separators.isdisjoint(tokens):
        return [tokens]
    parts: list[Tokens] = []
    depth, begin = 0, 0
    for index, token in enumerate(tokens):
        if token in OPENERS or token.startswith("\\begin"):
            depth += 1
        elif token in CLOSERS or token.startswith("\\end"):
            depth -= 1
        elif depth == 0 and token in separators:
            parts.append(tokens[begin:index])
            begin = index + 1
    parts.append(tokens[begin:])
    if len(parts) > MAX_ITEMS:
        raise UnreadableAnswer(f"the answer lists {len(parts)} items, more than {MAX_ITEMS}")
    return parts


def filled(tokens: Tokens, separators: set[str] | frozenset[str]) -> list[Tokens]:
    """The parts between the separators, bare and without the empty ones: "1, 2, and 3" has one."""
    return [part for part in map(bare, split(tokens, separators)) if part]


def last_bracket(tokens: Tokens) -> int:
    """Where the round bracket opens that closes with the last token; 0 where there is none, or nothing stands before it."""
    if not tokens or tokens[-1] != ")":
        return 0
    last = len(tokens) - 1
    opened = (index for index in range(1, last) if tokens[index] == "(" and closes(tokens, index) == last)
    return next(opened, 0)
