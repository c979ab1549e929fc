from __future__ import annotations

import itertools
import random
import re

import pytest

from delta_rlvr.tasks import BUILT_IN, Task, get_task
from delta_rlvr.tasks.phrased_sums import PhrasedSums, Slips, SumSettings, has_carry, split_of
from delta_rlvr.tasks.sum_credit import first_wrong_digit

TASKS = sorted(BUILT_IN)


@pytest.mark.parametrize("name", TASKS)
def test_splits_are_disjoint_whatever_the_seeds(name: str) -> None:
    task = BUILT_IN[name]
    assert isinstance(task, Task)
    train = {tuple(sorted(p.meta["addends"])) for seed in range(3) for p in task.problems("train", 1500, seed)}
    heldout = {tuple(sorted(p.meta["addends"])) for seed in range(3) for p in task.problems("heldout", 500, seed)}
    assert len(train) > 2000
    assert len(heldout) > 500
    assert not train & heldout


def test_a_variant_does_not_train_on_what_another_holds_out() -> None:
    addends = [[p.meta["addends"] for p in BUILT_IN[name].problems("train", 300)] for name in TASKS]
    assert {split_of(numbers) for numbers in itertools.chain.from_iterable(addends)} == {"train"}


def test_problems_are_the_same_in_every_run() -> None:
    # Written down: a change here changes every earlier result's problems.
    task = get_task("phrased-sums")
    first = task.problems("heldout", 2, seed=0)
    assert [problem.id for problem in first] == ["phrased-sums/55+30+78+51", "phrased-sums/75+20+92+15"]
    assert first[0].prompt == "Add 55, 30, 78 and 51.\n"
    assert first[0].answer == "214"


def test_start_continues_the_stream_and_none_comes_twice() -> None:
    task = get_task("late-error")
    whole = task.problems("train", 400, seed=5)
    assert task.problems("train", 150, seed=5, start=250) == whole[250:]
    assert len({problem.id for problem in whole}) == 400
    assert task.problems("train", 400, seed=6) != whole


@pytest.mark.parametrize("name", TASKS)
def test_told_solutions_are_right_and_slips_are_found(name: str) -> None:
    task = BUILT_IN[name]
    draw = random.Random(0)
    wrong = 0
    for problem in task.problems("train", 300):
        addends, facts = problem.meta["addends"], problem.meta["facts"]
        clean = task.solution(problem, draw)
        assert task.grade(problem, clean).score == 1.0
        assert first_wrong_digit(addends, facts, clean) == []
        assert len(task.decisive(problem, clean)) == len(addends) - 1  # one result a step
        slipped = task.solution(problem, draw, Slips(carry=0.4, digit=0.06))
        if task.grade(problem, slipped).score == 0.0:
            wrong += 1
            ((start, end),) = task.decisive(problem, slipped)
            assert end == start + 1
            assert slipped[start].isdigit() or slipped[start] == "."  # 100 for 110 may lose a digit: 90
    assert 100 < wrong < 220  # close to what the rates give: 1 - (0.82 * 0.94) ** 3 = 0.54 for four addends


def test_a_slip_is_found_where_it_was_made() -> None:
    # 18 + 25: with every carry forgotten 33 for 43, so the tens digit of the result is wrong.
    problem = PhrasedSums(settings=SumSettings(addends=2)).problems("train", 1)[0]
    problem.meta["addends"][:] = [18, 25]
    task = PhrasedSums(settings=SumSettings(addends=2, phrasings=1))
    told = task.solution(problem, random.Random(0), Slips(carry=1.0))
    assert told == "First, 18 plus 25 makes 33. So the answer is 33."
    assert first_wrong_digit([18, 25], [], told) == [(told.index("33"), told.index("33") + 1)]


def test_carries_fall_where_the_variant_says() -> None:
    for name, place in (("early-error", 0), ("late-error", 2)):
        for problem in BUILT_IN[name].problems("train", 200):
            a, b, c, d = problem.meta["addends"]
            carries = [has_carry(a, b), has_carry(a + b, c), has_carry(a + b + c, d)]
            assert carries == [step == place for step in range(3)]


def test_phrasing_is_uncertain_and_says_nothing_about_the_numbers() -> None:
    task = get_task("phrased-sums")
    problem = task.problems("train", 1)[0]
    draw = random.Random(0)
    told = [task.solution(problem, draw) for _ in range(300)]
    assert len(set(told)) > 295  # 6 ** 7 ways
    # The same draws tell another sum in the same words.
    words = [
        re.sub(r"\d+", "#", task.solution(asked, random.Random(1), Slips(carry=0.4, digit=0.06)))
        for asked in task.problems("train", 20)
    ]
    assert len(set(words)) == 1


def test_distractors_and_fillers_are_there() -> None:
    facts = BUILT_IN["distractor-facts"].problems("train", 1)[0]
    assert all(f"{fact}" in str(facts.prompt) for fact in facts.meta["facts"])
    assert len(facts.meta["facts"]) == 2
    task = BUILT_IN["long-filler"]
    told = task.solution(task.problems("train", 1)[0], random.Random(0))
    assert told.count(".") == 2 + 4 + 1  # two steps, two fillers after each, the answer


def test_grades() -> None:
    task = get_task("phrased-sums")
    problem = task.problems("heldout", 1)[0]  # 214
    assert task.grade(problem, "So the answer is 214.").score == 1.0
    wrong = task.grade(problem, "So the answer is 2140.")
    assert (wrong.score, wrong.reason, wrong.answer) == (0.0, "wrong answer", "2140")
    assert task.grade(problem, "163 and 51 come to 214.").reason == "no final answer"
    assert [v.score for v in task.grade_batch([problem, problem], ["the answer is 214", ""])] == [1.0, 0.0]


def test_what_is_refused() -> None:
    task = get_task("phrased-sums")
    with pytest.raises(ValueError, match="endless"):
        task.problems("train", None)
    with pytest.raises(ValueError, match="split must be one of train, heldout"):
        task.problems("test", 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="start must be at least 0"):
        task.problems("train", 1, start=-1)
    with pytest.raises(ValueError, match="addends must be at least 2"):
        SumSettings(addends=1)
    with pytest.raises(ValueError, match="low <= high"):
        SumSettings(low=5, high=4)
    with pytest.raises(ValueError, match=r"no more train problems .* after \d+: widen"):
        PhrasedSums(settings=SumSettings(addends=2, low=1, high=3)).problems("train", 50)
