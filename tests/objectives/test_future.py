"""FIPO's weight against the literal double sum, and its cost."""

import math
import time

import numpy as np
import pytest
import torch

from credit_reference import fipo_weights, random_case
from delta_rlvr.objectives import FutureClip
from delta_rlvr.objectives.future import discounted_future_sum
from rounding import rounding

pytestmark = pytest.mark.numeric


def test_scan_by_hand():
    # decay 1/2, values 1, 2, 4: F_2 = 4, F_1 = 2 + 2 = 4, F_0 = 1 + 2 = 3.
    assert discounted_future_sum(torch.tensor([[1.0, 2.0, 4.0]]), 0.5).tolist() == [[3, 4, 4]]


@pytest.mark.parametrize("length", [1, 63, 64, 65, 300])
def test_scan_equals_the_double_sum(length):
    values = torch.randn(3, length, generator=torch.Generator().manual_seed(length), dtype=torch.float64)
    decay = 2 ** (-1 / 32)
    expected = torch.zeros_like(values)
    for t in range(length):
        for j in range(t, length):
            expected[:, t] += decay ** (j - t) * values[:, j]
    torch.testing.assert_close(discounted_future_sum(values, decay), expected)


@pytest.mark.parametrize("low", [1.0, 0.8])
def test_weights_equal_the_loop(low):
    rng = np.random.default_rng(2)
    guarded = 0
    for _ in range(80):
        case = random_case(rng)
        new, old = np.array(case["logps_new"]), np.array(case["logps_old"])
        # Make some ratios pass the dual clip.
        new = np.where(rng.random(new.shape) < 0.1, old + 3 + rng.random(new.shape), new)
        mask = torch.as_tensor(case["mask"])
        advantages = torch.as_tensor(case["advantages"], dtype=torch.float64)[:, None].expand(mask.shape)
        log_ratio = torch.as_tensor(new - old, dtype=torch.float64)
        log_ratio[~mask] = float("nan")
        ours = FutureClip(weight_low=low).reweigh(log_ratio, advantages, mask)
        expected = fipo_weights(new, old, case["advantages"], case["mask"], low=low)
        np.testing.assert_allclose(
            ours[mask].numpy(), expected[np.asarray(case["mask"])], atol=rounding(20, size=10.0, dtype=torch.float64)
        )
        guarded += int(((log_ratio > math.log(10)) & (advantages < 0) & mask).sum())
    assert guarded > 5


@pytest.mark.parametrize(
    ("shifts", "mask", "expected"),
    [
        # Decay 1/2: F = 0.1 + 0.2/2 - 0.1/4 = 0.175; 0.2 - 0.1/2 = 0.15; -0.1, whose exponential is lifted to 1.
        ([0.1, 0.2, -0.1], [1, 1, 1], [math.exp(0.175), math.exp(0.15), 1]),
        # A hole adds nothing and still counts as a step: 0.1 - 0.1/4 = 0.075.
        ([0.1, 0.7, -0.1], [1, 0, 1], [math.exp(0.075), 0, 1]),
        # 3 > ln 10 leaves the sum, for earlier tokens as well: 0.05/2, then 0.05. exp(0.3) is held at 1.2.
        ([3.0, 0.05, 0.0], [1, 1, 1], [math.exp(0.025), math.exp(0.05), 1]),
        ([0.05, 3.0, 0.3], [1, 1, 1], [math.exp(0.125), math.exp(0.15), 1.2]),
    ],
)
def test_weights_by_hand(shifts, mask, expected):
    given = torch.tensor([shifts]), torch.ones(1, 3), torch.tensor([mask]).bool()
    assert FutureClip(decay=0.5).reweigh(*given)[0].tolist() == pytest.approx(expected)


def test_guard_by_hand():
    """The clip comes before the guard, as in the authors' code: past ratio 10 a token with A < 0 has weight 1, with A > 0 none is
    guarded. F of the first token counts the second's shift alone, which is 1: exp(1/2) is clipped to 1.2."""
    shift, mask = torch.tensor([[math.log(11), 1.0]]), torch.ones(1, 2, dtype=torch.bool)
    for sign, first in ((-1.0, 1.0), (1.0, 1.2)):
        weights = FutureClip(decay=0.5).reweigh(shift, torch.full((1, 2), sign), mask)
        assert weights[0].tolist() == pytest.approx([first, 1.2])
    falling = FutureClip().reweigh(torch.tensor([[math.log(11), -1.0]]), -torch.ones(1, 2), mask)
    assert falling.tolist() == [[1.0, 1.0]]


def test_weight_is_one_at_the_old_policy():
    mask = torch.ones(2, 100, dtype=torch.bool)
    assert (FutureClip().reweigh(torch.zeros(2, 100), torch.randn(2, 100), mask) == 1).all()


def test_dropping_overshot_responses():
    shift = torch.zeros(2, 4)
    shift[0, :2] = math.log(11)
    shift[1, :1] = math.log(11)
    weights = FutureClip(drop_overshot=True).reweigh(shift, -torch.ones(2, 4), torch.ones(2, 4, dtype=torch.bool))
    assert (weights[0] == 0).all()
    assert (weights[1] > 0).all()


def test_cost_is_linear_in_time():
    """T = 16k against T = 4k, the best of interleaved rounds, in processor time: a linear scan is 4 times slower (caches and
    vector instructions move that a little), a quadratic one 16 times."""
    cases = {t: (torch.randn(16, t), torch.randn(16, t), torch.ones(16, t, dtype=torch.bool)) for t in (4096, 16384)}
    seconds = {t: [] for t in cases}
    for _ in range(9):
        for t, arguments in cases.items():
            start = time.process_time()
            FutureClip().reweigh(*arguments)
            seconds[t].append(time.process_time() - start)
    ratio = min(seconds[16384]) / min(seconds[4096])
    assert ratio <= 8, f"T = 16k took {ratio:.1f} times as long as T = 4k"
