r"""Notations that one side has and the other writes out: \hbar and h/2\pi, z^* and \bar z, x1 and x_1, [A, B] and AB - BA."""

from __future__ import annotations

import re

from .tokens import Tokens, word_of

_LONGEST = 200
"""Tokens of the longest answer that is looked at."""
_DISTRIBUTIONS = {
    **dict.fromkeys(("\\text{Bin}", "\\text{Binomial}", "\\text{binomial}"), "B"),
    **dict.fromkeys(("\\text{Poisson}", "\\text{Poi}", "\\text{Pois}", "\\text{Po}"), "P"),
    **dict.fromkeys(("\\text{Uniform}", "\\text{Unif}"), "U"), **dict.fromkeys(("\\text{Normal}",), "N"),
    **dict.fromkeys(("\\text{Geometric}", "\\text{Geom}", "\\text{Geo}"), "G"),
}  # fmt: skip
"""The names of distributions and their letters."""
_STATED = frozenset({"\\parallel", "\\perp", "\\cong"})
_SEGMENT = re.compile(r"\\overline \{ ([A-Z] [A-Z]) \}")
_GAUSS = re.compile(r"(?<!\\sqrt )\[ ([^\[\](),;]+) \]")
"""Gauss's brackets: [n/2] is the floor, where the other side has one."""
_MARKS = frozenset({*_DISTRIBUTIONS, *_STATED, "\\hbar", "\\partial", "d", "*", "[", "_", "\\degree"})
_WINDS = {name: wind for wind in ("north", "south", "east", "west") for name in (wind, wind[0])}
_REDUCED = ("(", "\\frac", "{", "h", "}", "{", "2", "\\pi", "}", ")")
_NAME = r"(?<![^ ])([A-Za-z]|\\(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|rho|sigma|tau|phi|omega))"
_INDEXED = re.compile(_NAME + r" _ \{ (\d+) \}(?![^ ])")
_NUMBERED = re.compile(_NAME + r" (\d+)(?![^ ])")
_NUMBERED_NAME = re.compile(r"(?:^|(?<=, )|(?<=; )|(?<=\\text\{or\} )|(?<=\\text\{and\} ))([A-Za-z]) (\d) (?==)")
_STARRED = re.compile(r"(?<![^ ])((?:[a-z]|\\[a-z]{2,6})(?: _ \{ \w+ \})?) \^ \{ \* \}")
_OF = r"([A-Za-z]|\\(?:phi|psi|theta|rho|xi|eta|sigma))(?![^ ])"
_SHORT_PARTIAL = re.compile(r"\\partial _ \{ ([a-z ]{1,5}) \} (?:\^ \{ (\d) \} )?" + _OF)
_OPERATOR = re.compile(
    r"\\frac \{ (d|\\partial)((?: \^ \{ \d \})?) \} \{ ((?:d|\\partial) [a-z](?: \^ \{ \d \})?) \} " + _OF
)
_SOLIDUS = re.compile(r"(?<![^ ])(d|\\partial) ([A-Za-z]) / \1 ([a-z])(?![^ ])")
_PARTIAL_OF = re.compile(r"\\frac \{ \\partial (?:\^ \{ \d \} )?([A-Za-z]) \}")
_COMMUTATOR = re.compile(r"\[ ([A-Z]|\\hat \{ \S+ \}) , ([A-Z]|\\hat \{ \S+ \}) \]")


def in_one_notation(expected: Tokens, reading: Tokens) -> tuple[Tokens, Tokens]:
    """Both sides, where one has such a notation and the other has not, in the notation of one."""
    if reading[1:3] == ("e", "-") and "e" not in expected and "".join((reading[0], *reading[3:4])).isdigit():
        reading = (reading[0], "\\cdot", "10", "^", "{", "-", reading[3], "}", *reading[4:])  # 5e-3
    is_numbered = reading[2:3] == ("=",) and reading[0].isalpha() and reading[1].isdigit()  # x1 = 5
    if _MARKS.isdisjoint(expected) and _MARKS.isdisjoint(reading) and not is_numbered:
        return expected, reading
    if len(expected) + len(reading) > _LONGEST or " " in expected or " " in reading:
        return expected, reading
    found = {*expected, *reading}
    if "\\degree" in found:
        expected, reading = _bearing(expected), _bearing(reading)
    if "\\hbar" in found and "h" in found:
        expected, reading = _written_out(expected, reading), _written_out(reading, expected)
    if "\\partial" in found or ("d" in found and "/" in found):
        of = {name for side in (expected, reading) for name in _PARTIAL_OF.findall(" ".join(side))}
        expected, reading = _derivatives(expected, of), _derivatives(reading, of)
    if "*" in found and ("\\overline" in found or "|" in found or ("*" in expected and "*" in reading)):
        expected, reading = (_replaced(_STARRED, r"\\overline { \1 }", side) for side in (expected, reading))
    if not found.isdisjoint(_DISTRIBUTIONS):
        expected, reading = (tuple(_DISTRIBUTIONS.get(token, token) for token in side) for side in (expected, reading))
    if "\\overline" in found and not found.isdisjoint(_STATED):
        expected, reading = (_replaced(_SEGMENT, r"\1", side) for side in (expected, reading))
    if "[" in found and ("\\lfloor" in found or "\\lceil" in found):
        expected, reading = _floored(expected), _floored(reading)
    if "[" in found and "-" in found:
        expected, reading = _without_commutators(expected, reading), _without_commutators(reading, expected)
    if is_numbered or ("_" in expected) != ("_" in reading):
        expected, reading = _indexed(expected, reading), _indexed(reading, expected)
    return expected, reading


