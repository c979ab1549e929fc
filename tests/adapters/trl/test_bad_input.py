"""Bad input is refused in words, at the start where that is possible."""

import json
import math
import warnings

import pytest
import torch
import transformers
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
from delta_rlvr.credit import Delta
from delta_rlvr.models.load import load_policy
from replayed_training import build, make_model, parameters_of, rollout, settings_of


def config(**settings):
    return DeltaTrainerConfig(**settings_of("one micro-batch"), **settings)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_an_infinite_reward_names_function_and_row(value):
    def broken(completion_ids, **_):
        return [0.0] * 5 + [value] + [1.0] * (len(completion_ids) - 6)

    trainer = build("delta", reward=broken)
    with pytest.raises(ValueError, match=rf"rewards: 'broken' gave {value} for response 5 of the batch"):
        trainer.train()


@pytest.mark.parametrize("missing", [None, math.nan])
def test_responses_that_nobody_could_score_have_no_advantage(missing):
    def sometimes(completion_ids, **_):
        return [missing if number % 5 == 0 else float(tokens[0] % 2) for number, tokens in enumerate(completion_ids)]

    trainer = build("delta", reward=sometimes)
    trainer.train()
    for batch in trainer.batches:
        unscored = torch.arange(len(batch.rewards)) % 5 == 0
        assert (batch.advantages[unscored] == 0).all()
        assert (batch.advantages[~unscored] != 0).any()
        assert torch.equal(batch.rewards.isnan(), unscored)
    assert all(math.isfinite(micro["loss"]) for micro in trainer.losses)
    assert all(value.isfinite().all() for value in parameters_of(trainer).values())


def test_all_rewards_missing():
    trainer = build("delta", reward=lambda prompts, **_: [None] * len(prompts))
    before = parameters_of(trainer)
    with pytest.warns(UserWarning, match="no contrast to learn from"):
        trainer.train()
    assert all(torch.equal(value, before[name]) for name, value in parameters_of(trainer).items())


@pytest.mark.parametrize(("trainer", "warned"), [(GRPOTrainer, True), (DeltaTrainer, False)])
def test_a_trainer_that_is_not_ours_does_not_take_the_method_in_silence(trainer, warned):
    model, tokenizer = load_policy("builtin")
    made = trainer(
        model=model,
        reward_funcs=lambda completions, **_: [float(len(text)) for text in completions],
        args=config(method="delta"),
        train_dataset=Dataset.from_dict({"prompt": ["1 + 1 = "] * 8}),
        processing_class=tokenizer,
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made.train()
    about = [str(one.message) for one in said if "DeltaTrainer in the place of GRPOTrainer" in str(one.message)]
    assert len(about) == warned
    assert all("method='delta'" in one for one in about)


def test_the_config_has_to_be_ours():
    with pytest.raises(TypeError, match=r"DeltaTrainer needs a DeltaTrainerConfig, not GRPOConfig"):
        DeltaTrainer(make_model(), lambda **_: [], GRPOConfig(**settings_of("one micro-batch")))


def test_unknown_method():
    with pytest.raises(ValueError, match=r"unknown method 'delta-topp'; did you mean 'delta-topk'\?"):
        config(method="delta-topp")


@pytest.mark.parametrize(
    ("method", "loss_type"), [("grpo", "dapo"), ("sapo", "grpo"), ("fipo", "cispo"), ("fipo", "grpo")]
)
def test_a_loss_that_contradicts_the_method(method, loss_type):
    with pytest.raises(ValueError, match=rf"loss_type='{loss_type}': method '{method}' is defined with"):
        config(method=method, loss_type=loss_type)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"show_methods": "delta,dleta"}, "did you mean 'delta'"),
        ({"method": 3}, "give a name, a rule or a Method, not int"),
        ({"store_device_gb": -1.0}, "store_device_gb=-1.0: give 0 or more"),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        config(**settings)


def test_what_the_config_makes_of_a_method():
    for method, loss_type, high, two_sided in (
        ("grpo", "grpo", None, None),
        ("dapo", "dapo", 0.28, None),
        ("delta", "dapo", 0.28, None),
        ("sapo", "sapo", None, None),
        ("fipo", "dapo", 0.28, 10.0),
    ):
        made = config(method=method)
        assert (made.loss_type, made.epsilon_high, made.delta) == (loss_type, high, two_sided)
    assert config(epsilon_high=0.5).epsilon_high == 0.5
    assert config(delta=2.0).delta == 2.0  # TRL's two-sided clip, beside the method of that name
    assert config(delta=2.0).method == "delta"
    assert config(method="sapo", sapo_temperature_neg=1.5).sapo_temperature_neg == 1.5
    assert config(loss_type="cispo").epsilon_high is None  # there it is the largest ratio: TRL's to default


def test_a_method_may_be_spelled_or_given_as_a_rule():
    rule = Delta(0.5, 1.5, refinements=3, proxy="topk_hidden", top_k=7, scope="group")
    spec = "delta?lambda_min=0.5&lambda_max=1.5&refinements=3&proxy=topk_hidden&top_k=7&scope=group"
    assert config(method=spec).resolved_method.rule == rule
    given = config(method=rule)
    assert given.resolved_method.rule == rule
    # What files keep of it is how it is spelled, which gives the same rule again.
    assert config(method=json.loads(given.to_json_string())["method"]).resolved_method.rule == rule


def test_heads_whose_gradient_is_not_the_one_we_know():
    shape = {
        "vocab_size": 585,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 1,
    }
    capped = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**shape, final_logit_softcapping=30.0))
    with pytest.raises(
        ValueError, match=r"'delta-topk' needs the LM head's gradient.*caps its logits.*proxy='output_row'"
    ):
        build("delta-topk", model=capped)
    build("delta", model=capped).train()

    biased = make_model()
    biased.lm_head = torch.nn.Linear(32, 585, bias=True)
    with pytest.raises(ValueError, match="adds a bias to its logits"):
        build("delta-head", model=biased)


def test_a_completion_of_nothing_but_its_end():
    """All responses are the same single token: nothing to tell apart, nothing to crash on."""
    generate = rollout()

    def empty(prompts, trainer):
        return {**generate(prompts, trainer), "completion_ids": [[1] for _ in prompts]}

    trainer = build(
        "delta", rollout_func=empty, reward=lambda prompts, **_: [float(n % 2) for n in range(len(prompts))]
    )
    trainer.train()
    assert all(math.isfinite(micro["loss"]) for micro in trainer.losses)


def test_a_completion_without_a_token_is_named():
    generate = rollout()

    def empty(prompts, trainer):
        output = generate(prompts, trainer)
        output["completion_ids"][3] = []
        return output

    with pytest.raises(ValueError, match="rollout_func gave no token for response 3"):
        build("delta", rollout_func=empty).train()


def test_states_that_are_not_finite_are_named():
    model = make_model()
    trainer = build("delta", model=model)
    with torch.no_grad():
        model.model.norm.weight[0] = math.nan
    with pytest.raises(ValueError, match="not finite"):
        trainer.train()


def test_a_store_without_room_says_what_to_do():
    """On a CPU there is no second place: the message tells which budget to raise."""
    with pytest.raises(ValueError, match="the store has no room"):
        build("delta", store_device_gb=0.0).train()
