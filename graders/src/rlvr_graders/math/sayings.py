r"""Phrases that say what a formula also says: "leaves remainder 3 when divided by 7" as \equiv 3 \pmod 7.

Each line below is a phrase and what it is written as: A and B stand for anything, U and V for what begins with no word, P for a
point, M and N for one token, W for one word, [of] for a word that may be left out.
"""

from __future__ import annotations

import re

from .numerals import PLACES, ROMAN
from .tokens import Tokens, is_word, word_of

_TABLE = r"""
N is [strictly] between A and B exclusive -> A < N < B
N is|lies strictly between A and B -> A < N < B
N is|lies between A and B inclusive -> A \le N \le B
[all] [real] [numbers] [strictly] between A and B exclusive -> A < \kappa < B
[all] [real] [numbers] strictly between A and B -> A < \kappa < B
[all] [real] [numbers] between A and B inclusive -> A \le \kappa \le B
[all] [real] [numbers] from A to B inclusive -> A \le \kappa \le B
N or more|greater|higher -> \ge N
N or less|fewer|lower -> \le N
N leaves [a|the] remainder [of] A when|upon divided|division by B -> N \equiv A \mod { B }
leaves|leaving [a|the] remainder [of] A when|upon divided|division by B -> A \mod { B }
N is [a] multiple of A -> N \equiv 0 \mod { A }
N is divisible by A -> N \equiv 0 \mod { A }
A \mid N -> N \equiv 0 \mod { A }
[all|any|every|the] [integers|positive|natural] [integers|numbers] N [is|are] not divisible by A -> N \nequiv 0 \mod { A }
N is|are not [a] multiple of A -> N \nequiv 0 \mod { A }
A \nmid N -> N \nequiv 0 \mod { A }
A divides N -> N \equiv 0 \mod { A }
[a|any|every|the|each] multiple of A -> 'all 'multiples 'of A
[a|any|every|the|each] power of A -> 'all 'powers 'of A
powers of A -> 'all 'powers 'of A
N is [a] power of A -> 'all 'powers 'of A
[all|any|every|each] [the] positive|natural integer|integers|number|numbers N -> 'all 'positive 'integers
[a|the] [local|relative|global|absolute] maximum|max|minimum|min [value] [of] A at B -> A 'at B
P is [a|the] local|relative minimum|min [point] -> 'local 'minimum 'at P
P is [a|the] local|relative maximum|max [point] -> 'local 'maximum 'at P
[we] fail|failed to reject A -> 'not 'reject A
[we] do|does|did|should not reject A -> 'not 'reject A
[we] cannot reject A -> 'not 'reject A
[we] reject [the] null hypothesis -> 'reject H _ { 0 }
not reject [the] null hypothesis -> 'not 'reject H _ { 0 }
[the|a] circle with|of center|centre P and radius A -> 'center P , 'radius A
[the|a] circle with|of radius A and center|centre P -> 'center P , 'radius A
[the|a] circle of|with radius A centered|centred at P -> 'center P , 'radius A
[the|a] circle centered|centred at P with|of radius A -> 'center P , 'radius A
[the] square root of A -> \sqrt { A }
[the] cube root of A -> \sqrt [ 3 ] { A }
M r|rem|remainder N -> 'quotient M , 'remainder N
V by U -> ( V , U )
up [by] V -> V 'up
down [by] V -> V 'down
left [by] V -> V 'left
right [by] V -> V 'right
A to the north -> A 'north
A to the south -> A 'south
A to the east -> A 'east
A to the west -> A 'west
A to the left -> A 'left
A to the right -> A 'right
A per mille -> A \permille
A below zero -> - A
a|an|one W and a half -> \frac { 3 } { 2 } W
A if and only if B -> A 'iff B
"""
_LONGEST = 40
"""Tokens of the longest answer that is looked at: so no pattern takes long."""
_STANDS_FOR = {
    "P": r"\(.+\)",
    "A": "[^,]+?",
    "B": "[^,]+",
    "U": "[^', ][^,]*",
    "V": "[^', ][^,]*?",
    "M": "[^', ]+",
    "N": "[^', ]+",
    "W": "'[^ ]+",
}


def _pattern(said: str) -> re.Pattern[str]:
    parts = []
    for part in said.split():
        if part in _STANDS_FOR:
            parts.append(f"(?P<{part}>{_STANDS_FOR[part]}) ")
        else:
            word = f"{re.escape(part)} " if part[0] == "\\" else f"'(?:{part.strip('[]')}) "
            parts.append(f"(?:{word})?" if part[0] == "[" else word)
    return re.compile("".join(parts), re.IGNORECASE)


def _keys(said: str) -> frozenset[str]:
    """The first word that must be there, or what may stand for it."""
    words = [part for part in said.split() if part not in _STANDS_FOR and part[0] != "["]
    return frozenset(max(words, key=len).split("|"))


_SAYINGS = [
    (_keys(said), _pattern(said), written.split())
    for said, _, written in (line.partition(" -> ") for line in _TABLE.strip().splitlines())
]
_ALL_KEYS = frozenset().union(*(keys for keys, _, _ in _SAYINGS))


def as_formula(tokens: Tokens) -> Tokens:
    """The answer with such a phrase written out; as it is where it is none."""
    if len(tokens) > _LONGEST or (len(tokens) < 3 and not is_word(tokens[0])):
        return tokens
    if len(tokens[0]) == 8 and tokens[0][6].islower() and word_of(tokens[1] if tokens[1:] else "") in ("is", "lies"):
        tokens = (tokens[0][6], *tokens[1:])  # x is between
    tokens = _numbered(tokens)
    words = {word_of(token) or token for token in tokens}
    if _ALL_KEYS.isdisjoint(words):
        return tokens
    if words & {"inclusive", "exclusive"}:
        tokens = (*tokens[:-3], tokens[-2]) if tokens[-1] == ")" and tokens[-3] == "(" else tokens
        tokens = (*tokens[:-2], tokens[-1]) if tokens[-2] == "," else tokens
    text = "".join(f"'{token[6:-1]} " if is_word(token) else f"{token} " for token in tokens if token != " ")
    for keys, pattern, written in _SAYINGS:
        match = None if keys.isdisjoint(words) else pattern.fullmatch(text)
        if match is not None:
            parts = [part for name in written for part in (match[name].split() if name in _STANDS_FOR else [name])]
            return as_formula(tuple(f"\\text{{{part[1:]}}}" if part[0] == "'" and part[1:] else part for part in parts))
    return tokens


def _numbered(tokens: Tokens) -> Tokens:
    """The fourth quadrant, 4th quadrant and quadrant IV as quadrant 4."""
    words = [word_of(token) for token in tokens]
    if words[0] == "the" and tokens[1:]:
        tokens, words = tokens[1:], words[1:]
    if len(tokens) == 2 and words[0] in PLACES and words[1]:
        return (tokens[1], str(PLACES[words[0]]))
    if len(tokens) == 3 and tokens[0].isdigit() and words[1] in ("st", "nd", "rd", "th") and words[2]:
        return (tokens[2], tokens[0])
    if len(tokens) == 2 and words[0] and tokens[1][6:-1] in ROMAN:
        return (tokens[0], ROMAN[tokens[1][6:-1]])
    return tokens