def _floored(tokens: Tokens) -> Tokens:
    return tokens if "\\lfloor" in tokens or "\\lceil" in tokens else _replaced(_GAUSS, r"\\lfloor \1 \\rfloor", tokens)


def _replaced(pattern: re.Pattern[str], by: str, tokens: Tokens) -> Tokens:
    return tuple(pattern.sub(by, " ".join(tokens)).split())


def _bearing(tokens: Tokens) -> Tokens:
    r"""N 30\degree E and 30\degree east of north, with or without \text."""
    if len(tokens) == 4 and tokens[1].isdigit() and tokens[2] == "\\degree":
        start, end = (_WINDS.get((word_of(token) or token).lower(), "") for token in (tokens[0], tokens[3]))
        if start in ("north", "south") and end in ("east", "west"):
            return (*tokens[1:3], f"\\text{{{end}}}", "\\text{of}", f"\\text{{{start}}}")
    return tokens


def _written_out(tokens: Tokens, other: Tokens) -> Tokens:
    r"""\hbar as h/2\pi where the other side has h."""
    if "\\hbar" not in tokens or "h" in tokens or "h" not in other:
        return tokens
    return tuple(part for token in tokens for part in (_REDUCED if token == "\\hbar" else (token,)))


def _indexed(tokens: Tokens, other: Tokens) -> Tokens:
    """x1 + x2 as x_1 + x_2 where the other side has these, and x1 = 5 as x_1 = 5."""
    text = _NUMBERED_NAME.sub(r"\1 _ { \2 } ", " ".join(tokens))
    known = {*_INDEXED.findall(" ".join(other))}
    if "_" in tokens or not known:
        return tuple(text.split())
    return tuple(_NUMBERED.sub(lambda m: f"{m[1]} _ {{ {m[2]} }}" if m.groups() in known else m[0], text).split())


def _derivatives(tokens: Tokens, functions: set[str]) -> Tokens:
    r"""\partial_x f, f_x, \frac{d}{dx} f and df/dx as one fraction."""
    text = _SOLIDUS.sub(r"\\frac { \1 \2 } { \1 \3 }", " ".join(tokens))
    text = _OPERATOR.sub(r"\\frac { \1\2 \4 } { \3 }", text)
    text = _SHORT_PARTIAL.sub(lambda m: _partial(m[3], m[1].split() * int(m[2] or 1)), text)
    for name in functions:
        for index in re.finditer(rf"(?<![^ ]){name} _ \{{ ([a-z](?: [a-z])?) \}}", text):
            text = text.replace(index[0], _partial(name, index[1].split()))
    return tuple(text.split())


def _partial(function: str, variables: list[str]) -> str:
    degree = f"^ {{ {len(variables)} }} " if len(variables) > 1 else ""
    names = sorted({*variables})
    powers = (f" ^ {{ {variables.count(name)} }}" if variables.count(name) > 1 else "" for name in names)
    below = " ".join(f"\\partial {name}{power}" for name, power in zip(names, powers, strict=True))
    return f"\\frac {{ \\partial {degree}{function} }} {{ {below} }}"


def _without_commutators(tokens: Tokens, other: Tokens) -> Tokens:
    """[A, B] as AB - BA beside these products, or beside a commutator that is part of more."""
    text, beside = " ".join(tokens), f" {' '.join(other)} "
    match = _COMMUTATOR.search(text)
    if match is None:
        return tokens
    is_part = "[" in other and "\\cup" not in beside and not (tokens[0] == "[" == other[0])
    has_both = all(f" {one} {two} " in beside for one, two in (match.groups(), match.groups()[::-1]))
    return _replaced(_COMMUTATOR, r"( \1 \2 - \2 \1 )", tokens) if is_part or has_both else tokens
