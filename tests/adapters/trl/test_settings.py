"""The step is right under the options that change what a pass sees: adapters, references, masks, padding, corrections, evaluation."""

import re

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import Qwen3ForCausalLM

from by_hand import Options, assert_as_by_hand, seen_by
from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
from replayed_training import (
    GENERATIONS,
    PROMPTS,
    build,
    fixed_reward,
    make_model,
    parameters_of,
    pretend_vllm,
    rollout,
    settings_of,
    tokenizer,
)

# `test_late.py` and `test_observers.py` check the shapes of the same trainings.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")

UPDATES = "several updates"


def assert_same_run(trainer, model=None, shape=UPDATES, **given):
    return assert_as_by_hand([seen_by(trainer)], trainer.method, shape, model=model, **given)


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"scale_rewards": "batch"}, Options(scale_rewards="batch")),
        ({"scale_rewards": "none"}, Options(scale_rewards="none")),
        ({"mask_truncated_completions": True}, Options(mask_truncated=True)),
        ({"pad_to_multiple_of": 8}, Options()),
        ({"gradient_checkpointing": True}, Options()),
        ({"delta": 1.5}, Options(dual=1.5)),
    ],
    ids=["batch scale", "no scale", "truncated masked", "padded to 8", "checkpointing", "two-sided clip"],
)
@pytest.mark.parametrize("method", ["delta", "dapo-ft"])
def test_settings_of_trl(method, settings, options):
    trainer = build(method, UPDATES, **settings)
    trainer.train()
    hand = assert_same_run(trainer, options=options)
    if options.mask_truncated:
        assert (hand.weights[0].sum(1) == 0).any()
        assert (hand.weights[0].sum(1) > 0).any()


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("delta", "contrast=alignment"),
        ("delta-context", "contrast=both_sides"),
        ("delta-group", "contrast=within_side&gamma=adaptive"),
    ],
)
def test_settings_in_the_name(method, settings):
    """They reach the step: the hand-written one checks its weights against the loops of the reference, in float64."""
    trainer = build(f"{method}?{settings}", "one micro-batch")
    changes = dict(pair.split("=") for pair in settings.split("&"))
    assert {name: getattr(trainer.method.rule, name) for name in changes} == changes
    trainer.train()
    changed = assert_same_run(trainer, shape="one micro-batch").weights[0]
    plain = build(method, "one micro-batch")
    plain.train()
    unchanged = assert_same_run(plain, shape="one micro-batch").weights[0]
    assert (changed - unchanged).abs().max() > 1e-3


@pytest.mark.parametrize("method", ["delta", "delta-group", "fipo", "dapo-ft"])
@pytest.mark.parametrize("padding", [None, 8])
def test_tool_tokens_do_not_count(method, padding):
    trainer = build(method, UPDATES, rollout_func=rollout(tools=True), pad_to_multiple_of=padding)
    trainer.train()
    hand = assert_same_run(trainer)
    first = trainer.generations[0]["rows"]
    assert any(0 in row["written"] for row in first)
    for number, row in enumerate(first):
        told = [place for place, own in enumerate(row["written"]) if not own]
        assert (hand.weights[0][number, told] == 0).all()


