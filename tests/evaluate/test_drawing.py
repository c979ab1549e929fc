"""Drawing tokens: the right distribution, the right nucleus, and no dependence on the neighbours."""

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import TemperatureLogitsWarper, TopPLogitsWarper

from delta_rlvr.evaluate.drawing import UniformStreams, draw_tokens


def test_inversion_by_hand():
    # Probabilities .5 .3 .2 in this order: cumulative .5 .8 1.
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]])).repeat(6, 1)
    uniforms = torch.tensor([0.0, 0.49, 0.51, 0.79, 0.81, 0.999])
    assert draw_tokens(logits, uniforms, temperature=1.0, top_p=1.0).tolist() == [0, 0, 1, 1, 2, 2]
    # top_p = .7 keeps .5 and .3 (the set that first reaches .7), so the cut is at .5/.8 = .625.
    uniforms = torch.tensor([0.0, 0.62, 0.63, 0.9, 0.99, 0.9999])
    assert draw_tokens(logits, uniforms, temperature=1.0, top_p=0.7).tolist() == [0, 0, 1, 1, 1, 1]


def test_temperature_zero_takes_the_likeliest():
    logits = torch.tensor([[0.1, 2.0, 1.9]])
    assert draw_tokens(logits, torch.tensor([0.99]), temperature=0, top_p=0.7).tolist() == [1]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 0.7), (0.6, 0.95), (1.3, 1.0), (1.0, 0.05)])
def test_same_distribution_as_transformers(temperature, top_p):
    torch.manual_seed(0)
    logits = torch.randn(1, 40) * 2
    warped = TemperatureLogitsWarper(temperature)(None, logits)
    if top_p < 1:
        warped = TopPLogitsWarper(top_p)(None, warped)
    expected = torch.softmax(warped[0].double(), dim=-1).numpy()
    count = 20_000
    uniforms = torch.from_numpy((np.arange(count) + 0.5) / count)  # an even grid instead of chance
    drawn = draw_tokens(logits.expand(count, -1), uniforms, temperature=temperature, top_p=top_p)
    seen = np.bincount(drawn.numpy(), minlength=40) / count
    assert set(np.flatnonzero(seen)) <= set(np.flatnonzero(expected))
    assert np.abs(seen - expected).max() <= 1.5 / count + 1e-6


def test_streams_are_uniform_and_belong_to_their_seed():
    alone, together = UniformStreams([7]), UniformStreams([3, 7, 9])
    first = np.array([alone.next()[0] for _ in range(600)])  # more than one block
    second = np.array([together.next()[1] for _ in range(600)])
    assert np.array_equal(first, second)
    assert stats.kstest(first, "uniform").pvalue > 0.001


def test_a_token_without_probability_is_never_drawn():
    logits = torch.tensor([[0.0, float("-inf"), 0.0, float("-inf")]]).repeat(3, 1)
    uniforms = torch.tensor([0.0, 0.5, 1 - 1e-12], dtype=torch.float64)
    for top_p in (1.0, 0.9):
        assert set(draw_tokens(logits, uniforms, temperature=1.0, top_p=top_p).tolist()) <= {0, 2}
