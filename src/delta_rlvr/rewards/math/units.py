"""Units and other words beside a value: which of them are one, and which contradict each other."""

from __future__ import annotations

import re

from .spelling import SHORT_UNITS

_UNIT_NAMES = {
    name: canonical
    for canonical, names in {
        "degree": "deg degs degree degrees",
        "cent": "cent cents ¢",
        "dollar": "dollar dollars usd $",
        "centimeter": "cm centimeter centimeters centimetre centimetres",
        "millimeter": "mm millimeter millimeters",
        "meter": "m meter meters metre metres",
        "kilometer": "km kilometer kilometers kilometre kilometres",
        "inch": "in inch inches",
        "foot": "ft foot feet",
        "yard": "yd yard yards",
        "mile": "mi mile miles",
        "second": "s sec secs second seconds",
        "minute": "min mins minute minutes",
        "hour": "h hr hrs hour hours",
        "day": "day days",
        "kilogram": "kg kilogram kilograms",
        "gram": "g gram grams",
        "pound": "lb lbs pound pounds",
        "liter": "l liter liters litre litres",
        "milliliter": "ml milliliter milliliters",
        "unit": "unit units",
    }.items()
    for name in names.split()
}
# Words that turn a value's meaning: two answers that differ in one of these are two answers.
_DIRECTIONS = frozenset(
    {
        *(
            "north",
            "south",
            "east",
            "west",
            "left",
            "right",
            "up",
            "down",
            "above",
            "below",
            "before",
            "after",
            "am",
            "pm",
        ),
        *("increase", "decrease", "more", "less", "fewer", "gain", "loss", "profit", "positive", "negative"),
        *(
            "january",
            "february",
            "march",
            "april",
            "may",
            "june",
            "july",
            "august",
            "september",
            "october",
            "november",
        ),
        *("december", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
    }
)
_MEASURES = (frozenset(_UNIT_NAMES.values()) | SHORT_UNITS) - {"unit"}
_TRIGONOMETRY = frozenset({"\\sin", "\\cos", "\\tan", "\\cot", "\\sec", "\\csc"})
# Words that make an annotation more than one: with them a phrase is never dropped from beside a number.
_HEDGES = frozenset(
    {
        *(
            "not",
            "or",
            "and",
            "maybe",
            "either",
            "neither",
            "except",
            "but",
            "no",
            "non",
            "without",
            "possibly",
        ),
        *("perhaps", "if", "than", "to", "from", "through", "between"),
    }
)


def units_conflict(one: str, other: str) -> bool:
    """Whether both name a measure and not the same (5 cm, 5 m), or words that turn the meaning differ (20 % more, 20 % less).

    What is counted (18 eggs) or said (in total) never conflicts, and neither does a unit that one side leaves out.
    """
    if not one or not other or one == other:
        return False
    words, others = re.findall(r"[a-z%]+", one), re.findall(r"[a-z%]+", other)
    if _DIRECTIONS & (set(words) ^ set(others)):
        return True
    return _MEASURES.issuperset(words) and _MEASURES.issuperset(others)


def take_unit(tokens: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    r"""Takes the unit off: ``5\text{ cm}^2``, ``50\%``, ``90^\circ``, ``\$18``, ``18\text{ eggs}``."""
    if tokens[0] == "\\$" and len(tokens) > 1:
        return tokens[1:], "dollar"
    if tokens[:2] == ("-", "\\$") and len(tokens) > 2:
        return ("-", *tokens[2:]), "dollar"
    if len(tokens) > 1 and tokens[-1] in ("%", "\\$", "\\degree") and not _TRIGONOMETRY.intersection(tokens):
        return tokens[:-1], {"%": "%", "\\$": "dollar", "\\degree": "degree"}[tokens[-1]]
    power = ""
    body = tokens
    if len(body) > 4 and body[-4:-2] == ("^", "{") and body[-1] == "}" and body[-5].startswith("\\text{"):
        power, body = f"^{body[-2]}", body[:-4]
    words: list[str] = []
    while len(body) > 1 and (body[-1].startswith("\\text{") or (words and body[-1] in ("/", "("))):
        if body[-1].startswith("\\text{"):
            words[:0] = _words(body[-1])
        else:
            words[:0] = ["per"] if body[-1] == "/" else []
        body = body[:-1]
    if words and words[0] == "per":
        return tokens, ""  # "x / cm": the quotient is part of the value
    if not words:
        return tokens, ""
    if set(words) & _HEDGES or any(any(c.isdigit() for c in word) for word in words) or len(words) > 8:
        return tokens, ""
    if words in (["percent"], ["per", "cent"], ["pct"], ["percentage"]):
        return body, "%"
    return body, _unit_name(words) + power


def _unit_name(words: list[str]) -> str:
    named = [_UNIT_NAMES.get(word, word) for word in words if word not in ("per", "of")]
    if named[0] in ("square", "sq", "cubic", "cu") and len(named) > 1:
        return f"{named[1]}^{2 if named[0] in ('square', 'sq') else 3}"
    return " ".join(named)


def _words(token: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9$¢]+", token[6:-1].lower())
