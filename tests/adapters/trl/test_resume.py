"""A script of one's own that calls `train(resume_from_checkpoint=...)`: the run is the uninterrupted one to the last bit."""

import warnings

import pytest
import torch
from datasets import Dataset

from replayed_training import GENERATIONS, PROMPTS, build, parameters_of, response

SAVES = {"save_strategy": "steps", "save_steps": 3, "max_steps": 16, "shuffle_dataset": True}
"""A rollout batch lasts 4 steps and an epoch 2 batches. Saves are due at 3, 6, 9, 12, 15 and at the end."""


def drawn_rollout(prompts, trainer):
    """Responses from torch's random state, which a checkpoint has."""
    prompt_ids = trainer.processing_class(text=prompts)["input_ids"]
    drawn = [
        response(ids, number % GENERATIONS, int(torch.randint(1 << 30, ())))[0] for number, ids in enumerate(prompt_ids)
    ]
    return {"prompt_ids": prompt_ids, "completion_ids": drawn, "logprobs": None}


def script(folder, **settings):
    """A trainer whose coefficients, data order and responses are all drawn."""
    given = {**SAVES, **settings, "output_dir": str(folder)}
    trainer = build("delta-random", "several updates", rollout_func=drawn_rollout, **given)
    trainer.train_dataset = Dataset.from_dict({"prompt": PROMPTS})
    return trainer


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    trainer = script(folder)
    trainer.train()
    return folder, trainer


@pytest.mark.parametrize("step", [4, 8, 12])
def test_a_resumed_run_is_the_uninterrupted_one(uninterrupted, tmp_path, step):
    """From within the first epoch, from its end, and from within the second."""
    folder, whole = uninterrupted
    assert len({micro["loss"] for micro in whole.losses}) == 32  # equal zeros would prove nothing
    trainer = script(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{step}"))
    assert trainer.losses == whole.losses[2 * step :]
    expected = parameters_of(whole)
    for name, value in parameters_of(trainer).items():
        assert torch.equal(value, expected[name]), name


def test_a_checkpoint_within_a_batch_is_told(tmp_path):
    """The last step is saved wherever it is; who goes on from there is told that the rest of the batch is lost."""
    script(tmp_path / "A", max_steps=6).train()
    assert (tmp_path / "A" / "checkpoint-6").is_dir()
    with pytest.warns(UserWarning, match="step 6 lies within a rollout batch"):
        script(tmp_path / "B", max_steps=7).train(resume_from_checkpoint=str(tmp_path / "A" / "checkpoint-6"))


@pytest.mark.parametrize(("save_steps", "refused"), [(3, True), (8, False)])
def test_the_best_model_must_be_one_that_is_saved(tmp_path, save_steps, refused):
    trainer = script(tmp_path, save_steps=save_steps, max_steps=1)
    trainer.args.load_best_model_at_end = True
    if refused:
        with pytest.raises(ValueError, match=r"save due at step 3 waits.*multiples of the 4 steps"):
            trainer.train()
    else:
        trainer.train()


def test_a_save_at_the_end_of_an_epoch_waits_too(tmp_path):
    """An epoch is 8 steps of 2 batches. A run that went on from within a batch has its batches' ends elsewhere than the epoch's."""
    script(tmp_path / "A", max_steps=6).train()
    trainer = script(tmp_path / "B", save_strategy="epoch", max_steps=14)
    with pytest.warns(UserWarning, match="step 6 lies within a rollout batch"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "A" / "checkpoint-6"))
    # The epoch ends at step 8, two steps into the batch that began at 6 and ends at 10.
    saved = sorted(int(path.name.split("-")[1]) for path in (tmp_path / "B").glob("checkpoint-*"))
    assert saved == [10, 14]


def test_a_save_at_the_end_of_an_epoch_that_ends_a_batch_does_not_wait(tmp_path):
    script(tmp_path, save_strategy="epoch").train()
    saved = sorted(int(path.name.split("-")[1]) for path in tmp_path.glob("checkpoint-*"))
    assert saved == [8, 16]
