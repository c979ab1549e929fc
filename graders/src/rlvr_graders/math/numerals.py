"""Numbers in words: twelve, two hundred and fifty, three and a half, two thirds, minus five."""

from __future__ import annotations

import re
from fractions import Fraction

from .tokens import Tokens, is_word, listed, word_of

_UP_TO_NINETEEN = (
    "zero one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
_SMALL = {name: value for value, name in enumerate(re.findall(r"\w+", _UP_TO_NINETEEN))}
_TENS = {
    f"{name}ty": 10 * value
    for value, name in enumerate(("twen", "thir", "for", "fif", "six", "seven", "eigh", "nine"), 2)
}
SCALES: dict[str, int] = {
    "dozen": 12,
    "score": 20,
    "gross": 144,
    "tens": 10,
    "hundred": 10**2,
    "thousand": 10**3,
    "k": 10**3,
    "lakh": 10**5,
}
SCALES |= {"million": 10**6, "crore": 10**7, "billion": 10**9, "trillion": 10**12, "quadrillion": 10**15}
SCALES |= {f"{name}s": factor for name, factor in SCALES.items() if name[-1] != "s"}
_ORDINALS = {"third": 3, "fourth": 4, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12}
_ORDINALS |= {f"{name}th": value for name, value in _SMALL.items() if value > 3 and value not in _ORDINALS.values()}
_ORDINALS |= {f"{name[:-1]}ieth": value for name, value in _TENS.items()}
PLACES = {"first": 1, "second": 2, **_ORDINALS}
PLACES |= {f"{ten}-{name}": tens + value for ten, tens in _TENS.items() for name, value in PLACES.items() if value < 10}
_ORDINALS |= {"half": 2, "halve": 2, "quarter": 4, "hundredth": 100, "thousandth": 1000, "millionth": 10**6}
PARTS = {name + ending: value for name, value in _ORDINALS.items() for ending in ("", "s")}
"""The denominators: third and thirds."""
_AFTER_A = frozenset({*PARTS, *SCALES})
SIGNS = {"minus": -1, "negative": -1, "plus": 1, "positive": 1}
NUMBERS = frozenset({*_SMALL, *_TENS})
ROMAN = {
    name: str(10 * tens + ones)
    for tens in range(4)
    for ones, digits in enumerate(("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"))
    if len(name := "X" * tens + digits) > 1
}
SKIPPED = listed("a an and")
_LONGEST_PART = 12
"""Words in which a fraction behind "and" ends. Each "and" in them is read twice, so their number bounds the time."""


def in_digits(tokens: Tokens) -> Tokens:
    """The answer with the number in words that it begins with in digits; as it is where it begins otherwise."""
    if not any(map(is_word, tokens)):
        return tokens
    if len(tokens) == 1 and tokens[0][6:-1] in ROMAN:
        return (ROMAN[tokens[0][6:-1]],)
    if len(tokens) == 1 and word_of(tokens[0]) in PLACES:
        return (str(PLACES[word_of(tokens[0])]), "\\text{th}")
    between = tuple(map(word_of, tokens[1:-1]))
    if between in (("in",), ("out", "of")):  # 1 in 6, three out of four
        part, among = (str(_SMALL.get(word_of(token), token)) for token in (tokens[0], tokens[-1]))
        if part.isdigit() and among.isdigit():
            return ("\\frac", "{", part, "}", "{", among, "}")
    words: list[str] = []
    ends: list[int] = []
    tokens = tuple(
        "\\text{a}" if token == "a" and word_of(following) in _AFTER_A else token
        for token, following in zip(tokens, (*tokens[1:], ""), strict=True)
    )
    if len(tokens) > 2 and tokens[0].isdigit() and word_of(tokens[1]) == "and":  # 3 and a half
        rest = in_digits(tokens[2:])
        if rest[:1] == ("\\frac",) and rest[2] == "1" and word_of(tokens[2]) in (*_SMALL, "a", "half"):
            return (tokens[0], *rest)
    for index, token in enumerate(tokens):
        if not is_word(token) and token != "-":
            break
        if token == "-" and not words:
            words, ends = ["minus"], [index + 1]
        parts = word_of(token).split("-") if is_word(token) else []
        words += parts
        ends += [index + 1] * len(parts)
    sign = SIGNS.get(words[0], 0) if words else 0
    value, used = _number(words[1:] if sign else words)
    if sign and not words[1:] and len(tokens) > 1:  # negative 5
        return tokens[1:] if sign > 0 else ("-", *tokens[1:])
    used += bool(sign)
    if value is None or (used < len(words) and ends[used - 1] == ends[used]):
        return tokens
    value *= sign or 1
    top = ("-",) * (value < 0) + (str(abs(value.numerator)),)
    digits = top if value.denominator == 1 else ("\\frac", "{", *top, "}", "{", str(value.denominator), "}")
    return (*digits, *tokens[ends[used - 1] :])


def _number(words: list[str]) -> tuple[Fraction | None, int]:
    """The number at the beginning, and how many words it takes."""
    total, group, used, said = Fraction(0), Fraction(0), 0, False
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        if word in _SMALL or word in _TENS:
            if said and group % 100 and (word in _TENS or group % 10 or group % 100 < 20):
                break
            group, said, used = group + _SMALL.get(word, _TENS.get(word, 0)), True, index + 1
        elif word in SCALES and (said or words[:index] in (["a"], ["half", "a"])):
            group = group or Fraction(1)
            if word == "hundred":
                group *= 100
            else:
                total, group = total + group * SCALES[word], Fraction(0)
            said, used = True, index + 1
        elif word in PARTS and (said or words[:index] in ([], ["a"])):
            if index == 0 and word not in ("half", "halves"):
                break
            if not said:
                scale = next(((at, w) for at, w in enumerate(words[1:3], 2) if w in SCALES), None)
                if index == 0 and scale and words[1 : scale[0] - 1] in ([], ["a"]):
                    return Fraction(SCALES[scale[1]], PARTS[word]), scale[0]  # half a dozen
                return Fraction(1, PARTS[word]), index + 1
            return (total + group) / PARTS[word], index + 1
        elif word == "and" and said:  # three and a half, two hundred and fifty
            part, more = _number(words[index + 1 : index + 1 + _LONGEST_PART])
            if part is not None and 0 < part < 1:
                return total + group + part, index + 1 + more
        elif word == "point" and said and following in _SMALL:
            digits = [str(_SMALL[w]) for w in words[index + 1 :] if _SMALL.get(w, 10) < 10]
            return total + group + Fraction(f"0.{''.join(digits)}"), index + 1 + len(digits)
        elif word not in SKIPPED:
            break
    return (total + group, used) if said else (None, 0)
