"""Eq. 1-4 and 9-11, and the proxies, against a tiny model's real gradients and a real small step."""

import pytest
import torch
from torch import nn

from delta_rlvr.credit import credit_record, full_token_gradients, predicted_change, side_summary, update_direction
from delta_rlvr.credit.diagnostics import rank_correlation
from delta_rlvr.credit.rules.ablations import Ablation
from rounding import rounding

pytestmark = pytest.mark.numeric


class TinyPolicy(nn.Module):
    """Embedding, one causal mean, one nonlinear layer, a head: enough for every gradient to be different."""

    def __init__(self, vocab=7, width=6):
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(vocab, width)
        self.layer = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, vocab, bias=False)

    def hidden(self, ids):
        embedded = self.embed(ids)
        past = embedded.cumsum(1) / torch.arange(1, ids.shape[1] + 1)[None, :, None]
        return torch.tanh(self.layer(torch.cat([embedded, past], -1)))

    def logps(self, ids):
        """log pi of ids[:, 1:], and the hidden states that predict them."""
        hidden = self.hidden(ids[:, :-1])
        logps = self.head(hidden).log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        return logps, hidden


@pytest.fixture
def rollout():
    torch.manual_seed(0)
    model = TinyPolicy().double()
    ids = torch.randint(0, 7, (6, 9))
    mask = torch.rand(6, 8) < 0.8
    advantages = torch.tensor([1.0, -0.7, 0.4, -1.2, 0.0, 0.9], dtype=torch.float64)
    logps, hidden = model.logps(ids)
    gradients = full_token_gradients(logps[mask], list(model.parameters()))
    return model, ids, mask, advantages, logps.detach(), hidden.detach(), gradients


def test_full_gradients_equal_one_backward_a_token(rollout):
    model, ids, mask, _, _, _, gradients = rollout
    for number, (row, time) in enumerate(mask.nonzero().tolist()[:5]):
        model.zero_grad()
        model.logps(ids)[0][row, time].backward()
        torch.testing.assert_close(gradients[number], torch.cat([p.grad.flatten() for p in model.parameters()]))


@pytest.mark.parametrize("weighted", [False, True])
def test_predicted_sign_is_what_a_small_step_does(rollout, weighted):
    """Eq. 4: after a small real step on J, log pi of a candidate moves by lr times the predicted change."""
    model, ids, mask, advantages, old, hidden, gradients = rollout
    token_advantages = advantages[mask.nonzero()[:, 0]]
    rho = credit_record(hidden, old, advantages, mask).weights.double() if weighted else None
    sides = side_summary(gradients, token_advantages, rho)

    # Candidates: every vocabulary entry after some context.
    context = ids[:1, :4]
    candidate_logps = model.head(model.hidden(context))[0, -1].log_softmax(-1)
    candidates = full_token_gradients(candidate_logps, list(model.parameters()))
    predicted = predicted_change(candidates, sides)

    rate = 1e-6
    logps, _ = model.logps(ids)
    weights = 1.0 if rho is None else rho
    objective = (((logps[mask] - old[mask]).exp()) * token_advantages * weights).sum()
    model.zero_grad()
    objective.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += rate * parameter.grad
    change = model.head(model.hidden(context))[0, -1].log_softmax(-1) - candidate_logps
    # To first order: what is left is the curvature, a share of about the step's size (1e-6 times a sum of gradients).
    torch.testing.assert_close(change / rate, predicted, rtol=1e-3, atol=1e-4)
    assert torch.equal(change.sign(), predicted.sign())
    assert {1.0, -1.0} <= set(predicted.sign().tolist())


def test_masses_and_centroids_by_hand():
    # A = 2 (v = 1), 1 (v = 4), -3 (v = -2): M+ = 3, mu+ = (2*1 + 4)/3 = 2, M- = 3, mu- = -2. Direction 3*2 + 3*2 = 12.
    vectors, advantages = torch.tensor([[1.0], [4.0], [-2.0]]), torch.tensor([2.0, 1.0, -3.0])
    sides = side_summary(vectors, advantages)
    assert sides.masses.tolist() == [3, 3]
    assert sides.centroids.flatten().tolist() == [2, -2]
    assert update_direction(sides).item() == 12
    # Eq. 9-11 with rho = 0.5, 2, 1: M+ = 1 + 2 = 3, mu+ = (1*1 + 2*4)/3 = 3; M- = 3.
    sides = side_summary(vectors, advantages, torch.tensor([0.5, 2.0, 1.0]))
    assert sides.masses.tolist() == [3, 3]
    assert sides.centroids.flatten().tolist() == [3, -2]
    assert predicted_change(torch.tensor([-1.0]), sides).item() == -15


def test_head_proxy_is_the_real_gradient_of_the_head(rollout):
    """The never-formed (e_y - p) h against autograd's gradient of the head's weight, through the whole estimator."""
    model, ids, mask, advantages, old, hidden, _ = rollout
    logps, _ = model.logps(ids)
    head_gradients = full_token_gradients(logps[mask], [model.head.weight])
    spread = torch.zeros(*mask.shape, head_gradients.shape[1], dtype=torch.float64)
    spread[mask] = head_gradients
    for settings in ({}, {"refinements": 0}, {"contrast": "within_side"}):
        real = credit_record(spread, None, advantages, mask, rule=Ablation(proxy="full", **settings))
        ours = credit_record(
            hidden,
            old,
            advantages,
            mask,
            rule=Ablation(proxy="head", **settings),
            head=model.head.weight,
            tokens=ids[:, 1:],
        )
        torch.testing.assert_close(ours.weights, real.weights, atol=rounding(10), rtol=0)
        torch.testing.assert_close(ours.margin, real.margin, atol=rounding(10), rtol=0)


def test_rank_correlation_equals_scipy():
    stats = pytest.importorskip("scipy.stats")
    torch.manual_seed(1)
    for _ in range(5):
        first, second = torch.randint(0, 6, (40,)).double(), torch.randn(40).double()
        assert rank_correlation(first, second) == pytest.approx(
            stats.spearmanr(first, second).statistic, abs=rounding(40, dtype=torch.float64)
        )
