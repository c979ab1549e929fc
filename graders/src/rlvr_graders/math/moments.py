"""Times of the day and dates: 3:30 PM is 15:30, and March 5 is the 5th of March."""

from __future__ import annotations

import re

from .tokens import Tokens, is_word, word_of

_MONTHS = "january february march april may june july august september october november december".split()  # noqa: SIM905
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" if month != "may" else "may" for month in _MONTHS)
_CLOCK = re.compile(
    r"(?:at )?(\d{1,2})(?: : (\d\d))?(?: : (\d\d))? ?"
    r"(am|pm|o'clock|o ' clock|noon|midnight|in the (?:morning|afternoon|evening))?( sharp)?"
)
_DATES = [
    re.compile(rf"(?P<month>{_MONTH}) (?:the )?(?P<day>\d{{1,2}})(?: (?:st|nd|rd|th))?(?: ,?)? ?(?P<year>\d{{4}})?"),
    re.compile(
        rf"(?:the )?(?P<day>\d{{1,2}})(?: (?:st|nd|rd|th))?(?: of)? (?P<month>{_MONTH})(?: ,?)? ?(?P<year>\d{{4}})?"
    ),
    re.compile(r"(?P<year>\d{4}) - (?P<month>\d\d) - (?P<day>\d\d)"),
]


def same_moment(asked: Tokens, given: Tokens) -> bool | None:
    """Whether both are the same time or date; None where they are not both one, or may be anything else (3:30 is a ratio too)."""
    if not any(map(is_word, asked + given)) and "-" not in asked + given:
        return None
    texts = [_text(tokens) for tokens in (asked, given)]
    dates = [_date(text) for text in texts]
    if dates[0] and dates[1]:
        return dates[0][:2] == dates[1][:2] and (dates[0][2] == dates[1][2] or "" in (dates[0][2], dates[1][2]))
    first, second = (_clock(text) for text in texts)
    known = first or second
    if known and known[1] and None in (first, second) and all(":" in tokens for tokens in (asked, given)):
        return False  # 3:5 is not 9:15 AM
    if first is None or second is None or not (first[1] or second[1]):
        return None
    (one, half), (other, other_half) = first, second
    if half and other_half:
        return one == other
    unmarked = other if half else one
    return one == other or (unmarked[0] <= 12 and one[0] % 12 == other[0] % 12 and one[1:] == other[1:])


def _text(tokens: Tokens) -> str:
    return " ".join(word_of(token) or token for token in tokens if token != " ") if len(tokens) < 12 else ""


def _clock(text: str) -> tuple[tuple[int, int, int], bool] | None:
    """Hour, minute and second, and whether the half of the day is said."""
    if text in ("noon", "midnight", "12 noon", "12 midnight"):
        return (12 if "noon" in text else 0, 0, 0), True
    match = _CLOCK.fullmatch(text)
    if match is None or not (match[2] or match[4]):
        return None
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    half = (match[4] or "").replace("in the morning", "am").replace("in the", "pm")[:1].replace("o", "")
    if hour > 24 or minute > 59 or second > 59 or (half and not 1 <= hour <= 12):
        return None
    hour = hour % 12 + (12 if half in ("p", "n") else 0) if half else hour
    return (hour, minute, second), bool(match[4])


def _date(text: str) -> tuple[int, int, str] | None:
    for pattern in _DATES:
        match = pattern.fullmatch(text)
        if match:
            name = match["month"]
            month = int(name) if name.isdigit() else [m[:3] for m in _MONTHS].index(name[:3]) + 1
            return month, int(match["day"]), match["year"] or ""
    return None
