r"""Several chosen options, however they are listed: ACD, (A)(C)(D), "C, A and D", ①③④, (1)(3)(4)."""

from __future__ import annotations

import re

_CIRCLED = {chr(0x2460 + at): f"({at + 1})" for at in range(20)}
_IS_CIRCLED = re.compile(f"[{''.join(_CIRCLED)}]")
_LONGEST = 100
_STARTS = frozenset("ABCDEFGH(\\{$")
"""What a reference without circled numbers may begin with, where it is a selection."""
_BETWEEN = re.compile(
    r"\\(?:text[a-z]*|mathrm|mathsf)|\\q?quad|\\[,;! ]"
    r"|\b(?:and|only|are|correct|true|(?:[Oo]ption|[Ss]tatement|[Pp]roposition|[Cc]hoice|[Cc]onclusion)s?)\b"
    r"|[{},;\u3001\uff0c\uff1b.\s$&]"
)
_LETTERS = re.compile(r"[A-H]{2,8}|(?:\([A-H]\)){2,8}|\([A-H]{2,8}\)")
_MARKED = re.compile(r"(?:\(\d{1,2}\)){2,20}")
_NUMBERS = re.compile(r"\(?\d{1,2}(?:(?:,|\\text\{,? ?and ?\}|and|\s)+\d{1,2})+\)?")


def _selection(text: str, *, numbered: bool = False) -> tuple[str, ...]:
    """The options as they are listed, where there are several; with `numbered`, "1, 4" are some, too."""
    if len(text) > _LONGEST:
        return ()
    text = text if text.isascii() else _IS_CIRCLED.sub(lambda m: _CIRCLED[m[0]], text)
    plain = _BETWEEN.sub("", text)
    known = _LETTERS.fullmatch(plain) or _MARKED.fullmatch(plain) or (numbered and _NUMBERS.fullmatch(text.strip()))
    names = tuple(re.findall(r"[A-H]|\d+", text if known and plain.isdigit() else plain)) if known else ()
    return names if len({*names}) == len(names) else ()


def same_selection(reference: str, prediction: str) -> bool | None:
    """Whether both choose the same; None where the reference is no selection, or may be something else as well.

    What is not sorted may be an order, and so may ①②③ or ABCD, which has all from the first on: there the order counts.
    """
    is_circled = not reference.isascii() and _IS_CIRCLED.search(reference) is not None
    if not is_circled and (reference[:1] not in _STARTS or reference[2:3] == ","):  # (A, B) is a point
        return None
    asked = _selection(reference)
    if not asked:
        return None
    given = _selection(prediction, numbered=is_circled)
    ranked = sorted(asked, key=_rank)
    is_run = len(asked) > 2 and _rank(ranked[-1]) == len(asked)
    if asked == given or (ranked == [*asked] and not is_run and ranked == sorted(given, key=_rank)):
        return True
    return False if is_circled else None


def _rank(name: str) -> int:
    return int(name) if name.isdigit() else "ABCDEFGH".index(name) + 1
