"""Times of the day and dates: 3:30 PM is 15:30, and March 5 is the 5th of March."""

from __future__ import annotations

import re

from .numerals import in_digits
from .tokens import Tokens, is_word, word_of

MONTHS = "january february march april may june july august september october november december".split()  # noqa: SIM905
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" if month != "may" else "may" for month in MONTHS)
_CLOCK = re.compile(
    r"(?:at )?(\d{1,2})(?: : (\d\d))?(?: : (\d\d))? ?"
    r"(am|pm|o'clock|o ' clock|noon|midnight|in the (?:morning|afternoon|evening)|at night)?( sharp)?"
)
_PARTS = {"half": "30", "quarter": "15"}
_PAST = {"past": 1, "after": 1, "to": -1, "before": -1, "till": -1}
_DATES = [
    re.compile(rf"(?P<month>{_MONTH}) (?:the )?(?P<day>\d{{1,2}})(?: (?:st|nd|rd|th))?(?: ,?)? ?(?P<year>\d{{4}})?"),
    re.compile(
        rf"(?:the )?(?P<day>\d{{1,2}})(?: (?:st|nd|rd|th))?(?: of)? (?P<month>{_MONTH})(?: ,?)? ?(?P<year>\d{{4}})?"
    ),
    re.compile(r"(?P<year>\d{4}) - (?P<month>\d\d) - (?P<day>\d\d)"),
]


def same_moment(asked: Tokens, given: Tokens) -> bool | None:
    """Whether both are the same time or date; None where they are not both one, or may be anything else (3:30 is a ratio too)."""
    if not any(map(is_word, asked + given)) and not asked.count("-") == given.count("-") == 2:
        return None
    texts = [_text(_in_numbers(tokens)) for tokens in (asked, given)]
    dates = [_date(text) for text in texts]
    if dates[0] and dates[1]:
        return dates[0][:2] == dates[1][:2] and (dates[0][2] == dates[1][2] or "" in (dates[0][2], dates[1][2]))
    first, second = (_clock(text) for text in texts)
    known = first or second
    if known and known[2] and None in (first, second) and all(":" in tokens for tokens in (asked, given)):
        return False  # 3:5 is not 9:15 AM
    if first is None or second is None or not (first[2] or second[2]):
        return None
    times = first[0], second[0]
    if (first[1] and second[1]) or any(time[0] > 12 and not half for time, half, _ in (first, second)):
        return times[0] == times[1]
    return times[0] == times[1] or (times[0][0] % 12 == times[1][0] % 12 and times[0][1:] == times[1][1:])


def _text(tokens: Tokens) -> str:
    return " ".join(word_of(token) or token for token in tokens if token != " ") if len(tokens) < 12 else ""


def _in_numbers(tokens: Tokens) -> Tokens:
    """Quarter to eight as 7 : 45 o'clock."""
    at = next((at for at, token in enumerate(tokens[:5]) if word_of(token) in _PAST), 0)
    if not 0 < at < len(tokens) - 1:
        return tokens
    before = tuple(token for token in tokens[:at] if word_of(token) not in ("at", "a", "minutes"))
    minutes = tuple(_PARTS.get(word_of(token), token) for token in before[:1]) if len(before) == 1 else before
    minutes = in_digits(minutes)
    hour, *rest = in_digits(tokens[at + 1 :])
    if (
        len(minutes) != 1
        or not (minutes[0].isdigit() and hour.isdigit())
        or not (0 < int(minutes[0]) < 60 and 0 < int(hour) < 25)
    ):
        return tokens
    shown = int(hour) * 60 + int(minutes[0]) * _PAST[word_of(tokens[at])]
    return (str(shown // 60 or 12), ":", f"{shown % 60:02}", *rest, *(() if rest else ("\\text{o'clock}",)))


def _clock(text: str) -> tuple[tuple[int, int, int], bool, bool] | None:
    """Hour, minute and second, whether the half of the day is said, and whether it can be nothing but a time."""
    if text in ("noon", "midnight", "12 noon", "12 midnight"):
        return (12 if "noon" in text else 0, 0, 0), True, True
    match = _CLOCK.fullmatch(text)
    if match is None or not (match[2] or match[4]):
        return None
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    half = (
        (match[4] or "")
        .replace("in the morning", "am")
        .replace("in the", "pm")
        .replace("at night", "pm")[:1]
        .replace("o", "")
    )
    if hour > 24 or minute > 59 or second > 59 or (half and not 1 <= hour <= 12):
        return None
    hour = hour % 12 + (12 if half in ("p", "n") else 0) if half else hour
    return (hour, minute, second), half != "", bool(match[4])


def _date(text: str) -> tuple[int, int, str] | None:
    for pattern in _DATES:
        match = pattern.fullmatch(text)
        if match:
            name = match["month"]
            month = int(name) if name.isdigit() else [m[:3] for m in MONTHS].index(name[:3]) + 1
            return month, int(match["day"]), match["year"] or ""
    return None
