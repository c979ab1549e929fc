r"""The characters of an answer before they become tokens: Unicode, invisible ones, and the separators inside long numbers."""

from __future__ import annotations

import re
import unicodedata

from .spelling import UNICODE
from .tokens import UnreadableAnswer

MAX_LENGTH = 4000
"""Longest answer that is looked at, in characters. The longest of MATH-500 has 64."""
MAX_NESTING = 30
"""Deepest nesting of brackets, braces and arguments that is looked at."""
MAX_DIGITS = 1000
"""Longest run of digits that is looked at: beyond it, turning text into a number is itself an attack."""

_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)", re.ASCII)
_TEX_GROUPS = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\\[,;:! ]|~|\{,\}|,\s*\\!)\s*\d{3})+(?!\d)", re.ASCII)
_SPACED_GROUPS = re.compile(r"\s*-?\d{1,3}(?: \d{3})+(?:\.\d+)?\s*", re.ASCII)
_POWERS_IN_A_ROW = re.compile(r"(?:\^\{[0-9]\}){2,}")
_INVISIBLE = ("Cf", "Cs", "Co", "Cn")


def check_size(raw: str) -> None:
    """Refuses what is too long or nests too deeply to be read."""
    if len(raw) > MAX_LENGTH:
        raise UnreadableAnswer(f"the answer has {len(raw)} characters, more than {MAX_LENGTH}")
    if len(raw) > MAX_DIGITS and re.search(rf"\d{{{MAX_DIGITS + 1}}}", raw):
        raise UnreadableAnswer(f"a number has more than {MAX_DIGITS} digits")
    depth = 0
    for bracket in re.findall(r"[(\[{)\]}]", raw):
        depth = depth + 1 if bracket in "([{" else max(depth - 1, 0)
        if depth > MAX_NESTING:
            raise UnreadableAnswer(f"brackets nest deeper than {MAX_NESTING}")


def plain_characters(raw: str) -> str:
    """The answer in ASCII as far as it goes, with plain spaces for whatever is one."""
    if not raw.isascii():
        raw = raw.translate(UNICODE)
        raw = _POWERS_IN_A_ROW.sub(lambda m: f"^{{{re.sub('[^0-9]', '', m[0])}}}", raw).replace("^-^{", "^{-")
        raw = unicodedata.normalize("NFKC", raw)
        raw = "".join(map(_plain, raw))
    return re.sub(r"[\x00-\x1f\x7f-\xa0]", " ", raw)


def _plain(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.decimal(character))  # the digits of any script
    return "" if category in _INVISIBLE else " " if character.isdigit() else character


def digits_joined(text: str, *, thousands: bool) -> str:
    r"""Long numbers in one piece: 10,\!080, 1{,}234, 1\,234, 1 234; with `thousands` also 1,234."""
    text = _TEX_GROUPS.sub(lambda m: re.sub(r"[^0-9]", "", m[0]), text)
    text = re.sub(r"(?<=[0-9])\{,\}(?=[0-9])", ".", text)  # what is left of {,} is a decimal comma: 3{,}14
    if _SPACED_GROUPS.fullmatch(text):
        return text.replace(" ", "")
    if not thousands or "," not in text:
        return text
    return _GROUPS.sub(lambda m: m[0] if _in_list(text, m.start()) else m[0].replace(",", ""), text)


def has_thousands(raw: str) -> bool:
    """Whether a comma in the answer can be read both as a thousands separator and as the comma of a list."""
    return "," in raw and _GROUPS.search(raw) is not None


def _in_list(text: str, at: int) -> bool:
    """Whether the commas at that place separate the items of a bracket: (100,200), but not (1,000, 2,000)."""
    depth = 0
    for start in range(at - 1, -1, -1):
        if text[start] in ")]":
            depth += 1
        elif text[start] in "([" or text[start - 1 : start + 1] == "\\{":
            depth -= 1
            if depth < 0:
                inside = re.split(r"[)\]}]", text[start + 1 :], maxsplit=1)[0]
                return re.search(r",\s", inside) is None
    return False
