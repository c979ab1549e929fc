"""Weights that are solved for inside the training forward are those of a pass of their own, and so is everything after them.

`equal_work=True` runs the pass where the late way would do without: the two runs must be the same. Rows stand in another order in the
two forwards, so that matrix products may round differently: 1e-6 is a few of float32's last bits at the size of these numbers.
"""

import pytest
import torch

from replayed_training import build, parameters_of, rollout
from rounding import MODEL, rounding

LATE = "one micro-batch"
CLOSE = {"atol": 1e-6, "rtol": 0}


def both(method, shape=LATE, closely=False, tools=False, **settings):
    """The same training with weights solved late, and with a pass of their own."""
    trained = []
    for equal_work in (False, True):
        trainer = build(method, shape, equal_work=equal_work, rollout_func=rollout(tools=tools), **settings)
        trainer.looks_closely = lambda step: closely
        passes = []
        score = trainer._get_per_token_logps_and_entropies

        def count(model, *args, score=score, passes=passes, **kwargs):
            passes.append(torch.is_grad_enabled())
            return score(model, *args, **kwargs)

        trainer._get_per_token_logps_and_entropies = count
        trainer.train()
        references = bool(settings.get("beta"))
        assert passes.count(False) == (equal_work + references) * len(trainer.batches)
        trained.append(trainer)
    return trained


def assert_same(late, early):
    assert [g["rows"] for g in late.generations] == [g["rows"] for g in early.generations]
    assert len(late.batches) == len(early.batches) == len(late.generations)
    for mine, theirs in zip(late.batches, early.batches, strict=True):
        torch.testing.assert_close(mine.record.weights, theirs.record.weights, **CLOSE)
        # What observers see of a response is of that response, in the order in which it was generated.
        for name in ("groups", "completion_ids", "mask", "rewards", "advantages", "prompt_ids"):
            assert torch.equal(getattr(mine, name), getattr(theirs, name)), name
        assert mine.rows == theirs.rows
        if mine.logps is not None:
            torch.testing.assert_close(mine.logps[mine.mask], theirs.logps[theirs.mask], **CLOSE)
        torch.testing.assert_close(mine.vocabulary, theirs.vocabulary, **CLOSE)
    losses = [[micro["loss"] for micro in trainer.losses] for trainer in (late, early)]
    assert losses[0] == pytest.approx(losses[1], abs=rounding(MODEL))
    expected = parameters_of(early)
    for name, value in parameters_of(late).items():
        torch.testing.assert_close(value, expected[name], **CLOSE, msg=name)


PROXIES = ("output_row", "topk_hidden", "head", "sharpness", "scalar", "centred_row")


@pytest.mark.parametrize("scope", ["batch", "group"])
@pytest.mark.parametrize("proxy", PROXIES)
def test_every_proxy_and_scope(proxy, scope):
    late, early = both(f"delta?proxy={proxy}&scope={scope}")
    assert_same(late, early)
    assert all(batch.record.weights.std() > 0.01 for batch in late.batches)


@pytest.mark.parametrize(
    ("method", "looks"),
    [
        ("delta-random", True),
        ("delta-random50", True),
        ("delta-random", False),
        ("delta-top50", False),
        ("dapo-ft", False),
    ],
)
def test_rules_that_draw_or_choose(method, looks):
    """A response's draws are its own, wherever the shuffle put it. (Draws need no pass; looking closely makes one.)"""
    late, early = both(method, closely=looks)
    assert (late.batches[0].logps is None) == (method == "delta-random" and not looks)
    assert_same(late, early)


def test_several_generations_a_step():
    """Each generation is one micro-batch of the step, and is solved for in its own forward."""
    late, early = both("delta-group", "several generations a step")
    assert len(late.batches) == 8
    assert_same(late, early)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("delta-topk", {"tools": True}),
        ("delta", {"mask_truncated_completions": True}),
        ("delta-topk", {"pad_to_multiple_of": 8}),
        ("delta", {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}),
        ("delta-topk", {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}),
        ("delta", {"bf16": True}),
        ("delta", {"loss_type": "grpo", "importance_sampling_level": "sequence"}),
    ],
    ids=["tools", "truncated", "padded", "checkpointing", "reentrant", "bf16", "sequence level"],
)
def test_settings_of_trl(method, settings):
    late, early = both(method, **settings)
    assert_same(late, early)
    if "tools" in settings:
        assert any(0 in row["written"] for row in late.generations[0]["rows"])


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_lora(beta, checkpointing):
    """With a KL term the reference pass runs on the same model before the training forward: it must not be what is captured."""
    from peft import LoraConfig

    # Adapters that start at zero would hide the difference between policy and reference.
    config = LoraConfig(r=4, target_modules=["q_proj", "o_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    late, early = both("delta", peft_config=config, beta=beta, gradient_checkpointing=checkpointing)
    assert_same(late, early)


def test_the_weights_of_other_methods():
    late, early = both("dapo", closely=True)
    assert_same(late, early)
    for mine, theirs in zip(late.batches, early.batches, strict=True):
        assert list(mine.others) == list(theirs.others) == ["delta", "delta-group", "delta-within-side", "dapo-ft"]
        for name, weights in mine.others.items():
            torch.testing.assert_close(weights, theirs.others[name], **CLOSE, msg=name)
            assert weights.std() > 1e-3  # a thousand times what the two may differ by
        torch.testing.assert_close(mine.entropy[mine.mask], theirs.entropy[theirs.mask], **CLOSE)


def test_no_token_to_learn_from():
    """A batch without one is not solved for, and the next is."""
    rounds = []
    whole, cut = rollout(), rollout(end=False)

    def first_cut(prompts, trainer):
        rounds.append(None)
        return (cut if len(rounds) == 1 else whole)(prompts, trainer)

    trainer = build("delta", LATE, rollout_func=first_cut, mask_truncated_completions=True)
    before = parameters_of(trainer)
    with pytest.warns(UserWarning, match="no completion of this batch has a token to learn from"):
        trainer.train()
    assert len(trainer.batches) == 1
    assert trainer.losses[0]["loss"] == 0
    assert not all(torch.equal(value, before[name]) for name, value in parameters_of(trainer).items())
