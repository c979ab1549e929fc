"""The math grader's judgement: tables of pairs, extraction, decisions, bad input."""

from __future__ import annotations

import random
import re
from functools import lru_cache
from pathlib import Path

import pytest

from rlvr_graders import Verdict, grade_math, grade_math_batch

HERE = Path(__file__).parent


def pairs(name: str) -> list[tuple[str, str]]:
    lines = (HERE / f"{name}_pairs.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split(" ||| ") for line in lines if line and not line.startswith("# ")]
    assert all(len(row) == 2 for row in rows), "every line is: reference ||| prediction"
    return [(reference, prediction) for reference, prediction in rows]


@lru_cache(maxsize=4)
def graded_table(name: str) -> list[tuple[tuple[str, str], Verdict]]:
    rows = pairs(name)
    return list(zip(rows, graded(rows), strict=True))


def graded(rows: list[tuple[str, str]]) -> list[Verdict]:
    return grade_math_batch([f"Hence it is $\\boxed{{{given}}}$." for _, given in rows], [asked for asked, _ in rows])


def test_equivalent_pairs_all_score_one() -> None:
    table = graded_table("equivalent")
    assert len({row for row, _ in table}) >= 1000
    assert [(row, verdict.reason) for row, verdict in table if verdict.score != 1.0] == []


def test_unequal_pairs_all_score_zero() -> None:
    table = graded_table("unequal")
    assert len({row for row, _ in table}) >= 600
    assert [row for row, verdict in table if verdict.score != 0.0] == []


def test_unequal_pairs_fail_for_the_right_reason() -> None:
    """A table of zeros proves nothing if the grader could not read the answers: nearly all must be read and found wrong."""
    table = graded_table("unequal")
    unread = [(row, verdict.reason) for row, verdict in table if "unparsable" in verdict.reason]
    assert len(unread) <= 0.04 * len(table), unread
    assert not any(verdict.reason.startswith(("could not", "timed out", "out of")) for _, verdict in table)


def test_the_tables_do_not_contradict_each_other() -> None:
    assert set(pairs("equivalent")) & set(pairs("unequal")) == set()


def test_every_reference_of_the_tables_answers_itself() -> None:
    references = sorted({reference for name in ("equivalent", "unequal") for reference, _ in pairs(name)})
    assert [
        row for row, v in zip(references, graded([(r, r) for r in references]), strict=True) if v.score != 1.0
    ] == []


def test_the_reference_of_a_gsm8k_row_stands_behind_its_mark() -> None:
    row = "She has 20 - 6 = <<20-6=14>>14 left.\nThat is all of them.\n#### 14"
    assert [grade_math(f"\\boxed{{{given}}}", row).score for given in ("14", "20", "6")] == [1.0, 0.0, 0.0]


def test_a_verdict_says_why() -> None:
    assert grade_math(r"\boxed{5}", "5") == Verdict(1.0, "correct", "5")
    assert grade_math(r"\boxed{6}", "5") == Verdict(0.0, "wrong answer", "6")
    assert grade_math("five", "5") == Verdict(0.0, "no final answer", None)
    assert grade_math(r"\boxed{}", "5").reason == "no final answer"
    assert grade_math(r"\boxed{4, 5}", "5").reason == "wrong answer: several answers where one is asked"
    assert grade_math(r"\boxed{\sum_{k=1}^2 k}", "3").reason == r"not worked out: \sum is left in the answer"
    assert grade_math(r"\boxed{\sqrt{x}+)}", "5").reason.startswith("unparsable answer: ")
    unreadable = grade_math(r"\boxed{5}", r"\frac{1}{")
    assert unreadable.reason.startswith("unparsable reference answer: ")
    assert unreadable.failed, "no response can be right: the data set needs a look"


def test_a_reference_may_carry_the_mark_of_gsm8k() -> None:
    for reference in ("#### 1,080", "He has 27 * 40 = <<27*40=1080>>1080 of them.\n#### 1,080"):
        assert grade_math(r"\boxed{1080}", reference).score == 1.0
        assert grade_math(r"\boxed{27}", reference).score == 0.0
    with pytest.raises(ValueError, match=r"answers\[0\] is nan"):
        grade_math(r"\boxed{1}", float("nan"))
    with pytest.raises(ValueError, match="is empty"):
        grade_math(r"\boxed{5}", "5 ####")


def test_one_changed_digit_is_another_answer() -> None:
    """Of every third reference in the tables: a digit of it replaced. (Families may be shifted, constants renamed: left out.)"""
    generator = random.Random(0)
    references = sorted({reference for reference, _ in pairs("equivalent")})[::3]
    rows = []
    for reference in references:
        places = [place for place, sign in enumerate(reference) if sign in "123456789"]
        if places and not re.search(r"floor|mathbb|span|[Cc]_\{?\d|pmod|binom|C\(|units|\\pi [in]", reference):
            place = generator.choice(places)
            digit = generator.choice([other for other in "123456789" if other != reference[place]])
            rows.append((reference, reference[:place] + digit + reference[place + 1 :]))
    assert len(rows) > 150
    assert [row for row, verdict in zip(rows, graded(rows), strict=True) if verdict.score] == []


@pytest.mark.parametrize(
    "box", [r"\boxed{$$}", r"\boxed{\\}", "\\boxed{\x00}", "\\boxed{\u200b}", r"\boxed{\,}", r"\boxed{{}}"]
)
def test_a_box_with_nothing_in_it_is_an_answer_that_cannot_be_read(box: str) -> None:
    for reference in ("5", r"x+\sqrt{2}", r"\text{no}"):
        assert grade_math(f"so {box}", reference).reason == "unparsable answer: the answer is empty"


def test_an_error_in_the_grader_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were there still an error in it, it would cost one sample, not the run."""

    def broken(*_: object) -> str:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("rlvr_graders.math.grade.judge", broken)
    verdicts = grade_math_batch([r"\boxed{x}", "no box"], ["x", "5"])
    assert verdicts[0] == Verdict(0.0, "the grader failed: ZeroDivisionError: oh", "x", failed=True)
    assert verdicts[1] == Verdict(0.0, "no final answer")


def test_an_error_in_an_extractor_of_the_callers_is_a_verdict() -> None:
    verdicts = grade_math_batch(["", "7"], ["7", "7"], extract=lambda text: text.split()[-1])
    assert verdicts[0].failed
    assert verdicts[0].reason == "the grader failed: IndexError: list index out of range"
    assert verdicts[1] == Verdict(1.0, "correct", "7")


def test_a_box_in_an_unfinished_thought_does_not_count() -> None:
    assert grade_math(r"<think>perhaps \boxed{5}", "5").reason == "no final answer"
    assert grade_math(r"<think>perhaps \boxed{5}</think> It is \boxed{6}.", "5").reason == "wrong answer"
    assert grade_math(r"<think>perhaps \boxed{6}</think> It is \boxed{5}.", "5").score == 1.0


def test_a_space_before_the_closing_brace() -> None:
    assert grade_math("\\boxed{5\\ }", "5").score == 1.0  # the last backslash stands alone once spaces are stripped


def test_numbers_as_references() -> None:
    assert grade_math(r"\boxed{70}", 70).score == 1.0
    assert grade_math(r"\boxed{\frac{1}{4}}", 0.25).score == 1.0


def test_bad_input_is_an_error_that_names_the_row() -> None:
    with pytest.raises(ValueError, match="2 completions but 1 answers"):
        grade_math_batch(["a", "b"], ["1"])
    with pytest.raises(ValueError, match=r"answers\[1\] is empty"):
        grade_math_batch([r"\boxed{1}", r"\boxed{1}"], ["1", " "])
    with pytest.raises(TypeError, match=r"answers\[0\] is a NoneType"):
        grade_math("x", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"completions\[0\] is a list"):
        grade_math_batch([[{"role": "assistant"}]], ["1"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="timeout=0"):
        grade_math("x", "1", timeout=0)


def test_the_batch_agrees_with_single_calls_and_reports_progress() -> None:
    rows = pairs("equivalent")[60:100:4] + pairs("unequal")[20:60:4]
    completions = [f"\\boxed{{{given}}}" for _, given in rows] * 2
    answers = [asked for asked, _ in rows] * 2
    seen: list[tuple[int, int]] = []
    batch = grade_math_batch(completions, answers, progress=lambda done, total: seen.append((done, total)))
    assert batch == [grade_math(c, a) for c, a in zip(completions, answers, strict=True)]
    assert seen[-1] == (len(completions), len(completions))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert grade_math_batch([], []) == []


def test_a_bar_shows_progress(capsys: pytest.CaptureFixture[str]) -> None:
    grade_math_batch([r"\boxed{5}"], ["5"], progress=True)
    assert "100%" in capsys.readouterr().out


def test_answers_are_never_evaluated_as_python(tmp_path: Path) -> None:
    target = tmp_path / "made"
    code = f"__import__('pathlib').Path('{target}').touch()"
    for text in (code, rf"\text{{{code}}}", f"eval({code!r})", f"({code})", f"x_{{{code}}}", f"sqrt({code})"):
        assert grade_math(f"\\boxed{{{text}}}", r"\sqrt{5}").score == 0.0
    assert not target.exists()


def test_no_module_of_the_grader_calls_an_evaluating_parser() -> None:
    import rlvr_graders as rewards

    folder = Path(rewards.__file__).parent
    files = [*(folder / "math").glob("*.py"), folder / "extract.py", folder / "worker.py"]
    assert len(files) >= 10
    for file in files:
        assert not re.search(r"(?<![.\w`])(?:eval|exec|sympify|parse_expr|S)\(", file.read_text()), file.name
