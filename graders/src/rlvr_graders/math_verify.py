r"""math-verify's `parse` and `verify` over our grader: change one import, and nothing hangs any more.

    from rlvr_graders.math_verify import LatexExtractionConfig, parse, verify   # was: from math_verify import ...

`parse` gives the texts of the answers that it finds, where math-verify gives SymPy's objects; `verify` takes either.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .extract import answer_line, choice_letter, final_answer, last_boxed, last_number
from .math.grade import TIMEOUT, grade_math_batch

# What a formula stands in; the last one counts.
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}\s+[A-Za-z]{2,}")
LONGEST = 4000
"""Characters from the end in which a formula is looked for where nothing says which is the answer."""


@dataclass(frozen=True)
class LatexExtractionConfig:
    """As in math-verify. Without `try_extract_without_anchor`, only a box or "the answer is" counts; the rest changes nothing here."""

    try_extract_without_anchor: bool = True
    boxed_match_priority: int = 50
    normalization_config: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class ExprExtractionConfig:
    """As in math-verify: plain expressions count too."""

    try_extract_without_anchor: bool = True


@dataclass(frozen=True)
class StringExtractionConfig:
    """As in math-verify: one of these texts is the answer, such as a choice's letter."""

    strings: tuple[str, ...] = ("A", "B", "C", "D")
    try_extract_without_anchor: bool = True
    lowercase: bool = True


Config = LatexExtractionConfig | ExprExtractionConfig | StringExtractionConfig


def parse(
    pred: str,
    extraction_config: Sequence[Config] = (LatexExtractionConfig(), ExprExtractionConfig()),
    fallback_mode: str = "first_match",
    extraction_mode: str = "any_match",
    parsing_timeout: float | None = None,
    raise_on_error: bool = False,
) -> list[str]:
    r"""The answer in a text, as a list of one, or an empty list.

    It is looked for in the last ``\boxed{}``, behind "the answer is", in the last formula, in the whole text where it is no prose,
    and as the last number, in this order. Finding it takes time in proportion to the text, so `parsing_timeout` has nothing to
    limit; the modes of math-verify are taken and change nothing.
    """
    if not isinstance(pred, str):
        raise TypeError(f"parse takes the text of a response or a reference, not {type(pred).__name__}")
    strings = next((each for each in extraction_config if isinstance(each, StringExtractionConfig)), None)
    anchored = [last_boxed(pred), answer_line(pred)]
    if strings is not None:
        letters = (choice_letter(text) for text in (*anchored, final_answer(pred).strip()) if text)
        found = next((letter for letter in letters if letter in strings.strings), None)
        if found is not None:
            return [found.lower() if strings.lowercase else found]
    if len(extraction_config) == (strings is not None):
        return []
    if any(getattr(each, "try_extract_without_anchor", True) for each in extraction_config):
        anchored += [_last_formula(pred), _all_of_it(pred), last_number(pred)]
    answer = next((text for text in anchored if text and text.strip()), None)
    return [] if answer is None else [_plain(answer)]


def _last_formula(text: str) -> str | None:
    *_, last = [None, *_FORMULA.finditer(final_answer(text)[-LONGEST:])]
    return None if last is None else next(group for group in last.groups() if group)


def _all_of_it(text: str) -> str | None:
    text = final_answer(text).strip()
    return None if "\n" in text or _PROSE.search(text[:LONGEST]) or len(text) > LONGEST else text


def _plain(answer: str) -> str:
    answer = answer.strip().rstrip(".").strip()
    inside = _FORMULA.fullmatch(answer)
    return answer if inside is None else next(group for group in inside.groups() if group).strip()


def verify(
    gold: Any,
    target: Any,
    float_rounding: int = 6,
    numeric_precision: int = 15,
    strict: bool = True,
    allow_set_relation_comp: bool = False,
    timeout_seconds: float | None = TIMEOUT,
    raise_on_error: bool = False,
) -> bool:
    """Whether one of the target's answers is one of the gold's: what `parse` gave, texts, numbers, or SymPy's objects.

    Works from any thread, and the time limit holds. What math-verify rounds is compared exactly, so that other values than the
    defaults for rounding, precision and strictness are refused.
    """
    if (float_rounding, numeric_precision, strict) != (6, 15, True):
        raise ValueError(
            f"float_rounding={float_rounding}, numeric_precision={numeric_precision}, strict={strict}: rlvr_graders "
            "compares exact values and names of variables; leave these out"
        )
    pairs = [(_text(each), _text(other)) for each in _listed(gold) for other in _listed(target)]
    pairs = [(reference, given) for reference, given in pairs if reference and given]
    verdicts = grade_math_batch(
        [given for _, given in pairs],
        [reference for reference, _ in pairs],
        timeout=timeout_seconds or TIMEOUT,
        extract="whole",
    )
    failures = [verdict.reason for verdict in verdicts if verdict.failed]
    if raise_on_error and failures:
        raise ValueError(failures[0])
    return any(verdict.score == 1.0 for verdict in verdicts)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _text(value: Any) -> str:
    return str(value).replace("**", "^").strip()
