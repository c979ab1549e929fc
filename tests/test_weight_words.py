"""Weights that look like a method and do nothing are called so."""

import pytest

from delta_rlvr.weight_words import ALIKE, NOTHING, over_a_run, weights_in_effect, without_effect


@pytest.mark.parametrize(
    ("mean", "std", "said"),
    [
        (1.0, 0.1, None),
        (0.78, 0.57, None),
        (1.0, 0.004, "the weights hardly differ from each other: in effect, this is DAPO"),
        (0.0, 0.0, "every weight is 0: nothing is learnt"),
        (0.05, 0.1, "the weights are far from one; their mean is about 0.05, which scales the loss"),
        (1000.0, 0.0, "the weights are far from one; their mean is about 1000, which scales the loss"),
        (1.2, 0.0, "the weights hardly differ from each other: in effect, this is DAPO"),
        (2.0, 0.1, None),
    ],
)
def test_weights_that_do_not_do_what_they_look_like(mean, std, said):
    if said is None:
        assert weights_in_effect(mean, std) is None
    else:
        assert said in weights_in_effect(mean, std)


def test_the_scale_comes_before_dapo():
    """A constant weight of 3 was "in effect, this is DAPO"."""
    for told in (
        weights_in_effect(3.0, 0.0),
        without_effect(3 * [{"weight_signal_mean": 3.0, "weight_signal_std": 0.0}]),
    ):
        assert told.startswith("the weights are far from one; their mean is about 3, which scales the loss")
        assert told.endswith("divided so, this is DAPO")


def test_digits_beside_a_number_that_is_shown():
    """`methods --check` printed a mean of 33.55, and "about 30" in the line below."""
    assert "their mean is about 30," in weights_in_effect(33.55, 20.0)
    assert "their mean is about 33.55," in weights_in_effect(33.55, 20.0, digits=4)


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([(1, 0.0, 0.0), (1, 0.0, 0.0)], NOTHING),
        ([(1, 1.0, 0.004), (1, 1.0, 0.0)], ALIKE),
        ([(1, 1.0, 0.004), (1, 1.0, 0.1)], None),  # one batch with weights that differ
        ([(1, 1.0, 0.1), (0, 0.0, 0.0)], None),  # no signal, so no weights
        ([(0, 0.0, 0.0)], None),
        ([(1, None, None)], None),  # dapo has no weights
    ],
)
def test_weights_without_effect_in_a_whole_run(batches, said):
    names = ("signal_groups", "weight_signal_mean", "weight_signal_std")
    assert without_effect([dict(zip(names, batch, strict=True)) for batch in batches]) == said


def test_the_scale_over_a_whole_run():
    """Means of 0.1 and 0.3 are 0.2 on average; a batch without a signal has none."""
    lines = [
        {"weight_signal_mean": mean, "weight_signal_std": 0.2, "signal_groups": signal}
        for mean, signal in ((0.1, 1), (0.3, 1), (1.0, 0))
    ]
    assert over_a_run(lines).startswith("the weights are far from one; their mean is about 0.2,")
    assert without_effect(lines) is None
    assert over_a_run(lines[2:]) is over_a_run([{}]) is None
