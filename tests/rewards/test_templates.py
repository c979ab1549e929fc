"""Templates and graders belong together: what a template asks for is what its extractor finds."""

from __future__ import annotations

import pytest

from delta_rlvr.tasks.templates import CHOICE, CODE, MATH, TEMPLATES, Template, template
from rlvr_graders import grade_choice, grade_math
from rlvr_graders.extract import EXTRACTORS

OBEDIENT = {
    "last_number": "6 x 7 is that. The answer is %s.",
    "boxed": "We think.\n$\\boxed{%s}$",
    "answer_line": "We think.\nAnswer: %s",
    "hash_line": "We think.\n#### %s",
    "whole": "%s",
}


def test_the_authors_prompt() -> None:
    """As their agent loop writes it; a chat template would change it."""
    assert template("paper_math").fill("What is {2} + 2?") == (
        "User:\nWhat is {2} + 2?\nPlease reason step by step, and put your final answer within \\boxed{}.\n\nAssistant:\n"
    )
    assert [name for name, each in TEMPLATES.items() if each.plain] == ["paper_math"]
    assert MATH.messages("q")[0]["role"] == "user"


@pytest.mark.parametrize("name", [name for name, each in TEMPLATES.items() if each.grader != "code"])
def test_an_obedient_response_is_understood(name: str) -> None:
    chosen = template(name)
    assert chosen.extract in EXTRACTORS
    if chosen.grader == "math":
        assert grade_math(OBEDIENT[chosen.extract] % "42", 42, extract=chosen.extract).score == 1.0
    else:
        assert grade_choice(OBEDIENT[chosen.extract] % "B", "B", extract=chosen.extract).score == 1.0


def test_choices_are_lettered() -> None:
    prompt = CHOICE.fill("Which?", ["one", "two", "three"])
    assert "Which?\n\n(A) one\n(B) two\n(C) three\n\nPlease" in prompt
    with pytest.raises(ValueError, match="needs 2 to 26 options, not 0"):
        CHOICE.fill("Which?")
    with pytest.raises(ValueError, match="no placeholder for options"):
        CODE.fill("Write", ["a", "b"])


def test_bad_templates_are_refused() -> None:
    with pytest.raises(ValueError, match=r"placeholders \['', 'question'\]"):
        Template("t", "{question} in \\boxed{}", "math", "boxed")
    with pytest.raises(ValueError, match=r"needs \{question\}"):
        Template("t", "no place", "math", "boxed")
    with pytest.raises(ValueError, match="grader='maths'"):
        Template("t", "{question}", "maths", "boxed")
    with pytest.raises(ValueError, match="there is no template 'x'; there are math,"):
        template("x")
