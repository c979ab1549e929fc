"""A reward function of one's own: how it is named, what it gets, and what is said when it does not fit."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from delta_rlvr.tasks.custom_reward import CustomReward, RewardError
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.registry import get_task

FUNCTIONS = """
def length(completions, wanted, **columns):
    assert set(columns) >= {"id", "answer", "prompts"}
    return [float(len(text) == int(size)) for text, size in zip(completions, wanted)]

def said(completions, prompts):
    return [1.0 if chat[0]["content"] in prompts[0][0]["content"] else None for chat in completions]

def needs_ids(completions, completion_ids):
    return [len(ids) for ids in completion_ids]

def needs_colour(completions, colour, **columns):
    return [0.0] * len(completions)

def breaks(completions, **columns):
    return [1 / 0 for _ in completions]

def few(completions, **columns):
    return [1.0]

def words(completions, **columns):
    return ["good" for _ in completions]

def one(completions, **columns):
    return 1.0

import asyncio
loops = []

async def later(completions, **columns):
    async def judged(text):
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return len(text) / 4
    return await asyncio.gather(*map(judged, completions))

async def later_breaks(completions, **columns):
    await asyncio.sleep(0)
    return [1 / 0 for _ in completions]

def as_dict(completions, **k):
    return {"a": 1.0, "b": 2.0}

def as_text(completions, **k):
    return "12"

def as_bytes(completions, **k):
    return b"12"

def of_bytes(completions, **k):
    return [b"1"] * len(completions)

def as_rows(completions, **k):
    import numpy
    return numpy.ones((2, 1))

def as_array(completions, **k):
    import numpy
    return numpy.ones(len(completions), numpy.float32)

def huge(completions, **k):
    return [10**5000] * len(completions)

def raw(completions, **k):
    raise ValueError("two\\nlines \\x1b[31m")

def clears(completions, **k):
    for value in k.values():
        value.clear()
    completions[0].clear()
    return [1.0] * 2

def by_place(completions, /, **k):
    return [1.0] * len(completions)

def nothing(x):
    return [1.0]
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "my.py").write_text(FUNCTIONS)
    return lambda name: f"{tmp_path / 'my.py'}:{name}"


def problem(prompt="p", **row):
    return Problem("one", prompt, "4", "math", {"row": row})


def test_columns_reach_it_by_name(place):
    reward = CustomReward(place("length"))
    assert reward.__name__ == "length"
    assert reward.grade(problem(wanted="3"), "abc").score == 1.0
    assert reward.grade(problem(wanted="3"), "abcd").score == 0.0
    reward.problems = {"a": problem(wanted=2), "b": problem(wanted=5)}
    # As TRL calls it: with the data set's columns, and things of its own.
    scores = reward(
        prompts=["p", "p"], completions=["ab", "ab"], completion_ids=[[1], [1]], id=["a", "b"], answer=["", ""]
    )
    assert scores == [1.0, 0.0]
    assert [verdict.reason for verdict in reward.last_verdicts] == ["reward 1", "reward 0"]


def test_a_chat_is_given_as_messages_and_none_is_no_reward(place):
    reward = CustomReward(place("said"))  # takes no **columns: gets what it names
    chat = problem([{"role": "user", "content": "say hello"}])
    assert reward.grade(chat, "hello").score == 1.0
    verdict = reward.grade(chat, "bye")
    assert (verdict.score, verdict.failed) == (0.0, True)


def test_it_may_be_async(place):
    """TRL's signature again. All calls share a loop: a connection that one opened is not closed in the next."""
    reward = CustomReward(place("later"))
    reward.problems = {"a": problem(), "b": problem()}
    scores = reward(prompts=["p", "p"], completions=["a", "ab"], id=["a", "b"])
    assert scores == [0.25, 0.5]
    assert reward.grade(problem(), "abc").score == 0.75
    (loop,) = set(reward.function.__globals__["loops"])
    assert loop.is_running()

    async def within_a_notebook():
        return reward.grade(problem(), "a").score

    with ThreadPoolExecutor() as threads:  # this one may have a loop: a browser's test leaves one
        assert threads.submit(asyncio.run, within_a_notebook()).result() == 0.25


