"""The reward functions as TRL calls them."""

from __future__ import annotations

import importlib.util
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from delta_rlvr.rewards import FormatReward, OverlongReward, SoftOverlong, WeightedReward
from rlvr_graders import ChoiceReward, MathReward, math_reward
from rlvr_graders.functions import completion_text

PLAIN = [r"\boxed{5}", r"\boxed{6}", "no box"]
CHAT = [[{"role": "assistant", "content": text}] for text in PLAIN]


class Trainer:
    """Calls a reward function with everything that TRL 1.16's GRPOTrainer passes, and keeps what it logs."""

    def __init__(self) -> None:
        self.extra: dict[str, list[Any]] = {}
        self.metrics: dict[str, float] = {}

    def call(self, reward: Any, completions: list[Any], **columns: Any) -> list[float]:
        result: list[float] = reward(
            prompts=["q"] * len(completions),
            completions=completions,
            completion_ids=[[1] * 10 * (n + 1) for n in range(len(completions))],
            trainer_state=object(),
            log_extra=lambda name, values: self.extra.update({name: values}),
            log_metric=lambda name, value: self.metrics.update({name: value}),
            **columns,
        )
        return result


@pytest.mark.parametrize("completions", [PLAIN, CHAT])
def test_math_reward_on_plain_and_chat_completions(completions: list[Any]) -> None:
    trainer = Trainer()
    assert trainer.call(math_reward, completions, answer=["5", "5", "5"]) == [1.0, 0.0, 0.0]
    assert trainer.extra == {"math_reward_reason": ["correct", "wrong answer", "no final answer"]}
    assert trainer.metrics == {"math_reward/no_answer": pytest.approx(1 / 3), "math_reward/not_graded": 0.0}
    assert [verdict.answer for verdict in math_reward.last_verdicts] == ["5", "6", None]


def test_what_could_not_be_judged_is_counted_and_kept_for_the_log() -> None:
    def split(text: str) -> str:
        return text.split()[3]  # fails on short completions

    trainer = Trainer()
    reward = WeightedReward([(MathReward(extract=split), 1.0)])
    assert trainer.call(reward, ["it is then 5", "5", "no"], answer=["5"] * 3) == [1.0, 0.0, 0.0]
    assert trainer.metrics["math_reward/not_graded"] == pytest.approx(2 / 3)
    assert trainer.extra["math_reward_reason"][1] == "the grader failed: IndexError: list index out of range"
    assert [verdict.failed for verdict in reward.last_verdicts] == [False, True, True]


def test_without_a_trainer() -> None:
    assert MathReward(column="solution")(completions=PLAIN, solution=[5, 6, 7]) == [1.0, 1.0, 0.0]
    assert ChoiceReward()(None, [r"\boxed{B}"], answer=["B"]) == [1.0]
    assert FormatReward()(None, PLAIN) == [1.0, 1.0, 0.0]


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ValueError, match=r"math_reward needs the column 'answer'.*it has \['solution'\].*column="):
        math_reward(completions=PLAIN, solution=["5"] * 3)
    with pytest.raises(ValueError, match="not a list of as many answers"):
        math_reward(completions=PLAIN, answer="5")
    with pytest.raises(ValueError, match="extract='nowhere' is not known"):
        MathReward(extract="nowhere")


def test_a_grader_that_finds_no_answer_says_what_it_looks_for():
    """The log had `math_reward/no_answer: 1`, and the warning spoke of problems that are too easy or too hard."""
    words = r"math_reward found no answer in any of 2 responses (it looks for \boxed{})"
    with pytest.warns(UserWarning, match=re.escape(words)):
        math_reward(completions=["Answer: 5", "so 6"], answer=["5", "6"])
    with pytest.warns(UserWarning, match=re.escape("(it looks for answers by extract='hash_line')")):
        MathReward(extract="hash_line")(completions=["5"], answer=["5"])
    with warnings.catch_warnings(action="error"):
        math_reward(completions=["Answer: 5", r"\boxed{6}"], answer=["5", "6"])


def test_overlong_reward_counts_the_tokens() -> None:
    trainer = Trainer()
    reward = OverlongReward(SoftOverlong(max_length=30, buffer=20))
    # 10, 20 and 30 tokens: the penalty begins at 10, so 0, 10 / 20 and 20 / 20
    assert trainer.call(reward, PLAIN) == [0.0, -0.5, -1.0]
    assert trainer.metrics == {"overlong_reward/penalised": pytest.approx(2 / 3)}
    with pytest.raises(ValueError, match="pass completion_ids"):
        reward(completions=PLAIN)


