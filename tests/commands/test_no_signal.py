"""Runs that have nothing to learn from say so in words, and do not crash."""

import pytest

from command_line import SMALL, metrics
from delta_rlvr.cli import main
from delta_rlvr.runs.recorder import no_signal
from rows import write_rows


def train(folder, capsys, *options):
    capsys.readouterr()
    assert main(["train", *SMALL, "--steps", "2", "--output", str(folder), *map(str, options)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("mask", ["false", "true"])
@pytest.mark.filterwarnings("ignore:no completion of this batch")
def test_every_response_is_cut(tmp_path, capsys, mask):
    told = train(tmp_path, capsys, "--max_completion_length", 2, "--mask_truncated_completions", mask)
    first, second = metrics(tmp_path)
    assert first["truncated"] == 1
    assert first["signal_groups"] == 0
    assert first["loss"] == second["loss"] == 0
    assert first["note"].startswith("no learning signal: every response was cut at the length limit")
    assert "raise max_completion_length" in first["note"]
    assert f"step 1: {first['note']}" in told
    assert first["note"] in (tmp_path / "log.txt").read_text()


def test_answers_that_nobody_can_give(tmp_path, capsys):
    rows = [{"question": f"What is {n} + {n}?", "answer": "\\sqrt{-7919}"} for n in range(40)]
    problems = write_rows(tmp_path / "problems.jsonl", rows)
    told = train(tmp_path / "run", capsys, "--task", problems, "--max_completion_length", 12, "--rollouts_every", 0)
    first = metrics(tmp_path / "run")[0]
    assert first["reward"] == 0
    assert first["loss"] == 0
    assert "no learning signal" in first["note"]
    assert first["note"] in told
    assert " ".join(told.split()).endswith("(the notes of the steps say why).")
    assert "delta-rlvr compare" not in told


def test_a_constant_reward_is_said_once_and_in_words(tmp_path, capsys):
    """Each of the methods that the page shows said it again, and beside it stood a line of code."""
    (tmp_path / "same.py").write_text("def same(completions, **_):\n    return [0.3] * len(completions)\n")
    told = train(tmp_path / "run", capsys, "--reward", f"{tmp_path / 'same.py'}:same", "--rollouts_every", 1)
    assert told.count("no contrast to learn from") == 1
    assert "warning: no contrast to learn from: this rollout batch has" in " ".join(told.split())
    assert told.count("no learning signal: every response got the reward 0.3: look at your reward function") == 1
    assert ".py:" not in told.replace("same.py:", "")
    assert [line["signal_groups"] for line in metrics(tmp_path / "run") if "signal_groups" in line] == [0]


CONSTANT = {"signal_groups": 0.0, "reward_std": 1e-8, "truncated": 0.0}


# By hand: what the line has, and which cause must be named.
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"signal_groups": 0.0, "reward": 0.0, "truncated": 1.0}, "raise max_completion_length"),
        ({"signal_groups": 0.0, "reward": 0.0, "truncated": 0.2}, "graded 0"),
        ({"signal_groups": 0.0, "reward": 1.0, "truncated": 0.0}, "too easy"),
        ({"signal_groups": 0.0, "reward": 0.5, "truncated": 0.0}, "num_generations"),
        # A reward of one's own that gives every response the same: 0.2 where all are cut, 0.5, -1.
        (CONSTANT | {"reward": 0.2, "rewards/mine/mean": 0.2, "truncated": 1.0}, "got the reward 0.2: look at your"),
        (CONSTANT | {"reward": 0.2, "rewards/mine/mean": 0.2, "truncated": 1.0}, "and at max_completion_length"),
        (CONSTANT | {"reward": 0.5, "rewards/mine/mean": 0.5}, "got the reward 0.5: look at your reward function"),
        (CONSTANT | {"reward": -1.0, "rewards/mine/mean": -1.0}, "every response got the reward -1"),
        # Each group alike, and another reward in each: more responses may tell them apart.
        (CONSTANT | {"reward_std": 0.3, "reward": -0.5, "rewards/mine/mean": -0.5}, "num_generations"),
        # The grader's 0 and the penalty for length are no reward of one's own.
        (
            CONSTANT
            | {"reward": -1.0, "rewards/correct/mean": 0.0, "rewards/overlong_reward/mean": -1.0, "truncated": 1.0},
            "raise max_completion_length",
        ),
        ({"signal_groups": 0.25, "reward": 0.0, "truncated": 1.0}, None),
        ({"reward": 0.0}, None),
    ],
)
def test_the_cause(line, words):
    told = no_signal(line)
    assert (told is None) if words is None else (words in told)