def test_a_function_that_expects_texts_learns_that_it_got_messages(place):
    reward = CustomReward(place("breaks"))
    with pytest.raises(RewardError, match=r"ZeroDivisionError.*its text is completion\[0\]\['content'\]"):
        reward.grade(problem([{"role": "user", "content": "say hello"}]), "hello")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("breaks", r"breaks' failed with ZeroDivisionError: division by zero \(.*my.py, line 16\)"),
        ("later_breaks", r"later_breaks' failed with ZeroDivisionError: .*my.py, line 39\)"),
        ("few", "few' gave 1 rewards for 2 completions"),
        ("words", "words' gave 'good': give a finite number, or None"),
        ("one", "one' gave 1.0: give a list, one reward per completion"),
        ("as_dict", "as_dict' gave {'a': 1.0, 'b': 2.0}: give a list"),
        ("as_text", "as_text' gave '12': give a list"),
        ("as_bytes", "as_bytes' gave b'12': give a list"),
        ("as_rows", r"as_rows' gave array.*: give a list"),
        ("of_bytes", "of_bytes' gave b'1': give a finite number"),
        ("huge", "huge' gave inf: give a finite number"),
        ("raw", r"ValueError: two\\nlines \\x1b\[31m \("),
    ],
)
def test_what_it_gives_is_checked(place, name, words):
    reward = CustomReward(place(name))
    reward.problems = {"a": problem()}
    with pytest.raises(RewardError, match=words):
        reward(prompts=["p"] * 2, completions=["x"] * 2, id=["a", "a"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lenght", r"there is no function 'lenght' in .*; did you mean 'length'\? \(it has length, said"),
        ("nothing", r"takes \(x\): it must take `completions`"),
        ("by_place", r"takes \(completions, /, \*\*k\): it must take `completions`"),
    ],
)
def test_what_is_no_reward_function_is_refused(place, name, words):
    with pytest.raises(RewardError, match=words):
        CustomReward(place(name))


def test_places_that_are_not_there(tmp_path):
    with pytest.raises(RewardError, match="name the function too"):
        CustomReward("my.py")
    with pytest.raises(ValueError, match="there is no such file"):
        CustomReward(f"{tmp_path}/none.py:f")
    with pytest.raises(ValueError, match="there is no such module"):
        CustomReward("no_such_package.rewards:f")


def test_what_it_needs_is_checked_before_anything_is_sampled(place):
    with pytest.raises(RewardError, match="needs 'colour', and the rows have answer, id, wanted"):
        CustomReward(place("needs_colour")).check(problem(wanted=1), training=True)
    reward = CustomReward(place("needs_ids"))
    reward.check(problem(), training=True)
    with pytest.raises(RewardError, match="needs 'completion_ids', which only training has: give it a default"):
        reward.check(problem(), training=False)


def test_it_gets_lists_of_its_own(place):
    """Cleared, they were "0 expected" for TRL, and a problem's own list was empty in every later batch."""
    reward, asked = CustomReward(place("clears")), problem([{"role": "user", "content": "q"}], tags=["a"])
    reward.problems = {"a": asked}
    prompts, completions = [asked.prompt] * 2, [[{"role": "assistant", "content": "x"}]] * 2
    assert reward(prompts=prompts, completions=completions, id=["a", "a"]) == [1.0, 1.0]
    assert (len(prompts), len(completions[0]), asked.meta["row"]["tags"]) == (2, 1, ["a"])
    reward = CustomReward(place("as_array"))
    assert reward.grade(problem(), "x").score == 1.0


def test_rows_need_no_answer_where_it_judges(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "q", "colour": "red"}\n' * 4)
    with pytest.raises(ValueError, match="has no answer"):
        get_task(str(path))
    task = get_task(str(path), graded=False)
    assert {problem.answer for problem in (*task.train, *task.heldout)} == {""}
    assert {problem.meta["row"]["colour"] for problem in (*task.train, *task.heldout)} == {"red"}
