"""A policy that breaks: training stops before a checkpoint of it is saved, and says where."""

import math

import pytest
import torch

from delta_rlvr.models.finite import NotFinite, broken
from delta_rlvr.runs import read_run
from real_generation import build_real

DUE = {"save_strategy": "steps", "save_steps": 1, "max_steps": 4, "logging_steps": 1}


def spoil_at_three(trainer, part):
    """NaN in the third step: in its loss, in a gradient, or in a weight after it."""
    step, training_step, create = [0], trainer.training_step, trainer.create_optimizer

    def spoilt_step(*args, **options):
        step[0] += 1
        loss = training_step(*args, **options)
        if step[0] == 3 and part == "gradient":
            next(one for one in trainer.model.parameters() if one.grad is not None).grad[0] = math.nan
        return loss

    def spoilt_optimizer(*args, **options):
        optimizer = create(*args, **options)

        def spoil(*_):
            if step[0] == 3 and part == "weights":
                next(trainer.model.parameters()).data[0] = math.inf

        optimizer.register_step_post_hook(spoil)
        return optimizer

    trainer.training_step, trainer.create_optimizer = spoilt_step, spoilt_optimizer
    if part == "loss":
        compute = trainer._compute_loss
        trainer._compute_loss = lambda *given: compute(*given) * (math.nan if step[0] == 3 else 1)
    if part == "probabilities":
        generate = trainer.model.generate

        def broken_head(*args, **options):
            if step[0] == 3:
                trainer.model.get_output_embeddings().weight.data.fill_(math.nan)
            return generate(*args, **options)

        trainer.model.generate = broken_head
    return trainer


@pytest.mark.parametrize(
    ("part", "folder"),
    [
        ("loss", True),
        ("gradient", True),
        ("gradient", False),
        ("weights", True),
        ("weights", False),
        ("probabilities", True),
    ],
)
def test_training_stops_and_names_the_last_good_checkpoint(tmp_path, part, folder):
    trainer = spoil_at_three(build_real(output_dir=str(tmp_path), run_folder=folder, **DUE), part)
    with pytest.raises(NotFinite, match=rf"step 3: the (policy's )?{part} (is|are) not finite") as caught:
        trainer.train()
    assert caught.value.__notes__ == [f"the last checkpoint is {tmp_path / 'checkpoint-2'}"]
    assert not (tmp_path / "checkpoint-3").exists()
    assert not (tmp_path / "model").exists()
    if folder:
        run = read_run(tmp_path)
        assert (run.info["status"], run.info["steps"]) == ("failed", 2)
        assert f"{part} " in run.info["error"]
        assert run.metrics[-1]["step"] == 3
        assert run.metrics[-1]["note"] == str(caught.value)


def test_it_goes_on_where_asked_to(tmp_path):
    trainer = build_real(output_dir=str(tmp_path), run_folder=True, stop_if_not_finite=False, **DUE)
    spoil_at_three(trainer, "gradient")
    trainer.args.max_steps = 3  # from there on every weight is NaN, and nothing can be sampled
    with pytest.warns(UserWarning, match="the gradient is not finite; training continues"):
        trainer.train()
    last = read_run(tmp_path).metrics[-1]
    assert last["grad_norm"] is None
    assert "not finite: grad_norm = nan" in last["note"]


def test_large_numbers_are_no_broken_ones():
    device = torch.device("cpu")
    large = torch.full((1000,), 6e4, dtype=torch.float16)  # their norm is infinite in float16
    assert not broken([large, torch.arange(3), torch.empty(0)], device)
    assert not broken([], device)
    for bad in (math.nan, math.inf, -math.inf):
        assert broken([large, torch.tensor([1.0, bad])], device)


def test_verl_stops_too():
    from delta_rlvr.adapters.verl.run_folder import check_finite

    check_finite(4, {"actor/pg_loss": 0.1, "actor/grad_norm": 1.0, "other": math.nan}, 2)
    check_finite(4, {}, 2)
    with pytest.raises(NotFinite, match="step 4: the gradient is not finite") as caught:
        check_finite(4, {"actor/pg_loss": 0.1, "actor/grad_norm": math.inf}, 2)
    assert caught.value.__notes__ == ["the last good checkpoint is that of step 2"]
