"""What a method costs in forward passes, and that looking at a training does not change it."""

from dataclasses import dataclass

import pytest
import torch
from peft import LoraConfig

from delta_rlvr import TokenRule
from replayed_training import build, make_model, parameters_of, pretend_vllm, rollout
from rounding import MODEL, rounding

# `test_late.py` and `test_observers.py` check the shapes of the same trainings.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


@dataclass(frozen=True)
class Evens(TokenRule):
    """Reads tokens and groups: nothing that a pass could tell."""

    needs = ("tokens", "groups")

    def weigh(self, batch):
        return 1.0 + ((batch.tokens + batch.groups[batch.row]) % 2)


def passes_of(method, shape, *, vllm=False, **settings):
    """(forwards with a gradient, forwards without) of a training; and the trainer."""
    trainer = build(method, shape, rollout_func=rollout(sampling=True), **settings)
    if vllm:
        pretend_vllm(trainer)
    forwards = []
    trainer.model.register_forward_hook(lambda *_: forwards.append(torch.is_grad_enabled()))
    trainer.train()
    return (forwards.count(True), forwards.count(False)), trainer


# Two rollout batches each. A pass of its own goes over a batch in as many forwards as the batch has micro-batches.
SKIPPED, SHARED, KEPT = "one micro-batch", "accumulation 4", "several updates"


@pytest.mark.parametrize(
    ("method", "shape", "settings", "added"),
    [
        # One forward covers the rollout batch: nothing is added, whatever the rule reads.
        ("delta", SKIPPED, {}, 0),
        ("delta-topk", SKIPPED, {}, 0),
        ("delta-scalar", SKIPPED, {}, 0),
        ("dapo", SKIPPED, {}, 0),
        # Several do: a rule that reads the policy has a pass of its own, the others have none.
        ("delta", SHARED, {}, 8),
        ("delta-scalar", SHARED, {}, 8),
        ("delta-scalar", SHARED, {"logps_from": "sampler"}, 0),
        ("delta", SHARED, {"logps_from": "sampler"}, 8),
        ("entropy", SHARED, {"logps_from": "sampler"}, 8),
        ("dapo", SHARED, {}, 0),
        ("grpo", SHARED, {}, 0),
        ("sapo", SHARED, {}, 0),
        ("fipo", SHARED, {}, 0),
        (Evens(), SHARED, {}, 0),
        # A comparison asks for equal work.
        ("delta", SKIPPED, {"equal_work": True}, 2),
        ("dapo", SKIPPED, {"equal_work": True}, 2),
        ("dapo", SHARED, {"equal_work": True}, 8),
        # TRL runs the pass anyway: nothing is added.
        ("delta", KEPT, {}, 0),
        ("dapo", KEPT, {"equal_work": True}, 0),
        ("delta", SKIPPED, {"vllm": True}, 0),
        ("delta", SHARED, {"vllm": True}, 0),
    ],
)
def test_forward_passes_that_are_added_to_trls(method, shape, settings, added):
    ours, trainer = passes_of(method, shape, **settings)
    stock = {"vllm": settings.get("vllm", False)}
    theirs, _ = passes_of(method, shape, stock=True, loss_type=trainer.args.loss_type, **stock)
    assert ours == (theirs[0], theirs[1] + added)


def test_a_rule_that_reads_only_tokens_and_groups():
    trainer = build(Evens(), SHARED)
    trainer.train()
    assert trainer.seconds["logps"] == 0
    for batch in trainer.batches:
        assert batch.logps is None
        assert batch.entropy is None
        assert batch.record.store_bytes == 0
        expected = 1.0 + (batch.completion_ids + batch.groups[:, None])[batch.mask] % 2
        assert torch.equal(batch.record.weights, expected)
    assert trainer._buffered_inputs[0]["advantages"].dim() == 2


# ------------------------------------------------------------------ looking does not change training


def dropping(**settings):
    """A model with dropout, and a training that goes as far as the clip where it can."""
    lora = LoraConfig(
        r=4, lora_dropout=0.1, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False
    )
    return build(model=make_model(attention_dropout=0.2), peft_config=lora, **settings)


