"""The recipe that picks easy word problems."""

from __future__ import annotations

import runpy
from pathlib import Path

from rows import write_rows

RECIPE = Path(__file__).parents[2] / "evidence" / "analysis" / "word_problems.py"


def test_one_step_and_small_numbers_are_kept(tmp_path: Path) -> None:
    def asdiv(question: str, formula: str, answer: str) -> dict[str, str]:
        return {"body": "B.", "question": question, "formula": formula, "answer": answer}

    write_rows(
        tmp_path / "asdiv.jsonl",
        [
            asdiv("Seven and two?", "7+2=9", "9 (apples)"),
            asdiv("Ninety less eighty?", "90-80=10", "10 (cakes)"),  # large, though spelt out
            asdiv("Two steps?", "7+2-1=8", "8 (apples)"),
            asdiv("What is left over?", "17/5=3 r2", "2 (pieces)"),  # the answer is not the result
            asdiv("Who?", "7-2=5", "Westford"),
        ],
    )
    write_rows(
        tmp_path / "svamp.jsonl",
        [
            {"Body": "He has 30 of 3", "Question": "Each?", "Equation": "( 30.0 / 3.0 )", "Answer": 10.0},
            {"Body": "He has 31", "Question": "Less 1?", "Equation": "( 31.0 - 1.0 )", "Answer": 30.0},
        ],
    )
    write_rows(
        tmp_path / "mawps.jsonl",
        [
            {"input": "5 and 4 ?", "target": 9.0},
            {"input": "5  and 4 ?", "target": 9.0},
            {"input": "Half of 5 ?", "target": 2.5},
        ],
    )
    kept = list(runpy.run_path(str(RECIPE))["small_problems"](tmp_path))
    assert kept == [
        {"question": "B. Seven and two?", "answer": "9", "working": "7 + 2 = 9"},
        {"question": "He has 30 of 3. Each?", "answer": "10", "working": "30 / 3 = 10"},
        {"question": "5 and 4 ?", "answer": "9"},
    ]
