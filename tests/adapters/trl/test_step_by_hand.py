"""A training step of the adapter equals one written by hand, for every method and every way to split a batch."""

import pytest
import torch
from by_hand import Options, train_by_hand
from replayed_training import SHAPES, build, make_model, parameters_of

from support_methods import TRAINABLE


def assert_same_run(trainer, method, shape, options=None):
    model = make_model().eval()
    hand = train_by_hand(
        model, method, shape, 1, [trainer.generations], [trainer.losses], options=options or Options()
    )
    assert [micro["loss"] for micro in trainer.losses] == pytest.approx(hand.losses, abs=hand.loss_rounding)
    for name, expected in model.named_parameters():
        torch.testing.assert_close(
            parameters_of(trainer)[name], expected, atol=hand.weight_rounding, rtol=0, msg=name
        )
    return hand


# One method of each kind, in the shape that takes the most steps, is run again under other vector instructions.
KINDS = ("grpo", "dapo-ft", "sapo", "fipo", "delta", "delta-hard", "delta-topk", "delta-bottom50")
RUNS = [
    pytest.param(
        method,
        shape,
        marks=[pytest.mark.numeric] if method in KINDS and shape == "several updates" else [],
        id=f"{method}-{shape}",
    )
    for method in TRAINABLE
    for shape in SHAPES
]


@pytest.mark.parametrize(("method", "shape"), RUNS)
def test_every_method_in_every_batch_shape(method, shape):
    trainer = build(method, shape)
    trainer.train()
    # The loops over a vocabulary of top-K are slow: once is enough.
    against_loops = method != "delta-topk" or shape == "one micro-batch"
    hand = assert_same_run(trainer, TRAINABLE[method], shape, Options(against_loops=against_loops))

    # Nothing above is trivial: both sides and tokens without one are there, and later updates reach the clip.
    assert all((a > 0).any() and (a < 0).any() and (a == 0).any() for a in hand.advantages)
    if shape == "several updates":
        assert max(hand.clipped) > 0.2
        assert len(trainer.generations) == 2
    untrained = dict(make_model().named_parameters())
    moved = [(value - untrained[name]).abs().max() for name, value in parameters_of(trainer).items()]
    assert max(moved) > 1e-3


def test_methods_differ():
    """The batch tells the methods apart; only FIPO is DAPO as long as the ratio is one."""
    first_losses = {}
    for name in TRAINABLE:
        trainer = build(name, "accumulation 4", max_steps=1)
        trainer.train()
        first_losses[name] = tuple(round(micro["loss"], 6) for micro in trainer.losses)
    assert first_losses["fipo"] == first_losses["dapo"]
    del first_losses["fipo"]
    assert len(set(first_losses.values())) == len(first_losses)


@pytest.mark.parametrize("shape", ["several updates", "several generations a step"])
def test_coefficients_stay_as_the_rollout_batch_fixed_them(shape):
    """Mean one over the generation, not over a micro-batch; used unchanged in every pass over it."""
    trainer = build("delta", shape)
    seen = {}
    compute_loss = trainer._compute_loss

    def watch(model, inputs):
        for tokens, advantages in zip(inputs["completion_ids"], inputs["advantages"], strict=True):
            seen.setdefault(tuple(tokens.tolist()), []).append(advantages.clone())
        return compute_loss(model, inputs)

    trainer._compute_loss = watch
    trainer.train()
    passes = SHAPES[shape][2]
    for uses in seen.values():
        assert len(uses) <= passes
        assert all(torch.equal(use, uses[0]) for use in uses)
    assert max(len(uses) for uses in seen.values()) == passes
    for generation in trainer.generations:
        lengths = torch.tensor([len(row["tokens"]) for row in generation["rows"]])
        advantages = generation["advantages"]
        mask = torch.arange(advantages.shape[1])[None] < lengths[:, None]
        assert (advantages[~mask] == 0).all()


def test_random_coefficients_differ_between_the_generations_of_one_step():
    """Four generations feed one optimizer step: each has draws of its own, and a resumed run would find them again."""
    trainer = build("delta-random", "several generations a step", max_steps=1)
    rounds = []
    weigh = trainer._weigh

    def watch(*args):
        rounds.append(trainer._round_number)
        return weigh(*args)

    trainer._weigh = watch
    trainer.train()
    assert rounds == [0, 1, 2, 3]
    trainer.state.global_step, trainer._step = 7, 0  # what a resume from checkpoint-7 finds
    assert trainer._round_number == 28
