"""A training step of the adapter equals one written by hand, for every method and every way to split a batch."""

import functools
from dataclasses import dataclass

import pytest

from by_hand import Options, assert_as_by_hand, seen_by
from delta_rlvr import TokenRule
from replayed_training import SHAPES, build, make_model, parameters_of
from support_methods import TRAINABLE

# `test_late.py` and `test_observers.py` check the shapes of the same trainings.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


@functools.cache
def trained(method, shape):
    """One training of each kind serves every test that looks at it."""
    trainer = build(method, shape)
    trainer.train()
    return trainer


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
    # To the engine the others are like one of these; each is tried where its tokens come in several parts.
    if method in KINDS or shape == "accumulation 4"
]


@pytest.mark.parametrize(("method", "shape"), RUNS)
def test_every_method_in_every_batch_shape(method, shape):
    trainer = trained(method, shape)
    # The loops over a vocabulary of top-K are slow: once is enough.
    against_loops = method != "delta-topk" or shape == "one micro-batch"
    options = Options(against_loops=against_loops)
    hand = assert_as_by_hand([seen_by(trainer)], TRAINABLE[method], shape, options=options)

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
        first_step = trained(name, "accumulation 4").losses[:4]
        first_losses[name] = tuple(round(micro["loss"], 6) for micro in first_step)
    assert first_losses["fipo"] == first_losses["dapo"]
    del first_losses["fipo"]
    assert len(set(first_losses.values())) == len(first_losses)


ROUNDS = []


@dataclass(frozen=True)
class Rounds(TokenRule):
    """Notes the number of the rollout batch."""

    def weigh(self, batch):
        ROUNDS.append(batch.round_number)
        return batch.ones()


@pytest.mark.parametrize(
    ("needs", "shape", "expected"),
    [
        ((), "several generations a step", [0, 1, 2, 3, 4, 5, 6, 7]),
        (("hidden",), "several generations a step", [0, 1, 2, 3, 4, 5, 6, 7]),
        (("hidden",), "accumulation 4", [0, 4]),
        (("hidden",), "several updates", [0, 8]),
    ],
    ids=["none", "late", "forced", "stock"],
)
def test_every_generation_has_a_number_of_its_own(monkeypatch, needs, shape, expected):
    """Four generations feed one optimizer step: each has draws of its own, and a resumed run finds them again."""
    ROUNDS.clear()
    monkeypatch.setattr(Rounds, "needs", needs)
    trainer = build(Rounds(), shape)
    trainer.train()
    assert expected == ROUNDS
    trainer.state.global_step, trainer._step = 7, 0  # what a resume from checkpoint-7 finds
    assert trainer._round_number == 7 * trainer.args.gradient_accumulation_steps
