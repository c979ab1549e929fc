"""Which rollouts of a run are kept."""

import pytest

from delta_rlvr.runs import RunDescription, RunWriter
from delta_rlvr.runs.recorder import Recorder, came_to_nothing, is_sampled, no_signal


@pytest.mark.parametrize(
    ("steps", "updates", "every", "kept"),
    [
        # A rollout batch lasts two steps: batches begin at 1, 3, 5, ..., and the last one at 79.
        (80, 2, 10, [1, 11, 21, 31, 41, 51, 61, 71, 79]),
        (80, 1, 10, [1, 10, 20, 30, 40, 50, 60, 70, 80]),
        (75, 1, 10, [1, 10, 20, 30, 40, 50, 60, 70, 75]),
        (7, 4, 100, [1, 5]),  # the last batch is used three times instead of four
        (8, 1, 0, []),
    ],
)
def test_the_first_and_the_last_batch_are_always_kept(steps, updates, every, kept):
    batches = range(1, steps + 1, updates)
    assert [step for step in batches if is_sampled(step, every=every, updates=updates, last=steps)] == kept


@pytest.mark.parametrize(
    ("steps", "scores", "said"),
    [
        ([(0.0, 0.0)] * 4, (), "Nothing was learnt"),
        ([(0.4, 0.5)] * 6 + [(0.0, 0.0)] * 6, (), "collapsed: the mean reward went from 0.4 to 0"),
        ([(0.4, 0.5)] * 9 + [(0.1, 0.5)] * 3, (0.4, 0.0), "collapsed: the mean reward went from 0.4 to 0.1"),
        # Too few steps, no fall in what is quoted, or a start that was luck.
        ([(0.4, 0.5), (0.3, 0.5), (0.2, 0.5)], (0.4, 0.0), None),
        ([(0.0312, 0.25)] * 12, (0.25, 0.0), None),
        ([(0.0, 0.0), (0.0312, 0.25)] * 3 + [(0.0, 0.0)] * 6, (0.25, 0.0), None),
        ([(0.4, 0.5), (0.5, 0.5), (1.0, 0.0), (1.0, 0.0)], (0.4, 0.9), None),
        ([(0.4, 0.5), (0.3, 0.5), (0.2, 0.5), (0.3, 0.5)], (0.4, 0.3), None),
        ([], (), None),
    ],
)
def test_a_run_that_came_to_nothing(steps, scores, said):
    lines = [{"step": 1, "reward": reward, "signal_groups": signal} for reward, signal in steps]
    told = came_to_nothing([*lines, {"step": 9, "loss": 0.0}], scores)
    assert told is None if said is None else said in told


def test_a_reward_that_scores_nothing_is_named():
    line = {
        "step": 1,
        "signal_groups": 0.0,
        "truncated": 1.0,
        "rewards/mine/mean": None,
        "rewards/overlong_reward/mean": 0.0,
    }
    assert "the reward scored no response: it gave None (or NaN) for every one" in no_signal(line)
    assert came_to_nothing([line]).startswith("Nothing was learnt")


def test_weights_that_do_nothing_are_noted(tmp_path):
    lines = [
        {"step": 1, "signal_groups": 0.5, "weight_signal_mean": 1.0, "weight_signal_std": 0.004},
        {"step": 2, "signal_groups": 0.5, "weight_signal_mean": 1.0, "weight_signal_std": 0.1},
        {"step": 3, "signal_groups": 0.5},  # a method without weights
    ]
    with RunWriter.create(tmp_path / "run", RunDescription("trl", "mine", 0, "m", "t", {})) as writer:
        heard = []
        recorder = Recorder(writer, None)
        recorder.listeners.append(heard.append)
        for line in lines:
            recorder.log(line)
    notes = [line.get("note") for line in heard]
    assert notes == ["the weights hardly differ from each other: in effect, this is DAPO", None, None]
