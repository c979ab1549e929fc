"""What GRPOTrainer takes, DeltaTrainer takes: no arguments, streamed data, its clips and losses, prompts of an environment."""

import inspect
from pathlib import Path

import pytest
import torch
import trl.trainer.grpo_trainer
from datasets import Dataset, IterableDataset
from trl import GRPOConfig, GRPOTrainer

from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
from delta_rlvr.adapters.trl.config import LOSSES
from delta_rlvr.adapters.trl.run_folder import RunFolderCallback
from delta_rlvr.runs import RunDescription, RunWriter, read_run
from replayed_training import (
    GENERATIONS,
    PROMPTS,
    RecordedDelta,
    build,
    config,
    fixed_reward,
    make_model,
    parameters_of,
    rollout,
    settings_of,
    tokenizer,
)

# `test_late.py` and `test_observers.py` check the shapes of the same trainings.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def test_without_arguments_it_has_trls_defaults(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    model = make_model()
    model.config._name_or_path = "somebody/small-model"
    # TRL's default is bf16 on a GPU.
    monkeypatch.setattr("transformers.training_args.is_torch_bf16_gpu_available", lambda: True)
    made = {}
    for kind in (GRPOTrainer, DeltaTrainer):
        made[kind] = kind(
            model=model,
            reward_funcs=fixed_reward,
            train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
            processing_class=tokenizer(),
        ).args
    ours, theirs = made[DeltaTrainer], made[GRPOTrainer]
    assert isinstance(ours, DeltaTrainerConfig)
    assert ours.method == "delta"
    assert (theirs.output_dir, ours.output_dir) == ("small-model-GRPO", "small-model-DelTA")
    # The filter would log the mean of other steps in the place of a loss that is NaN.
    different = {"output_dir", "logging_dir", "epsilon_high", "logging_nan_inf_filter"}
    same = set(GRPOConfig.__dataclass_fields__) - different
    assert {name: getattr(ours, name) for name in same} == {name: getattr(theirs, name) for name in same}


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        ({}, 0.2, 0.28),
        ({"epsilon": 0.4}, 0.4, 0.4),
        ({"epsilon": 0.2}, 0.2, 0.2),
        ({"epsilon_high": 0.3}, 0.2, 0.3),
        ({"epsilon": 0.1, "epsilon_high": 0.3}, 0.1, 0.3),
        ({"method": "grpo"}, 0.2, 0.2),
        ({"method": "sapo"}, 0.2, 0.2),
    ],
)
def test_an_epsilon_alone_is_trls_symmetric_clip(given, low, high):
    trainer = build(given.pop("method", "delta"), **given)
    assert (trainer.epsilon_low, trainer.epsilon_high) == (low, high)


# ------------------------------------------------------------------ losses


def test_the_losses_are_all_that_trl_has():
    source = inspect.getsource(trl.trainer.grpo_trainer)
    written = {name for name in LOSSES if f'"{name}"' in source}
    assert written == set(LOSSES)
    documented = GRPOConfig.__dataclass_fields__["loss_type"].metadata["help"]
    named = {name for name in documented.replace("'", " ").replace("`", " ").split() if name in LOSSES}
    assert named == set(LOSSES)
    with pytest.raises(ValueError, match="loss_type='nonsense': choose one of dapo, grpo"):
        config(loss_type="nonsense")


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("loss_type", LOSSES)
def test_every_loss_takes_a_weight_per_token(loss_type, level):
    """A token's loss is proportional to its advantage, and the losses of tokens add up: weighing the one is weighing the other.

    Ratios are away from one, so that clips, gates and sequence weights have something to do.
    """
    extra = {"epsilon_high": 5.0} if loss_type == "cispo" else {}
    settings = {"loss_type": loss_type, "importance_sampling_level": level, **extra}
    trainer = build(stock=True, shape="several updates", max_steps=1, **settings)
    trainer.train()
    inputs = dict(trainer._buffered_inputs[0])
    mask = inputs["completion_mask"].bool()
    torch.manual_seed(0)
    inputs["old_per_token_logps"] = inputs["old_per_token_logps"] + 0.3 * torch.randn(mask.shape)
    weights = torch.rand(mask.shape) + 0.5

    def gradient(advantages):
        trainer.model.zero_grad()
        loss = trainer._compute_loss(trainer.model, {**inputs, "advantages": advantages})
        loss.backward()
        grads = [value.grad.flatten() for value in trainer.model.parameters() if value.grad is not None]
        return torch.cat([loss.detach()[None], *grads])

    plain = inputs["advantages"][:, None] * mask
    whole = gradient(plain * weights)
    # Token by token: its loss alone, then times its weight.
    by_token = sum(
        weights[row, place] * gradient(plain * one_token(mask.shape, row, place))
        for row, place in mask.nonzero().tolist()
    )
    # Sums of 30 gradients of size one in another order.
    torch.testing.assert_close(whole, by_token, atol=2e-6 * max(1, whole.abs().max().item()), rtol=0)
    assert whole.abs().max() > 1e-3


