"""Where a completion's final answer stands."""

from __future__ import annotations

import time

import pytest

from rlvr_graders import grade_math
from rlvr_graders.extract import (
    EXTRACTORS,
    answer_line,
    choice_letter,
    final_answer,
    hash_line,
    last_boxed,
    last_number,
)


@pytest.mark.parametrize(
    ("completion", "boxed"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{3} or \boxed{4}", "4"),  # never joined: the last one counts
        (r"\boxed{\frac{1}{2}} and then text", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),  # an escaped brace is not a brace
        (r"\boxed{a\\b}", r"a\\b"),
        (r"\boxed{\boxed{5}}", r"\boxed{5}"),
        (r"\boxed{5} and \boxed{6", "5"),  # cut off: the last balanced one
        (r"\boxed{ \boxed{5}", "5"),
        (r"\fbox{5}", "5"),
        (r"\boxed {5}", "5"),
        (r"\boxed 5", "5"),
        (r"\\boxed{5}", "5"),
        (r"x \\\boxed{5}", "5"),  # a new line, then the box
        (r"\boxedfoo{5}", None),
        (r"boxed{5}", None),
        ("no box", None),
        (r"\boxed{5", None),
        ("", None),
    ],
)
def test_last_balanced_box(completion: str, boxed: str | None) -> None:
    assert last_boxed(completion) == boxed


def test_other_places_for_the_answer() -> None:
    assert answer_line("Answer: 4\nno, wait\n**Answer:** 5 \n") == "5"
    assert answer_line("The final answer is: $\\frac12$") == r"$\frac12$"
    assert answer_line("Answer: 4\nI am not sure.") is None
    assert answer_line("") is None
    assert hash_line("16 - 3 = 13\n#### 18\nbye") == "18"
    assert grade_math("Answer: 5", 5).reason == "no final answer"
    assert grade_math("Answer: 5", 5, extract="answer_line").score == 1.0
    assert grade_math("x\n#### 1,018", "1018", extract="hash_line").score == 1.0
    assert grade_math("I say 7", 7, extract=lambda text: text.split()[-1]).score == 1.0
    with pytest.raises(ValueError, match="extract='box' is not known"):
        grade_math("5", 5, extract="box")


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("The correct answer is C.", "C."),
        ("Therefore, the answer is 5.", "5."),
        ("**Answer: 5**", "5"),
        ("So, the answer is **23**.", "23"),
        ("The answer to this question is 12", "12"),
        ("Final Answer: The final answer is $5$. I hope it is correct.", "$5$"),
        ("Answer: 5<|im_end|>", "5"),
        ("The answer is 4, but wait, the answer is 5", "5"),
        ("So the correct option is (C).", "(C)."),
        ("Option C is correct.", "C"),
        ("(C) is the correct answer.", "(C)"),
        ("I do not think the answer is 5", None),
        ("If the answer is 5, we are done", None),
        ("answers", None),
        ("<think>The answer is 5", None),
        ("<think>x</think>\nAnswer: 5", "5"),
    ],
)
def test_answer_lines(completion: str, answer: str | None) -> None:
    assert answer_line(completion) == answer


@pytest.mark.parametrize(
    ("completion", "spoken"),
    [
        ("5", "5"),
        ("<think>a</think>5", "5"),
        ("a</think>5", "5"),  # the template opened the thought
        ("<think>a", ""),
        ("5<think>a", "5"),
        ("<think>a</think>5<think>b</think>6", "6"),
        ("<THINKING>a</Thinking>5", "5"),
        ("<reasoning>a</reasoning>5", "5"),
        ("a < b and b > c", "a < b and b > c"),
    ],
)
def test_thoughts_are_not_the_answer(completion: str, spoken: str) -> None:
    assert final_answer(completion) == spoken
    assert EXTRACTORS["whole"](completion) == (spoken or None)


@pytest.mark.parametrize(
    "text", ["C", "(C)", "C.", "[C]", r"\text{(C)}", "**C**.", "Option C", "C) 5 and 6", "C. vitamin D", "(C) 4"]
)
def test_one_letter_is_chosen(text: str) -> None:
    assert choice_letter(text) == "C"


@pytest.mark.parametrize(
    "text", ["", "C or D", "C, D", "CD", "(C) or (D)", "C) or D", "D) not C", "(C) 4 (D) 5", "Cat", "c", "K"]
)
def test_no_letter_or_several_are_chosen(text: str) -> None:
    assert choice_letter(text) is None


@pytest.mark.parametrize(
    "text",
    [
        " " * 300_000 + "x",
        "x" + " " * 300_000 + "y",
        "*" * 300_000,
        "answer " * 40_000,
        "answer" + " " * 300_000 + "x",
        "the answer is " + "(" * 300_000,
        "</think>" * 40_000,
        "<think>" * 40_000,
        "\\boxed{" * 40_000,
        "C) " + "or " * 100_000,
        "#" * 300_000,
    ],
)
def test_long_completions_take_no_time(text: str) -> None:
    begin = time.process_time()
    for extract in EXTRACTORS.values():
        extract(text)
    choice_letter(text)
    assert time.process_time() - begin < 5  # linear: a tenth of a second; quadratic: minutes


def test_the_last_number() -> None:
    assert last_number("5 + 2.50 = 7.50. So the answer is $1,234.") == "1234"
    assert last_number("It sinks 10-5 = 5 to (-3.5) m.") == "-3.5"
    assert last_number("10-5") == "5"
    assert last_number("1,2") == "2"  # a list, not a number
    assert last_number("none") is None
    assert last_number("<think>7</think> The answer is 5.") == "5"
    assert last_number("<think>7") is None
    assert grade_math("So 7 - 2 = 5. The answer is 5.", 5, extract="last_number").score == 1.0