@pytest.mark.parametrize("shape", [SKIPPED, SHARED, KEPT, "several generations a step"])
@pytest.mark.parametrize("looks", ["never", "always", "equal work"])
def test_dapo_is_trls_own_bit_for_bit(shape, looks):
    stock = dropping(stock=True, shape=shape, loss_type="dapo", epsilon_high=0.28)
    stock.train()
    ours = dropping(method="dapo", shape=shape, equal_work=looks == "equal work")
    ours.looks_closely = lambda step: looks == "always"
    ours.train()
    assert ours.losses == stock.losses
    expected = parameters_of(stock)
    for name, value in parameters_of(ours).items():
        assert torch.equal(value, expected[name]), name
    assert all(len(batch.others) == (4 if looks == "always" else 0) for batch in ours.batches)


@pytest.mark.parametrize("shape", [SKIPPED, SHARED, KEPT])
def test_looking_at_delta_does_not_change_it(shape):
    runs = []
    for closely in (False, True):
        trainer = dropping(method="delta", shape=shape)
        trainer.looks_closely = lambda step, closely=closely: closely
        trainer.train()
        runs.append(trainer)
    assert runs[0].losses == runs[1].losses
    expected = parameters_of(runs[0])
    assert all(torch.equal(value, expected[name]) for name, value in parameters_of(runs[1]).items())


@pytest.mark.parametrize("shape", [SKIPPED, SHARED])
def test_with_dropout_the_ratio_is_one_where_trls_is(shape):
    """TRL takes the new log-probs for the old ones there. Old ones from another dropout mask would clip tokens of the first update."""
    trainer = dropping(method="delta", shape=shape, logging_steps=1)
    trainer.train()
    assert all("old_per_token_logps" not in inputs for inputs in trainer._buffered_inputs)
    clipped = [line["clip_ratio/region_mean"] for line in trainer.state.log_history if "loss" in line]
    assert clipped == [0.0, 0.0]
    # With a ratio of one the loss of a batch is known from its weights: - sum of lambda A / N.
    accumulation = trainer.args.gradient_accumulation_steps
    for number, batch in enumerate(trainer.batches):
        weighted = batch.record.padded(batch.record.weights, batch.mask) * batch.advantages[:, None]
        losses = [micro["loss"] for micro in trainer.losses[number * accumulation : (number + 1) * accumulation]]
        assert sum(losses) == pytest.approx(-weighted.sum().item() / batch.mask.sum().item(), abs=rounding(MODEL))


@pytest.mark.parametrize("shape", [SKIPPED, SHARED, KEPT])
def test_a_flat_range_with_dropout_is_trls_dapo_bit_for_bit(shape):
    """The capture and the solve run, a pass of their own included, and leave no trace in the training."""
    stock = dropping(stock=True, shape=shape, loss_type="dapo", epsilon_high=0.28)
    stock.train()
    ours = dropping(method="delta?lambda_min=1&lambda_max=1", shape=shape)
    ours.train()
    # It was not short-circuited: states of every token waited in the store, and every batch was solved.
    width = ours.model.config.hidden_size
    for batch in ours.batches:
        assert batch.record.store_bytes == 4 * width * int(batch.mask.sum())
        assert batch.record.discriminator is not None
        assert (batch.record.weights == 1).all()
    assert ours.losses == stock.losses
    expected = parameters_of(stock)
    assert all(torch.equal(value, expected[name]) for name, value in parameters_of(ours).items())


@pytest.mark.parametrize("shape", [SKIPPED, SHARED, KEPT])
def test_rollouts_and_rewards_see_the_real_number_of_iterations(shape):
    seen = []
    generate = rollout()

    def watching(prompts, trainer):
        seen.append(trainer.num_iterations)
        return generate(prompts, trainer)

    trainer = build("delta", shape, rollout_func=watching)

    def reward(completion_ids, **_):
        seen.append(trainer.num_iterations)
        return [float(sum(tokens) % 3) for tokens in completion_ids]

    trainer.reward_funcs = [reward]
    trainer.train()
    assert seen == [trainer.args.num_iterations] * 4
    assert trainer.num_iterations == trainer.args.num_iterations
