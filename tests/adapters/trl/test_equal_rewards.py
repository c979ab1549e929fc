"""A group whose rewards are equal has no signal, whatever TRL's rounding makes of its advantages; and the loss stays TRL's."""

import pytest
import torch

from replayed_training import GENERATIONS, build, fixed_reward


def constant(value):
    def reward(completion_ids, **_):
        return [value] * len(completion_ids)

    return reward


def in_two_halves(completion_ids, **_):
    """With the constants and weights below, every sum is 0.3 but for the last digit."""
    return [0.1 if number % 2 else 0.2 for number in range(len(completion_ids))]


def the_other_half(completion_ids, **_):
    return [0.2 if number % 2 else 0.1 for number in range(len(completion_ids))]


EQUAL = {
    "0.3": (constant(0.3), {}),
    "0.1": (constant(0.1), {}),
    "weighted": (constant(1.0), {"reward_weights": [0.3]}),
    "several": ([constant(0.1), constant(0.7)], {"reward_weights": [1.0, 0.3]}),
    "equal sums": ([in_two_halves, the_other_half], {}),
    "batch scale": (constant(0.3), {"scale_rewards": "batch"}),
    "each normalized": ([constant(0.1), constant(0.7)], {"multi_objective_aggregation": "normalize_then_sum"}),
}


@pytest.mark.parametrize(("reward", "settings"), EQUAL.values(), ids=EQUAL.keys())
def test_no_side_no_weight_and_no_signal(reward, settings):
    settings = {"all_credit_metrics": True, **settings}
    trainer = build("delta", reward=reward, max_steps=1, logging_steps=1, **settings)
    trainer.train()
    (batch,) = trainer.batches
    assert not batch.advantages.any()
    assert not batch.record.side.any()
    assert torch.equal(batch.record.weights, torch.ones_like(batch.record.weights))
    (line,) = [line for line in trainer.state.log_history if "credit/signal_groups" in line]
    assert line["credit/signal_groups"] == 0
    assert line["credit/zero_advantage"] == 1


def test_functions_that_differ_are_a_signal_where_each_is_normalized():
    """Their sum is the same for all responses; TRL compares them one by one."""
    settings = {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, 0.5]}
    trainer = build("delta", reward=[in_two_halves, the_other_half], max_steps=1, logging_steps=1, **settings)
    trainer.train()
    assert trainer.batches[0].advantages.all()
    assert trainer.state.log_history[0]["credit/signal_groups"] == 1


def mixed_and_constant(prompts, completion_ids, **_):
    """The third group's rewards are all 0.3, the others' differ."""
    rewards = fixed_reward(prompts, completion_ids)
    return [0.3 if prompt.endswith("!") else one for prompt, one in zip(prompts, rewards, strict=True)]


@pytest.mark.parametrize("shape", ["one micro-batch", "several updates"])
def test_the_third_group_alone_has_no_side(shape):
    """In the forward that is captured (late) and in TRL's own pass."""
    trainer = build("delta", shape, reward=mixed_and_constant, logging_steps=1)
    trainer.train()
    for batch in trainer.batches:
        flat = batch.groups == 2
        assert batch.rewards[flat].tolist() == pytest.approx([0.3] * GENERATIONS)
        assert not batch.advantages[flat].any()
        assert batch.advantages[~flat].all()
    lines = [line for line in trainer.state.log_history if "credit/signal_groups" in line]
    assert [line["credit/signal_groups"] for line in lines] == pytest.approx([2 / 3] * len(lines))
    # TRL's own advantages of that group are not 0, so that the test would see them.
    assert any(trainer._logs["advantages"][index] for index in range(2 * GENERATIONS, 3 * GENERATIONS))


def advantages_of_the_loss(trainer):
    """What the loss multiplies each response's tokens by, after a run of one step."""
    seen = {}
    compute_loss = trainer._compute_loss

    def watch(model, inputs):
        loss = compute_loss(model, inputs)
        for tokens, advantage in zip(inputs["completion_ids"], inputs["advantages"], strict=True):
            seen[tuple(tokens.tolist())] = advantage.unique().tolist()
        return loss

    trainer._compute_loss = watch
    trainer.train()
    return seen


@pytest.mark.parametrize("method", ["dapo", "grpo"])
def test_the_loss_keeps_trls_advantages_bit_for_bit(method):
    settings = {"shape": "several updates", "reward": mixed_and_constant, "max_steps": 1}
    ours = advantages_of_the_loss(build(method, **settings))
    stock = advantages_of_the_loss(build(stock=True, **settings))
    assert any(0 < abs(advantages[0]) < 1e-3 for advantages in stock.values())  # 0.3 less its mean
    assert ours == stock
