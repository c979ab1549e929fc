"""Which grader judges a problem, and how often its tests are parsed."""

import pytest

from delta_rlvr.tasks import BUILT_IN
from delta_rlvr.tasks.grading import grade_batch
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.registry import grade_problem
from rlvr_graders.code import datasets


def test_each_problem_has_its_grader_and_its_place_of_the_answer() -> None:
    boxed = Problem("a", "Q", "1/2", "math")
    line = Problem("b", "Q", "7", "math", {"extract": "answer_line"})
    letter = Problem("c", "Q", "C", "choice")
    texts = ["\\boxed{0.5}", "Answer: 7", "\\boxed{C}", "Answer: 1/2", "\\boxed{7}", "\\boxed{B}"]
    problems = [boxed, line, letter] * 2
    scores = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert [verdict.score for verdict in grade_batch(problems, texts)] == scores
    assert [grade_problem(*pair).score for pair in zip(problems, texts, strict=True)] == scores


def test_a_task_grades_what_it_made() -> None:
    (problem,) = BUILT_IN["late-error"].problems("train", 1)
    assert grade_problem(problem, f"the answer is {problem.answer}").score == 1.0
    assert grade_problem(problem, "the answer is 1").score == 0.0


def test_what_cannot_be_graded_is_named() -> None:
    problem = Problem("p", "Q", "1", "taste")
    with pytest.raises(ValueError, match="p: there is no grader 'taste'; there are math, code, choice"):
        grade_batch([problem], ["1"])
    with pytest.raises(ValueError, match=r"p: nothing grades 'taste' \(there is no task 'taste'"):
        grade_problem(problem, "1")
    with pytest.raises(ValueError, match="2 problems but 1 completions"):
        grade_batch([problem] * 2, ["1"])


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first input of every test set that is parsed."""
    seen: list[str] = []
    parse = datasets.parse_tests

    def watch(answer: dict[str, list[str]]) -> object:
        seen.append(answer["inputs"][0])
        return parse(answer)

    monkeypatch.setattr(datasets, "parse_tests", watch)
    return seen


def program(name: str, given: str) -> Problem:
    return Problem(name, "Q", {"inputs": [given], "outputs": ["0"]}, "code")


def test_tests_are_parsed_once_a_problem(parsed: list[str]) -> None:
    """In any order, in batches larger than what is kept between calls, and from call to call."""
    problems = [program(str(number), str(number)) for number in range(100)]
    verdicts = grade_batch(problems * 2, [""] * 200)
    assert {(verdict.score, verdict.reason) for verdict in verdicts} == {(0.0, "no code")}
    assert parsed == [str(number) for number in range(100)]
    assert [grade_problem(problems[99], "").reason for _ in range(3)] == ["no code"] * 3
    assert len(parsed) == 100
    assert grade_problem(problems[0], "").reason == "no code"  # the first ones are no longer kept
    assert parsed[100:] == ["0"]


def test_problems_of_two_sets_may_share_an_id(parsed: list[str]) -> None:
    grade_batch([program("1", "one"), program("1", "other")], ["", ""])
    assert parsed == ["one", "other"]