def test_weighted_reward_adds_up_and_logs_each_part() -> None:
    trainer = Trainer()

    def shortness(completions: list[Any], **_: Any) -> list[float]:
        return [float(len(completion_text(completion)) < 8) for completion in completions]

    reward = WeightedReward(
        [(MathReward(), 1.0), (FormatReward(), 0.1), (OverlongReward(SoftOverlong(30, 20)), 1.0), (shortness, 0.25)]
    )
    # rows: 1 + 0.1 + 0 + 0;  0 + 0.1 - 0.5 + 0;  0 + 0 - 1 + 0.25 ("no box" has 6 characters, a box has 9)
    assert trainer.call(reward, CHAT, answer=["5"] * 3) == pytest.approx([1.1, -0.4, -0.75])
    assert reward.last_parts == {
        "math_reward": [1.0, 0.0, 0.0],
        "format_reward": [1.0, 1.0, 0.0],
        "overlong_reward": [0.0, -0.5, -1.0],
        "shortness": [0.0, 0.0, 1.0],
    }
    assert trainer.metrics["reward/format_reward"] == pytest.approx(2 / 3)
    assert trainer.metrics["reward/overlong_reward"] == pytest.approx(-0.5)
    assert reward.last_verdicts[1].reason == (
        "math_reward 0 (wrong answer); format_reward 1 (well formed); "
        "overlong_reward -0.5 (overlong: 20 tokens, the penalty begins at 10); shortness 0"
    )
    assert reward.last_verdicts[1].answer == "6"


def test_weighted_reward_refuses_what_cannot_be_told_apart() -> None:
    with pytest.raises(ValueError, match=r"parts=.*give at least one"):
        WeightedReward([])
    with pytest.raises(ValueError, match="same name"):
        WeightedReward([(MathReward(), 1.0), (MathReward(), 2.0)])
    for parts in ([MathReward()], [(MathReward(), float("nan"))]):
        with pytest.raises(ValueError, match="give pairs of a reward function and its weight, a finite number"):
            WeightedReward(parts)
    WeightedReward([(MathReward(), 1.0), (MathReward(name="again"), 2.0)])


def test_rewards_can_be_pickled() -> None:
    reward = WeightedReward([(MathReward(timeout=2.0), 1.0), (ChoiceReward(column="letter"), 0.5)])
    again = pickle.loads(pickle.dumps(reward))
    assert again.names == ["math_reward", "choice_reward"]
    assert again(completions=[r"\boxed{B}"], answer=["B"], letter=["B"]) == [1.5]


def test_completion_text() -> None:
    assert completion_text("x") == "x"
    tools = [
        {"role": "assistant", "content": "a"},
        {"role": "tool", "content": "5"},
        {"role": "assistant", "content": "b"},
    ]
    assert completion_text(tools) == "b"
    assert completion_text([{"role": "assistant", "content": [{"type": "text", "text": "c"}]}]) == "c"
    assert completion_text([{"role": "assistant", "content": None}]) == ""
    with pytest.raises(TypeError, match="text or a list of chat messages, not int"):
        completion_text(5)


def test_trl_still_passes_what_these_functions_take() -> None:
    """A canary on TRL: the names by which GRPOTrainer calls a reward function. Read, not imported: that takes seconds."""
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None:
        pytest.skip("TRL is not installed")
    source = (Path(found.origin).parent / "trainer" / "grpo_trainer.py").read_text(encoding="utf-8")
    for name in ('reward_kwargs["log_extra"]', 'reward_kwargs["log_metric"]', 'reward_kwargs["trainer_state"]'):
        assert name in source
    assert "prompts=prompts, completions=completions, completion_ids=completion_ids_list, **reward_kwargs" in source


@pytest.mark.slow
def test_a_real_trainer_takes_them(tmp_path: Path) -> None:
    """One step of TRL's own GRPOTrainer on a tiny random model, with the weighted reward and its parts logged."""
    trl = pytest.importorskip("trl")
    from tiny_trl import train

    reward = WeightedReward([(MathReward(extract="whole"), 1.0), (OverlongReward(SoftOverlong(8, 4)), 1.0)])
    settings = {"max_steps": 1, "per_device_train_batch_size": 4, "max_completion_length": 8}
    trainer = train(trl.GRPOTrainer, tmp_path, reward, {"answer": ["2"] * 26}, **settings)
    logged = {key: value for row in trainer.state.log_history for key, value in row.items()}
    assert logged["reward/overlong_reward"] == pytest.approx(sum(reward.last_parts["overlong_reward"]) / 4)
    assert "rewards/reward/mean" in logged
    assert len(reward.last_verdicts) == 4
