"""Every row of real problem sets: the reference boxed, rewritten on its surface, and swapped with another row's.

Needs the environment variable DELTA_RLVR_DATA to name a folder with math/*.jsonl (aime24, aime25, hmmt25_feb, math500, gsm8k_train,
gsm8k_test).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr_graders import grade_math_batch

FOLDER = os.environ.get("DELTA_RLVR_DATA")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="DELTA_RLVR_DATA does not name a folder of problem sets")
SETS = ("aime24", "aime25", "hmmt25_feb", "math500", "gsm8k_test", "gsm8k_train")

# Different spellings of one answer among the references of MATH-500: equal although the text differs.
SAME_ANSWER = {frozenset({"5", "x=5"})}


def references(name: str) -> list[str]:
    with open(Path(str(FOLDER)) / "math" / f"{name}.jsonl", encoding="utf-8") as lines:
        answers = [str(json.loads(line)["answer"]) for line in lines]
    return [answer.split("####")[-1].strip() for answer in answers]


def spaced(answer: str) -> str:
    if re.search(r"\\text|\\mbox|\\!|\d,\d{3}", answer):
        return f"  {answer} "
    return re.sub(r"([=+,()-])", r" \1 ", answer)


def sized(answer: str) -> str:
    if r"\left" in answer:
        return answer.replace(r"\left", "").replace(r"\right", "")
    return re.sub(r"([(\[])", r"\\left\1", re.sub(r"([)\]])", r"\\right\1", answer))


def fractions(answer: str) -> str:
    return answer.replace(r"\dfrac", r"\frac") if r"\dfrac" in answer else answer.replace(r"\frac", r"\dfrac")


def with_unit(answer: str) -> str:
    return answer + r"\text{ units}" if re.fullmatch(r"-?[\d.,/]+|-?\\d?frac\{\d+\}\{\d+\}", answer) else answer


REWRITES: dict[str, Callable[[str], str]] = {
    "as it is": lambda answer: answer,
    "spacing": spaced,
    "\\dfrac": fractions,
    "\\left": sized,
    "unit": with_unit,
    "full stop": lambda answer: answer + ".",
    "dollar signs": lambda answer: f"${answer}$",
    "display style": lambda answer: rf"\displaystyle {answer}\,",
    "trailing text": lambda answer: answer + r"\text{ in total}" if re.fullmatch(r"-?[\d.,]+", answer) else answer,
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("rewrite", REWRITES)
def test_the_reference_and_its_surface_rewrites_score_one(name: str, rewrite: str) -> None:
    answers = references(name)
    completions = [f"We get\n\\[\\boxed{{{REWRITES[rewrite](answer)}}}\\]" for answer in answers]
    verdicts = grade_math_batch(completions, answers)
    wrong = [(c, a, v.reason) for c, a, v in zip(completions, answers, verdicts, strict=True) if v.score != 1.0]
    assert wrong == []


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("shift", [1, 7])
def test_the_reference_of_another_row_scores_zero(name: str, shift: int) -> None:
    answers = references(name)
    others = answers[shift:] + answers[:shift]
    rows = [(a, b) for a, b in zip(answers, others, strict=True) if a != b and frozenset({a, b}) not in SAME_ANSWER]
    assert len(rows) > 0.9 * len(answers)
    verdicts = grade_math_batch([f"\\boxed{{{other}}}" for _, other in rows], [answer for answer, _ in rows])
    assert [row for row, verdict in zip(rows, verdicts, strict=True) if verdict.score != 0.0] == []


@pytest.mark.slow
def test_no_two_different_references_of_math500_are_mistaken_for_each_other() -> None:
    """All pairs of the references that are not plain numbers."""
    answers = sorted({a for n in ("math500", "hmmt25_feb") for a in references(n) if not re.fullmatch(r"-?[\d.,]+", a)})
    rows = [(a, b) for a in answers for b in answers if a != b]
    verdicts = grade_math_batch([f"\\boxed{{{b}}}" for _, b in rows], [a for a, _ in rows])
    equal = {frozenset(row) for row, verdict in zip(rows, verdicts, strict=True) if verdict.score}
    spelled_otherwise = {frozenset({r"2 \sqrt{5}", r"2\sqrt{5}"}), frozenset({r"\frac14", r"\frac{1}{4}"})}
    assert equal == spelled_otherwise | {frozenset({r"180^\circ", r"\pi"})}
