"""reasoning-gym's generators as tasks."""

from __future__ import annotations

import time

import pytest

from delta_rlvr.tasks import Task, get_task
from delta_rlvr.tasks.sources.generators import divisions, final_answer, running_totals

pytest.importorskip("reasoning_gym")

SPEC = "reasoning-gym:chain_sum?min_terms=2&max_terms=3&min_digits=1&max_digits=2"


def test_problems_are_stable_disjoint_and_never_twice() -> None:
    task = get_task(SPEC)
    assert isinstance(task, Task)
    train = [problem.prompt for seed in range(3) for problem in task.problems("train", 400, seed)]
    heldout = {problem.prompt for seed in range(3) for problem in task.problems("heldout", 60, seed)}
    assert not set(train) & heldout
    assert len(set(train[:400])) == 400
    # reasoning-gym's own neighbouring seeds overlap nearly wholly: ours must not
    assert len(set(train)) > 1000
    assert [p.prompt for p in task.problems("train", 20, 0, start=30)] == train[30:50]


def test_partial_scores_do_not_count() -> None:
    task = get_task(SPEC)
    problem = task.problems("train", 1)[0]
    gold = problem.answer
    for text in (gold, f" {gold}\n", f"The answer is {gold}.", f"<answer>{gold}</answer>", f"So \\boxed{{{gold}}}."):
        assert task.grade(problem, text).score == 1.0, text
    # reasoning-gym gives part of a point to each of these
    for text in (f"It might be {gold} or not", f"{gold}0", f"{gold} {gold}"):
        assert task.grade(problem, text).score == 0.0, text
    assert task.grade(problem, "  ").reason == "no final answer"


def test_shots_stand_before_the_question_and_are_not_asked() -> None:
    task = get_task(SPEC + "&shots=4&max_tokens=16")
    problems = task.problems("train", 300) + task.problems("heldout", 40)
    prompt = str(problems[0].prompt)
    blocks = prompt.split("\n\n")
    assert len(blocks) == 5
    assert blocks[-1].endswith("\nAnswer:")
    shown = {block.split("\n")[0] for block in blocks[:-1]}
    assert not shown & {str(problem.prompt).split("\n\n")[-1].split("\n")[0] for problem in problems}
    assert all(str(problem.prompt).startswith(prompt.rsplit("\n\n", 1)[0]) for problem in problems)
    # only the first line counts
    gold = problems[0].answer
    assert task.grade(problems[0], f" {gold}\n\nQuestion: 1 + 1\nAnswer: 2").score == 1.0
    assert task.grade(problems[0], f" {gold}.").score == 1.0
    assert task.grade(problems[0], f" x\n{gold}").score == 0.0
    assert task.max_tokens == 16


def test_shots_can_show_the_running_totals() -> None:
    task = get_task("reasoning-gym:chain_sum?min_terms=3&max_terms=3&min_digits=1&max_digits=1&shots=4&working=true")
    assert task.one_line
    assert get_task(task.name).problems("train", 3) == task.problems("train", 3)
    problem = task.problems("train", 1)[0]
    gold = problem.answer
    assert task.grade(problem, f" 1 + 2 = 3. The answer is {gold}.\nQuestion").score == 1.0
    assert task.grade(problem, f" {gold}").reason == "no final answer"
    with pytest.raises(ValueError, match="there is no working for count_bits; there is one for chain_sum"):
        get_task("reasoning-gym:count_bits?shots=2&working=true")
    with pytest.raises(ValueError, match="the working is shown in shots"):
        get_task(SPEC + "&working=true")


def test_other_workings_by_hand() -> None:
    assert running_totals({"metadata": {"expression": "4 + 5 - 1"}}) == "4 + 5 = 9, 9 - 1 = 8"
    assert running_totals({"metadata": {"expression": "6 * 2 * 3"}}) == "6 * 2 = 12, 12 * 3 = 36"
    assert divisions({"metadata": {"numbers": [12, 18]}}) == "18 = 1 * 12 + 6, 12 = 2 * 6 + 0"
    with pytest.raises(ValueError, match="needs two numbers, not 3"):
        divisions({"metadata": {"numbers": [4, 6, 8]}})


@pytest.mark.parametrize(
    "spec",
    [
        "chain_sum?min_terms=3&max_terms=3&max_digits=1",
        "products?min_terms=3&max_terms=3",
        "gcd?max_numbers=2&max_value=60",
    ],
)
def test_workings_end_with_the_answer(spec: str) -> None:
    task = get_task(f"reasoning-gym:{spec}&shots=4&working=true")
    problem = task.problems("train", 1)[0]
    for block in str(problem.prompt).split("\n\n")[:-1]:
        steps, _, answer = block.partition("Answer: ")[2].partition(". The answer is ")
        assert all(eval(left) == eval(right) for left, right in (step.split(" = ") for step in steps.split(", ")))
        last = steps.split(", ")[-1]
        # A sum or product is the last result, the greatest common divisor the last number that was divided by.
        said = last.split(" * ")[1].split(" + ")[0] if "gcd" in spec else last.split(" = ")[1]
        assert answer == f"{said}."
    assert task.grade(problem, f" The answer is {problem.answer}.").score == 1.0


@pytest.mark.parametrize("name", ["products", "gcd", "count_bits", "basic_arithmetic", "letter_counting"])
def test_other_generators_accept_their_own_answers(name: str) -> None:
    task = get_task(f"reasoning-gym:{name}")
    for problem in task.problems("heldout", 5):
        assert task.grade(problem, problem.answer).score == 1.0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("I think <answer>3</answer> no <answer> 4 </answer>", "4"),
        ("steps...\nThe answer is 42.", "42"),
        ("steps...\nAnswer: -7", "-7"),
        ("1 2\n3 4", "1 2\n3 4"),
        ("", None),
    ],
)
def test_final_answer(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


def test_many_blanks_take_no_time() -> None:
    start = time.thread_time()
    assert final_answer("The answer is 5" + " " * 1900 + "6") == "5" + " " * 1900 + "6"
    assert time.thread_time() - start < 0.05


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="no generator 'nope'; it has ab, acre"):
        get_task("reasoning-gym:nope")
    with pytest.raises(ValueError, match="no generator 'chainsum'; did you mean 'chain_sum'") as near:
        get_task("reasoning-gym:chainsum")
    assert len(str(near.value)) < 100, "a hundred names were the answer"
    with pytest.raises(ValueError, match="chain_sum has no setting 'digits'; did you mean 'min_digits'"):
        get_task("reasoning-gym:chain_sum?digits=3")
    with pytest.raises(ValueError, match="min_terms must be positive"):
        get_task("reasoning-gym:chain_sum?min_terms=0")
    with pytest.raises(ValueError, match="endless"):
        get_task(SPEC).problems("train", None)
    tiny = get_task("reasoning-gym:chain_sum?min_terms=2&max_terms=2&min_digits=1&max_digits=1")
    with pytest.raises(ValueError, match="has no new questions after"):
        tiny.problems("train", 5000)
