"""lambda_min == lambda_max is DAPO, bit for bit, with the capture and the solve still run."""

import pytest
import torch

from delta_rlvr.credit import CreditStream, Delta
from delta_rlvr.credit.rules import delta as delta_module
from delta_rlvr.objectives import Clip, LossInputs, policy_loss
from rounding import rounding

pytestmark = pytest.mark.numeric


@pytest.mark.parametrize("scope", ["batch", "group"])
@pytest.mark.parametrize("value", [0.8, 1.0, 1.3])
def test_flat_range_is_dapo_bit_for_bit(scope, value, monkeypatch):
    g = torch.Generator().manual_seed(0)
    hidden, logps = torch.randn(6, 5, 4, generator=g), -torch.rand(6, 5, generator=g)
    advantages = torch.tensor([1.0, -1.0, 0.3, 0.0, 0.5, 0.2])
    mask = torch.rand(6, 5, generator=g) < 0.8
    solves = []
    real = delta_module.estimate
    monkeypatch.setattr(delta_module, "estimate", lambda *a: solves.append(1) or real(*a))
    stream = CreditStream(Delta(lambda_min=value, lambda_max=value, scope=scope))
    stream.add(hidden, logps, mask)
    assert len(stream.store) == int(mask.sum())  # the capture ran
    record = stream.solve(advantages, groups=torch.tensor([0, 0, 0, 1, 1, 1]))
    assert solves == [1]  # and so did the solve
    assert record.margin.abs().max() > 0
    weights = record.padded(record.weights, mask)
    assert (weights[mask] == 1).all()

    new_logps = (logps + 0.3 * torch.randn(6, 5, generator=g)).requires_grad_()
    losses = []
    for token_weights in (weights, None):
        new_logps.grad = None
        loss = policy_loss(LossInputs(new_logps, logps, advantages, mask, token_weights), Clip())
        loss.backward()
        losses.append((loss.item(), new_logps.grad.clone()))
    assert losses[0][0] == losses[1][0]
    assert torch.equal(losses[0][1], losses[1][1])


def test_gradient_under_planted_coefficients_equals_a_hand_built_one():
    """J = 1/N sum w * min(r A, clip(r) A): d/dlogp = -w r A / N where the unclipped term is the minimum, else 0."""
    g = torch.Generator().manual_seed(1)
    old = -torch.rand(4, 6, generator=g)
    new = (old + 0.4 * torch.randn(4, 6, generator=g)).requires_grad_()
    advantages = torch.tensor([1.0, -2.0, 0.5, 0.0])
    mask = torch.rand(4, 6, generator=g) < 0.7
    weights = torch.rand(4, 6, generator=g) + 0.5
    policy_loss(LossInputs(new, old, advantages, mask, weights), Clip(0.2, 0.28)).backward()
    by_hand = torch.zeros(4, 6)
    clipped = 0
    for i in range(4):
        for t in range(6):
            if not mask[i, t]:
                continue
            ratio = (new[i, t] - old[i, t]).exp().item()
            a = advantages[i].item()
            if (a > 0 and ratio > 1.28) or (a < 0 and ratio < 0.8):
                clipped += 1
                continue
            by_hand[i, t] = -weights[i, t] * ratio * a / mask.sum()
    assert clipped >= 2
    torch.testing.assert_close(new.grad, by_hand, atol=0, rtol=rounding(10))