def test_importance_correction_of_vllm():
    """The sampler's log-probs correct the loss; the policy's own go into the proxies."""
    trainer = build(
        "delta",
        UPDATES,
        rollout_func=rollout(sampling=True),
        vllm_importance_sampling_mode="token_truncate",
        vllm_importance_sampling_clip_max=1.0,
        vllm_importance_sampling_clip_min=0.1,
    )
    pretend_vllm(trainer)
    trainer.train()
    assert_same_run(trainer, options=Options(importance=(0.1, 1.0)))


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("method", ["delta", "delta-topk"])
def test_lora(method, beta):
    """With a KL term the reference pass runs on the same model, its adapters off: it must not be what was captured."""
    from peft import LoraConfig, get_peft_model

    # Adapters that start at zero would hide the difference between policy and reference.
    config = LoraConfig(r=4, target_modules=["q_proj", "o_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    trainer = build(method, UPDATES, peft_config=config, beta=beta)
    hand_model = get_peft_model(make_model(), config)
    hand_model.load_state_dict(trainer.model.state_dict())
    trainer.train()
    assert_same_run(
        trainer,
        hand_model,
        options=Options(beta=beta, against_loops=method == "delta"),
        reference_model=make_model().eval() if beta else None,
    )


def test_kl_with_a_reference_model(tmp_path):
    make_model(seed=4).save_pretrained(tmp_path)
    trainer = build("delta", UPDATES, model=Qwen3ForCausalLM.from_pretrained(tmp_path), beta=0.3)
    assert trainer.ref_model is not None
    trainer.train()
    assert_same_run(trainer, make_model(seed=4), options=Options(beta=0.3), reference_model=make_model(seed=4).eval())


@pytest.mark.parametrize("method", ["delta", "delta-head", "dapo-ft"])
def test_half_precision(method):
    """bfloat16 states and a float32 head, as under autocast."""
    trainer = build(method, "one micro-batch", bf16=True, cast_lm_head_to_fp32=method == "delta-head")
    trainer.train()
    assert all(np.isfinite(micro["loss"]) for micro in trainer.losses)
    weights = trainer.batches[0].record.weights
    assert weights.dtype == torch.float32
    assert weights.isfinite().all()
    assert weights.std() > 0.01


def test_all_truncated_teaches_nothing():
    trainer = build("delta", UPDATES, rollout_func=rollout(end=False), mask_truncated_completions=True)
    before = parameters_of(trainer)
    with pytest.warns(
        UserWarning, match="no completion of this batch has a token to learn from.*max_completion_length"
    ):
        trainer.train()
    assert all(torch.equal(value, before[name]) for name, value in parameters_of(trainer).items())
    assert all(micro["loss"] == 0 for micro in trainer.losses)


@pytest.mark.parametrize("method", ["delta", "dapo-ft", "fipo"])
def test_evaluation_weighs_nothing(method):
    """Evaluation is TRL's own: no capture, no old log-probs, no time on our clocks."""
    evaluated = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": GENERATIONS}
    trainer = DeltaTrainer(
        model=make_model(),
        reward_funcs=fixed_reward,
        args=DeltaTrainerConfig(method=method, **settings_of("one micro-batch", **evaluated)),
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        eval_dataset=Dataset.from_dict({"prompt": PROMPTS[:2]}),
        processing_class=tokenizer(),
        rollout_func=rollout(),
    )
    seen = []
    trainer.observers.append(lambda batch: seen.append(trainer.model.training))
    trainer.train()
    assert seen == [True, True]
    assert any("eval_loss" in line for line in trainer.state.log_history)
    before = dict(trainer.seconds)
    assert np.isfinite(trainer.evaluate()["eval_loss"])
    assert trainer.seconds == before
    assert seen == [True, True]


@pytest.mark.parametrize(
    ("given", "words", "would_do"),
    [
        # By hand: 128 x 2 = 256 = 2^8 responses; 7 divides per_device x 2 where it divides per_device, and 126 is the nearest to 128.
        (
            {"per_device_train_batch_size": 128, "steps_per_generation": 2, "num_generations": 7},
            "the 256 responses of a rollout batch (per_device_train_batch_size 128 x 2 passes)",
            ({"num_generations": 8}, {"per_device_train_batch_size": 126}),
        ),
        # 6 x 2 = 12 responses: groups of 6 are nearest to 8; 8 divides per_device x 2 where 4 divides per_device: 8 is as near as 4.
        (
            {"per_device_train_batch_size": 6, "steps_per_generation": 2, "num_generations": 8},
            "cannot be divided into groups of 8",
            ({"num_generations": 6}, {"per_device_train_batch_size": 8}),
        ),
        (
            {"per_device_train_batch_size": 4, "generation_batch_size": 20, "num_generations": 8},
            "cannot be divided into groups of 8",
            ({"num_generations": 10}, {"generation_batch_size": 16}),
        ),
    ],
)
def test_groups_that_do_not_fit_a_batch_get_numbers_that_do(given, words, would_do, tmp_path):
    quiet = {"output_dir": str(tmp_path), "use_cpu": True, "bf16": False}
    advised = ", or ".join(f"{name} to {value}" for one in would_do for name, value in one.items())
    with pytest.raises(ValueError, match=re.escape(f"set {advised}")) as refusal:
        DeltaTrainerConfig(**given, **quiet)
    assert words in str(refusal.value)
    for one in would_do:
        DeltaTrainerConfig(**{**given, **one}, **quiet)
