"""Every internal of TRL and of transformers that resume relies on. When one of these fails after an upgrade, look at resume.py,
and at `ends_batch`, `planned_steps` and `load_weights` of the trainer."""

import inspect
import io

import pytest
import torch
from transformers import (
    DefaultFlowCallback,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
)
from transformers.trainer_utils import SaveStrategy
from trl.trainer.utils import RepeatSampler

from delta_rlvr.adapters.trl.resume import ExactResume, _sampler
from replayed_training import PROMPTS, build, make_model, parameters_of


def orders(sampler, epochs):
    return [list(sampler) for _ in range(epochs)]


def test_an_epochs_order_is_one_permutation_from_the_samplers_generator():
    """So that drawing as many permutations as epochs have passed finds the next one's order."""
    settings = {"mini_repeat_count": 2, "batch_size": 3, "repeat_count": 2, "shuffle": True, "seed": 5}
    first, second, third = orders(RepeatSampler(range(10), **settings), 3)
    assert first != second != third
    later = RepeatSampler(range(10), **settings)
    assert later.num_samples == 10
    for _ in range(2):
        torch.randperm(later.num_samples, generator=later.generator)
    assert list(later) == third
    still = RepeatSampler(range(10), **{**settings, "shuffle": False})
    assert still.shuffle is False
    assert orders(still, 2) == [list(still)] * 2


def test_the_sampler_is_found_in_the_loader_that_callbacks_get():
    """And the epoch is drawn from it only after `on_train_begin`."""
    seen = {}

    class Watch(TrainerCallback):
        def on_train_begin(self, args, state, control, train_dataloader=None, **_):
            seen["loader"], seen["sampler"] = train_dataloader, _sampler(train_dataloader)
            seen["fresh"] = torch.Generator().manual_seed(args.seed).get_state()
            seen["state"] = seen["sampler"].generator.get_state()

    trainer = build("dapo", shuffle_dataset=True, max_steps=1)
    trainer.add_callback(Watch())
    trainer.train()
    assert isinstance(seen["sampler"], RepeatSampler)
    assert torch.equal(seen["state"], seen["fresh"])
    assert not torch.equal(seen["sampler"].generator.get_state(), seen["fresh"])
    assert trainer.callback_handler.train_dataloader is seen["loader"]


@pytest.mark.parametrize("shape", ["one micro-batch", "accumulation 4", "several updates"])
def test_trl_generates_when_a_batch_has_had_its_passes(shape):
    trainer = build("dapo", shape)
    trainer.train()
    every = trainer.passes_per_batch
    assert [generation["at"] for generation in trainer.generations] == list(range(0, trainer._step, every))
    assert trainer._step == len(trainer.losses)


@pytest.mark.parametrize(("accumulation", "updates"), [(1, 16), (3, 6)])
def test_updates_of_an_epoch(accumulation, updates):
    """An epoch's last step takes the passes that are left: 16 passes are 6 steps of 3."""
    trainer = build(
        "dapo",
        per_device_train_batch_size=12,
        gradient_accumulation_steps=accumulation,
        steps_per_generation=2,
        max_steps=-1,
        num_train_epochs=2,
    )
    loader = trainer.get_train_dataloader()
    assert len(loader) == 16
    assert trainer.set_initial_training_values(trainer.args, loader)[1] == updates
    assert trainer.planned_steps == 2 * updates


def test_saves_are_decided_before_ours_is_asked_and_made_after():
    trainer = build("dapo", max_steps=2, save_strategy="steps", save_steps=5)
    kinds = [type(callback) for callback in trainer.callback_handler.callbacks]
    assert kinds.index(DefaultFlowCallback) < kinds.index(ExactResume)
    assert kinds.count(ExactResume) == 1
    state, control = TrainerState(global_step=2, max_steps=2, save_steps=5), TrainerControl()
    DefaultFlowCallback().on_step_end(trainer.args, state, control)
    assert control.should_save  # at the end, due or not
    assert control.should_training_stop
    assert trainer.args.save_strategy == SaveStrategy.STEPS
    source = inspect.getsource(Trainer._run_epoch)
    assert source.index("callback_handler.on_step_end") < source.index("_maybe_log_save_evaluate")


def test_weights_are_read_from_a_checkpoint(tmp_path):
    assert list(inspect.signature(Trainer._load_from_checkpoint).parameters)[:2] == ["self", "resume_from_checkpoint"]
    assert list(inspect.signature(Trainer._save_checkpoint).parameters) == ["self", "model", "trial"]
    trainer = build("dapo", max_steps=1, output_dir=str(tmp_path), save_strategy="steps", logging_steps=1)
    trainer.train()
    assert trainer._globalstep_last_logged == 1  # `save_the_last_batch` logs what came later
    assert trainer._tr_loss.item() == 0
    other = build("dapo", model=make_model(seed=7))
    other.load_weights(tmp_path / "checkpoint-1")
    expected = parameters_of(trainer)
    assert all(torch.equal(value, expected[name]) for name, value in parameters_of(other).items())
    assert (trainer.is_fsdp_enabled, trainer.is_deepspeed_enabled) == (False, False)


def test_an_optimizer_saved_on_a_numbered_cpu_is_loaded():
    """transformers' place for it on several ranks without an accelerator; torch alone does not know it."""
    file = io.BytesIO()
    torch.save({"momentum": torch.arange(3.0)}, file)
    file.seek(0)
    assert torch.load(file, map_location="cpu:0")["momentum"].tolist() == [0.0, 1.0, 2.0]


def test_what_speaks_on_the_terminal_can_be_taken_away():
    trainer = build("dapo")
    for kind in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(kind)
    kinds = [type(callback) for callback in trainer.callback_handler.callbacks]
    assert not {PrinterCallback, ProgressCallback} & set(kinds)


def test_a_sampler_that_is_not_trls_is_refused_after_the_first_epoch():
    trainer = build("dapo")
    loader = torch.utils.data.DataLoader(PROMPTS)
    callback = ExactResume(trainer)
    with pytest.raises(RuntimeError, match=r"not drawn by TRL's RepeatSampler.*remove_callback"):
        callback.on_train_begin(trainer.args, TrainerState(global_step=6), TrainerControl(), train_dataloader=loader)