def one_token(shape, row, place):
    chosen = torch.zeros(shape)
    chosen[row, place] = 1.0
    return chosen


@pytest.mark.parametrize("loss_type", LOSSES)
def test_delta_trains_with_every_loss(loss_type):
    trainer = build("delta", "accumulation 4", loss_type=loss_type)
    before = parameters_of(trainer)
    trainer.train()
    assert trainer.args.loss_type == loss_type
    assert trainer._buffered_inputs[0]["advantages"].dim() == 2
    assert any(not torch.equal(value, before[name]) for name, value in parameters_of(trainer).items())


# ------------------------------------------------------------------ data


def test_streamed_data(tmp_path):
    """It has no length: training goes on, and says what cannot be promised."""

    def rows():
        for prompt in PROMPTS * 4:
            yield {"prompt": prompt}

    def train(data):
        settings = settings_of("several updates", output_dir=str(tmp_path / type(data).__name__))
        trainer = RecordedDelta(
            model=make_model(),
            reward_funcs=fixed_reward,
            args=DeltaTrainerConfig(**{**settings, "save_strategy": "steps", "save_steps": 1}),
            train_dataset=data,
            processing_class=tokenizer(),
            rollout_func=rollout(),
        )
        trainer.train()
        return trainer

    with pytest.warns(UserWarning, match=r"training data has no length .*exact resume"):
        streamed = train(IterableDataset.from_generator(rows))
    assert streamed.losses == train(Dataset.from_list(list(rows()))).losses
    assert streamed.planned_steps == 5
    # Saves wait for the end of a rollout batch here too.
    saved = sorted(path.name for path in Path(streamed.args.output_dir).glob("checkpoint-*"))
    assert saved == ["checkpoint-4", "checkpoint-5"]


class Riddle:
    """An environment that writes its own prompts."""

    asked = 0

    def reset(self, **_):
        Riddle.asked += 1
        return f"Riddle {Riddle.asked % 3}"


@pytest.mark.parametrize("shape", ["one micro-batch", "accumulation 4"])
def test_a_run_folder_with_prompts_of_an_environment(tmp_path, shape):
    """Rows of the data have no `prompt` then; what is written is what the policy read."""
    generate = rollout()

    def answer(prompts, trainer):
        texts = [prompt[-1]["content"] for prompt in prompts]
        assert all(text.startswith("Riddle") for text in texts)
        return generate(texts, trainer)

    trainer = build(
        "delta",
        shape,
        max_steps=1,
        rollout_func=answer,
        reward=lambda completion_ids, **_: [float(sum(tokens) % 3) for tokens in completion_ids],
    )
    # What `environment_factory=Riddle` sets, without a chat template for tools, which it asks for and this does not use.
    trainer.environment_factories, trainer._multi_environment = {None: Riddle}, False
    trainer._environment_pool = {None: []}
    trainer.train_dataset = Dataset.from_dict({"level": list(range(24))})
    description = RunDescription(engine="trl", method="delta", seed=1, model="small", task="riddles")
    with RunWriter.create(str(tmp_path / "run"), description) as writer:
        RunFolderCallback(writer, rollout_groups=0).attach(trainer)
        trainer.train()
    lines = read_run(tmp_path / "run").rollouts(1)
    assert len(lines) == 3 * GENERATIONS
    read = [tokenizer().decode(row["prompt_ids"]) for row in trainer.generations[0]["rows"]]
    assert [line["prompt"] for line in lines] == read
    assert len(set(read)) == 3
