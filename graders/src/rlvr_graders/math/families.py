r"""Free parameters and constants: x = 2k\pi is x = 2n\pi, and C_1 e^x is A e^x. Another letter there is no other answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

from .structure import Node, is_name, letters
from .tokens import Tokens, is_word, join, listed, word_of

_WHOLE = listed("k n m l j p q r s t N K")
"""Letters that people let run through the whole numbers."""
_REAL = listed("t s r u v k n m a c p q \\lambda \\mu \\alpha \\beta \\tau \\theta \\phi")
_CONSTANTS = listed("C c K k A B D E M P a b d m p q \\alpha \\beta \\lambda")
_INTEGRATION = re.compile(r"[Cc](?:_\{\d\})?|[AB]|[Kk]_\{\d\}")
_ARGUMENTS = listed("x y z t u v w s r y' \\theta \\phi")
"""What a constant of integration stands beside: C in A + B + C is a quantity like the others."""
_NAMES = _REAL | _CONSTANTS
MOST = 3
"""Most parameters that are tried in every order."""


def names_of(tokens: Tokens) -> dict[str, list[int]]:
    """The variables of an answer with their indices, C_{1} as one name, and where each stands."""
    found: dict[str, list[int]] = {}
    at = 0
    while at < len(tokens):
        token, start = tokens[at], at
        at += 1
        if not ((len(token) == 1 and token.isalpha() and token not in "ei") or (token[0] == "\\" and token in _NAMES)):
            continue
        if tokens[at : at + 2] == ("_", "{") and tokens[at + 3 : at + 4] == ("}",):
            token, at = f"{token}_{{{tokens[at + 2]}}}", at + 4
        found.setdefault(token, []).append(start)
    return found


def renamed(asked: Node, given: Node) -> Iterator[Tokens]:
    """The given answer with the reference's names for its free parameters, in every order that may be meant."""
    if asked.kind == "relation" != given.kind:
        asked = _value(asked)
    ours, theirs = names_of(asked.tokens), names_of(given.tokens)
    if asked.kind == "leaf" and _is_function(given):
        theirs = names_of(_value(given).tokens)
        if len(ours) == len(theirs) == 1 and given.items[0].text.endswith(f"({next(iter(theirs))})"):
            yield _replaced(_value(given).tokens, dict(zip(theirs, ours, strict=True)))  # f(t) = 2t for 2x
        return
    wanted = [name for name in ours if name not in theirs]
    spare = [name for name in theirs if name not in ours]
    subscripted = [name for name in ours if name in theirs and re.fullmatch(r"[Cc]_\{\d\}", name)]
    if not wanted and len(subscripted) > 1:  # C_1 and C_2 change places
        wanted = spare = subscripted
    if not 0 < len(wanted) == len(spare) <= MOST or not _are_free(asked, given, wanted, spare):
        return
    for order in permutations(wanted):
        yield _replaced(given.tokens, dict(zip(spare, order, strict=True)))


def _are_free(asked: Node, given: Node, wanted: list[str], spare: list[str]) -> bool:
    """Whether the names that differ are parameters on both sides."""
    both = {*wanted, *spare}
    if all(map(_INTEGRATION.fullmatch, wanted)) and all(name.split("_")[0] in _CONSTANTS for name in spare):
        main = set(names_of(asked.tokens)) - both
        is_general = any(name[0] in "Cc" for name in wanted) and _ARGUMENTS.issuperset(main)
        return bool(main) and (is_general or _is_function(asked))
    if (
        len(wanted) == 1
        and both <= _WHOLE
        and all(_is_periodic(node.tokens, name) for node, name in zip((asked, given), (*wanted, *spare), strict=True))
    ):
        return True
    heads = [node.items[0].text if _is_function(node) else "" for node in (asked, given)]
    of_spare = heads[1].endswith(f"({spare[0]})")
    if len(wanted) == 1 and of_spare and heads[0] == heads[1].replace(f"({spare[0]})", f"({wanted[0]})"):
        return True  # f(t) = 2t for f(x) = 2x
    if _is_function(asked) and _is_function(given) and both <= _CONSTANTS:
        return True  # f(x) = ax + b
    if len(wanted) == 1 and both <= _WHOLE and asked.kind == given.kind == "relation":
        left, right = asked.items[0], given.items[0]
        return (
            asked.operators == given.operators == ("=",)
            and is_name(left)
            and left.tokens == right.tokens
            and len(left.tokens) == 1
            and left.tokens[0] not in both
        )
    if len(wanted) == 1 and both <= _REAL and all(map(_is_point, (asked, given))):
        assigned = [
            {
                name.tokens
                for item in (node.items if node.kind == "list" else (node,))
                for name in item.items[0].items or item.items[:1]
            }
            for node in (asked, given)
        ]
        return assigned[0] == assigned[1] and assigned[0].isdisjoint((name,) for name in both)
    is_vector = any(_is_vector(node) for node in (asked, given))
    return len(wanted) == 1 and both <= _REAL and is_vector and len(names_of(_value(asked).tokens)) == 1


