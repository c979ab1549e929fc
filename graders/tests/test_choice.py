"""Multiple choice: one letter, or nothing."""

from __future__ import annotations

import pytest

from rlvr_graders import Verdict, grade_choice, grade_choice_batch


@pytest.mark.parametrize(
    "completion",
    [
        r"so \boxed{C}",
        r"\boxed{(C)}",
        r"\boxed{\text{C}}",
        r"\boxed{\textbf{(C)}}",
        r"\boxed{\text{(C) }}",
        r"\boxed{C.}",
        r"\boxed{C) 45 m/s}",
        r"\boxed{(C) an increase in entropy}",
        r"\boxed{c}",
        "I think so.\nAnswer: C",
        "**Answer:** (C)",
        "The answer is (C).",
        "Final answer: C) entropy rises",
        r"first \boxed{A}, but then \boxed{C}",
        "Answer: C) 5 and 6",
        "the correct answer is C.",
        "The correct answer is **C**.",
        "Thus, the correct option is C.",
        "Option C is correct.",
        "Answer: C) hepatitis B",
        "Answer: C: both A and B",
        r"\boxed{\text{Option C}}",
        r"<think>\boxed{A}</think> \boxed{C}",
        "Answer: `C`",
        'Answer: "C"',
        "Answer\uff1aC",
        "Answer - **C**",
        "### Final Answer\n\nC.",
        "The answer is therefore (C).",
        "The answer is C, not B.",
    ],
)
def test_right_choice(completion: str) -> None:
    assert grade_choice(completion, "C") == Verdict(1.0, "correct", "C")


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        (r"\boxed{B}", "wrong answer"),
        (r"\boxed{D) not C}", "no single letter is chosen"),
        (r"\boxed{C or D}", "no single letter is chosen"),
        (r"\boxed{C, D}", "no single letter is chosen"),
        (r"\boxed{(C) or (D)}", "no single letter is chosen"),
        (r"\boxed{(C) 4 (D) 5}", "no single letter is chosen"),
        (r"\boxed{ABCD}", "no single letter is chosen"),
        (r"\boxed{A B C}", "no single letter is chosen"),
        (r"\boxed{Chlorine}", "no single letter is chosen"),
        (r"\boxed{}", "no final answer"),
        ("C", "no final answer"),
        ("Answer: C\nOr maybe D.", "no final answer"),
        ("The answer is not C.", "no single letter is chosen"),
        ("I doubt that the answer is C.", "no final answer"),
        ("I never give an answer - C", "no final answer"),
        ("## On answers\nC", "no final answer"),
        ("The answer is not B, C", "no single letter is chosen"),
        ("The answer is C or B, not A.", "no single letter is chosen"),
        ("Answer: C or D", "no single letter is chosen"),
        ("Answer: either C or D", "no single letter is chosen"),
        ("The answer is C, but I think the answer is B.", "wrong answer"),
        (r"<think>so \boxed{C}", "no final answer"),
    ],
)
def test_not_the_right_choice(completion: str, reason: str) -> None:
    verdict = grade_choice(completion, "C")
    assert (verdict.score, verdict.reason) == (0.0, reason)


def test_the_reference_is_a_letter() -> None:
    assert grade_choice(r"\boxed{J}", "(J)").score == 1.0
    with pytest.raises(ValueError, match="not one letter from A to J"):
        grade_choice(r"\boxed{C}", "entropy")
    with pytest.raises(ValueError, match="1 completions but 2 answers"):
        grade_choice_batch(["x"], ["A", "B"])


def test_an_error_in_an_extractor_of_the_callers_is_a_verdict() -> None:
    verdict = grade_choice("", "C", extract=lambda text: text.split()[-1])
    assert (verdict.score, verdict.failed) == (0.0, True)
