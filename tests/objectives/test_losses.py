"""Objectives against the float64 loop and against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch

from credit_reference import (
    clipped_token_loss,
    dual_clipped_token_loss,
    fipo_weights,
    grpo_weights,
    random_case,
    sapo_token_loss,
)
from credit_reference import sequence_mean as loop_sequence_mean
from credit_reference import token_mean as loop_token_mean
from delta_rlvr.credit import token_coefficients
from delta_rlvr.credit.rules.uniform import ResponseMean
from delta_rlvr.objectives import (
    Clip,
    FutureClip,
    LossInputs,
    SoftGate,
    clipped_loss,
    policy_loss,
    sequence_mean,
    token_mean,
)
from rounding import rounding

pytestmark = pytest.mark.numeric

# Sums over a batch's tokens in float64.
EXACT = rounding(100, size=10.0, dtype=torch.float64)


def inputs_of(case, weights=None):
    as_tensor = lambda x: torch.as_tensor(np.asarray(x), dtype=torch.float64)  # noqa: E731
    return LossInputs(
        as_tensor(case["logps_new"]),
        as_tensor(case["logps_old"]),
        as_tensor(case["advantages"]),
        torch.as_tensor(np.asarray(case["mask"])),
        weights,
    )


@pytest.mark.parametrize("name", ["clip", "dual", "sapo", "fipo"])
def test_token_losses_equal_the_loop(name):
    rng = np.random.default_rng(4)
    for _ in range(60):
        case = random_case(rng, poison=True)
        arguments = (case["logps_new"], case["logps_old"], case["advantages"], case["mask"])
        surrogate, expected = {
            "clip": (Clip(), lambda: clipped_token_loss(*arguments)),  # noqa: B023
            "dual": (Clip(dual=10.0), lambda: dual_clipped_token_loss(*arguments)),  # noqa: B023
            "sapo": (SoftGate(), lambda: sapo_token_loss(*arguments)),  # noqa: B023
            "fipo": (FutureClip(), lambda: fipo_weights(*arguments) * dual_clipped_token_loss(*arguments)),  # noqa: B023
        }[name]
        mask = np.asarray(case["mask"])
        ours = surrogate(inputs_of(case))
        close = rounding(20, dtype=torch.float64)
        np.testing.assert_allclose(ours.numpy()[mask], np.asarray(expected())[mask], atol=close, rtol=close)


def test_averages_equal_the_loop():
    rng = np.random.default_rng(8)
    for _ in range(30):
        case = random_case(rng)
        losses = clipped_token_loss(case["logps_new"], case["logps_old"], case["advantages"], case["mask"])
        for aggregation, loop in (("token_mean", loop_token_mean), ("sequence_mean", loop_sequence_mean)):
            ours = policy_loss(inputs_of(case), Clip(), aggregation)
            assert ours.item() == pytest.approx(loop(losses, case["mask"]), abs=EXACT)


def test_grpo_is_dapo_with_another_weight():
    """Mean over responses of token means = token mean with weights N / (R |o_i|)."""
    rng = np.random.default_rng(6)
    for _ in range(20):
        case = random_case(rng)
        weights = torch.as_tensor(np.asarray(grpo_weights(case["mask"])))
        by_weight = policy_loss(inputs_of(case, weights), Clip(0.2, 0.2), "token_mean")
        by_mean = policy_loss(inputs_of(case), Clip(0.2, 0.2), "sequence_mean")
        assert by_weight.item() == pytest.approx(by_mean.item(), abs=EXACT)
        mask = torch.as_tensor(np.asarray(case["mask"]))
        advantages = torch.as_tensor(np.asarray(case["advantages"]), dtype=torch.float32)
        ours = token_coefficients(None, None, advantages, mask, rule=ResponseMean())
        torch.testing.assert_close(ours.double(), weights, rtol=rounding(), atol=0)


def test_both_forms_of_equation_8_agree():
    """1/N sum lambda-bar l = 1/Z sum lambda l."""
    g = torch.Generator().manual_seed(0)
    losses, mask = torch.randn(4, 7, generator=g), torch.rand(4, 7, generator=g) < 0.6
    coefficients = 0.8 + 0.4 * torch.rand(4, 7, generator=g)
    normalized = coefficients * mask.sum() / coefficients[mask].sum()
    torch.testing.assert_close(
        token_mean(losses * normalized, mask), (losses * coefficients)[mask].sum() / coefficients[mask].sum()
    )


def test_weighting_the_advantage_equals_weighting_the_loss():
    """Every clip is homogeneous in A, so that engines may carry the weight in per-token advantages."""
    g = torch.Generator().manual_seed(0)
    old = -torch.rand(3, 50, generator=g)
    new = old + torch.randn(3, 50, generator=g)
    advantages = torch.tensor([1.0, -1.0, 0.5])
    weights = 0.5 + torch.rand(3, 50, generator=g)
    for dual in (None, 3.0):
        weighted_loss = weights * clipped_loss(new - old, advantages[:, None], 0.2, 0.28, dual)
        weighted_advantage = clipped_loss(new - old, weights * advantages[:, None], 0.2, 0.28, dual)
        torch.testing.assert_close(weighted_loss, weighted_advantage)


def test_sapo_by_hand():
    # r = 1: f = sigmoid(0) * 4 / tau = 2 / tau. r = 2: sigmoid(tau) * 4 / tau. tau = 1 where A > 0, 1.05 where A < 0.
    # A log-ratio of 800 would overflow without the clamp; the gate is then 4 / tau.
    logps = torch.tensor([[0.0, math.log(2), 800.0]]).expand(2, -1)
    mask = torch.ones(2, 3, dtype=torch.bool)
    losses = SoftGate()(LossInputs(logps, torch.zeros(2, 3), torch.tensor([1.0, -1.0]), mask))
    assert losses[0].tolist() == pytest.approx([-2, -4 * 0.7310586, -4])
    assert losses[1].tolist() == pytest.approx([2 / 1.05, 4 * 0.7407749 / 1.05, 4 / 1.05])


def test_averages_by_hand():
    # Response means 3 and 5, then 4; token mean 14 / 4. A response without a token does not count.
    losses = torch.tensor([[1.0, 2.0, 6.0], [8.0, 5.0, 8.0], [9.0, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 1], [0, 1, 0], [0, 0, 0]]).bool()
    assert sequence_mean(losses, mask).item() == 4
    assert token_mean(losses, mask).item() == 3.5


def test_dual_clip_by_hand():
    # A = -1, r = e^3 = 20.1: the plain loss is 20.1, the dual clip holds it at 10. A = 1: clipped at 1.28.
    inputs = LossInputs(
        torch.full((2, 1), 3.0), torch.zeros(2, 1), torch.tensor([-1.0, 1.0]), torch.ones(2, 1, dtype=torch.bool)
    )
    assert Clip()(inputs).flatten().tolist() == pytest.approx([math.e**3, -1.28])
    assert Clip(dual=10.0)(inputs).flatten().tolist() == pytest.approx([10, -1.28])


def test_a_denominator_makes_accumulation_exact():
    """Two unequal mini-batches over the whole batch's token count sum to the batch's loss."""
    rng = np.random.default_rng(1)
    case = random_case(rng, max_batch=8)
    while len(case["mask"]) < 4:
        case = random_case(rng, max_batch=8)
    whole = inputs_of(case)
    count = whole.mask.sum()
    parts = [
        LossInputs(*(getattr(whole, n)[piece] for n in ("logps", "old_logps", "advantages", "mask")))
        for piece in (slice(0, 1), slice(1, None))
    ]
    total = sum(policy_loss(part, Clip(), denominator=count) for part in parts)
    assert total.item() == pytest.approx(policy_loss(whole, Clip()).item(), abs=EXACT)