def _is_function(node: Node) -> bool:
    """f(x) = ..., y(x) = ..., y = ..."""
    return (
        node.kind == "relation"
        and node.operators == ("=",)
        and re.fullmatch(r"y|(?:[fghpquvxyFGHPQ]|\\(?:vec|mathbf)\{[a-z]\})\([a-z]\)", node.items[0].text) is not None
    )


def _is_periodic(tokens: Tokens, name: str) -> bool:
    r"""Whether the letter multiplies \pi or a full number of degrees: 2k\pi, k \cdot 360^\circ."""
    text = re.sub(r"\\cdot ?", "", join(tokens))
    return (
        re.search(
            rf"(?:{name}\s*\\pi|\\pi\s*{name}|{name}\(?\d+\\degree|\d+\\degree\s*{name}|{name}360|360{name}|180{name})(?![a-z])",
            text,
        )
        is not None
    )


def _is_vector(node: Node) -> bool:
    value = _value(node)
    return (
        (value.kind == "tuple" and value.form != ":")
        or value.kind == "matrix"
        or (value.kind == "leaf" and "," in value.tokens)
        or "\\begin{matrix}" in value.tokens
    )


def _is_point(node: Node) -> bool:
    """x = t, y = 2t, z = -t"""
    names = {item.items[0].tokens for item in node.items if item.operators == ("=",)}
    if node.kind == "relation" and node.operators == ("=",) and node.items[0].kind == "tuple":  # (x, y) = (t, 2t)
        return all(len(item.tokens) == 1 for item in node.items[0].items)
    return node.kind == "list" and len(names) == len(node.items) and all(len(name) == 1 for name in names)


def whole_turns(asked: Node, given: Node) -> list[Node]:
    r"""(2k+1)\pi beside (2n-1)\pi: two letters for one parameter, so both are families; nothing for any other pair."""
    names = whole_parameter(asked), whole_parameter(given)
    if names[0] == names[1] or not all(names) or any("\\pi" not in node.tokens for node in (asked, given)):
        return []
    return [replace(node, ranges=((name, "Z"),)) for node, name in zip((asked, given), names, strict=True)]


def whole_exponents(node: Node) -> Node:
    r"""n = 3^k, k \ge 0 as n = 3^k, k \in \mathbb{N}_0: such a letter in an exponent counts."""
    if node.kind not in ("conditional", "list") or len(node.items) != 2:
        return node
    value, condition = node.items
    text = condition.text.replace(" ", "")
    match = re.fullmatch(r"([knmj])(?:(\\ge[01])|>(-1|0))(?:\\text\{an\}\\text\{integer\})?", text)
    if match is None or value.kind not in ("leaf", "relation") or match[1] not in _value(value).tokens:
        return node
    exponents = re.findall(r"\^\{[^{}]*\}", _value(value).text)
    if not any(match[1] in exponent for exponent in exponents):
        return node
    return replace(value, ranges=((match[1], "N0" if (match[2] or match[3])[-2:] in ("e0", "-1") else "N1"),))


def _value(node: Node) -> Node:
    return node.items[-1] if node.kind == "relation" else node


def _replaced(tokens: Tokens, names: dict[str, str]) -> Tokens:
    out: list[str] = []
    at = 0
    places = {start: name for name, starts in names_of(tokens).items() for start in starts}
    while at < len(tokens):
        name = places.get(at, "")
        new = names.get(name)
        width = 5 if "_" in name else 1
        if new is None:
            out += tokens[at : at + width] if name else [tokens[at]]
        else:
            base, _, index = new.partition("_")
            out += [base, "_", "{", index.strip("{}"), "}"] if index else [base]
        at += width if name else 1
    return tuple(out)


def whole_parameter(node: Node) -> str:
    """The one letter of an answer that may run through the whole numbers: k in x = 8k + 3; nothing where there are others."""
    value = _value(node)
    names = list(names_of(value.tokens))
    if value.kind != "leaf" or len(names) != 1 or names[0] not in _WHOLE or any(map(is_word, value.tokens)):
        return ""
    if node.kind == "relation" and (node.operators != ("=",) or not letters(node.items[0].tokens)):
        return ""
    return names[0]


def without_constant_word(tokens: Tokens) -> Tokens:
    """x + constant as x + C."""
    return tuple(
        "C" if word_of(token) in ("constant", "const") and at and tokens[at - 1] == "+" else token
        for at, token in enumerate(tokens)
    )
