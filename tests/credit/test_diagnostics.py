"""Numbers about the weights: by hand, and reliability against centroids that are made of half of the responses in a loop."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from credit_batches import make_batch
from delta_rlvr import CreditStream, Delta
from delta_rlvr.credit.draws import uniform_draws
from delta_rlvr.credit.rules.uncertainty import Surprise
from rounding import MODEL, rounding


def diagnosed(rule, batch, **given):
    stream = CreditStream(rule)
    stream.add(batch["hidden"], batch["logps"], batch["mask"])
    return stream.solve(batch["advantages"], keys=batch["keys"], diagnose=True, **given)


def test_by_hand():
    """Two tokens on the right side (A = 1, p = 0.5 and 0.9), two on the wrong one (A = -2, p = 0.8 and 0.2), one at A = 0."""
    p = torch.tensor([0.5, 0.9, 0.8, 0.2, 0.3])
    stream = CreditStream(Surprise(0.0, 1.0))  # weight proportional to 1 - p: 0.5, 0.1, 0.2, 0.8, and 0 at A = 0
    stream.add(None, p.log(), lengths=torch.tensor([2, 2, 1]))
    record = stream.solve(torch.tensor([1.0, -2.0, 0.0]), diagnose=True)
    # |A| (1 - p): 0.5 + 0.1 on the right, 2 (0.2 + 0.8) on the wrong side. Weighed: 0.25 + 0.01 and 2 (0.04 + 0.64).
    assert record.diagnostics["update_share_plain"] == pytest.approx(0.6 / 2.6)
    assert record.diagnostics["update_share_positive"] == pytest.approx(0.26 / (0.26 + 1.36))
    # Weights 5 : 1 : 2 : 8. Gini: the mean difference of all 16 pairs, 2 (4 + 3 + 3 + 1 + 7 + 6) / 16 = 3, over twice the mean, 8.
    assert record.diagnostics["weight_gini"] == pytest.approx(3 / 8)
    assert record.diagnostics["weight_effective_share"] == pytest.approx(16**2 / (4 * (25 + 1 + 4 + 64)))
    assert "rank_positive" not in record.diagnostics  # two tokens are too few to rank
    assert "saturated" not in record.diagnostics  # no alpha
    assert record.summary()["update_share_plain"] == record.diagnostics["update_share_plain"]


def test_ranks_and_saturation():
    batch = make_batch(3)
    record = diagnosed(Delta(), batch)
    uncertain = 1 - batch["logps"][batch["mask"]].double().exp()
    for name, sign in (("positive", 1), ("negative", -1)):
        here = record.side == sign
        expected = stats.spearmanr(record.weights[here].numpy(), uncertain[here].numpy()).statistic
        assert record.diagnostics[f"rank_{name}"] == pytest.approx(expected, abs=rounding(MODEL, dtype=torch.float64))
    alpha = record.alpha[record.side != 0]
    assert record.diagnostics["saturated"] == pytest.approx(((alpha < 0.05) | (alpha > 0.95)).double().mean().item())


def test_reliability_is_the_agreement_of_two_halves():
    batch = make_batch(5)
    record = diagnosed(Delta(refinements=0), batch, round_number=4)
    keys = batch["keys"]
    first = (uniform_draws(0, 4, keys, torch.full_like(keys, -1)) < 0.5).tolist()
    assert 0 < sum(first) < len(first)
    hidden = batch["hidden"].double().numpy()
    factor = 1 - batch["logps"].double().exp().numpy()
    advantages, mask = batch["advantages"].tolist(), batch["mask"].numpy()
    tokens = [(i, t) for i in range(len(mask)) for t in range(mask.shape[1]) if mask[i, t] and advantages[i]]

    def margins(half):
        centroid = {}
        for sign in (1, -1):
            own = [(i, t) for i, t in tokens if first[i] == half and advantages[i] * sign > 0]
            mass = sum(abs(advantages[i]) for i, t in own)
            centroid[sign] = sum(abs(advantages[i]) * factor[i, t] * hidden[i, t] for i, t in own) / mass
        values = []
        for i, t in tokens:
            sign = 1 if advantages[i] > 0 else -1
            v = factor[i, t] * hidden[i, t]
            values.append(((v - centroid[-sign]) ** 2).sum() - ((v - centroid[sign]) ** 2).sum())
        return np.array(values)

    def alphas(values):
        # each side has its own temperature, so that ranks over both sides together need it
        side = np.array([1 if advantages[i] > 0 else -1 for i, _ in tokens])
        gamma = {sign: max(values[side == sign].std(), 1e-8) for sign in (1, -1)}
        return np.array([1 / (1 + math.exp(-v / gamma[s])) for v, s in zip(values, side, strict=True)])

    one, other = alphas(margins(True)), alphas(margins(False))
    own = np.array([first[i] for i, _ in tokens])
    expected = sum(half.mean() * stats.spearmanr(one[half], other[half]).statistic for half in (own, ~own))
    assert record.diagnostics["reliability"] == pytest.approx(expected, abs=rounding(MODEL))


def test_few_responses_without_any_contrast_do_not_contradict_each_other():
    """Tokens share a part with their response and know nothing of its side, so halves agree by chance alone: 0 in the mean. Over both
    halves together it would be -0.35, as each token is near the centroid that it is a part of."""
    found = []
    for number in range(60):
        draw = torch.Generator().manual_seed(number)
        hidden = torch.randn(8, 20, 32, generator=draw) + torch.randn(8, 1, 32, generator=draw)
        rewards = (torch.rand(8, generator=draw) < 0.5).double()
        batch = {"hidden": hidden, "logps": -2 * torch.rand(8, 20, generator=draw), "mask": torch.ones(8, 20).bool()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some have one side only
            record = diagnosed(
                Delta(), {**batch, "advantages": rewards - rewards.mean(), "keys": torch.arange(8)}, round_number=number
            )
        found += [record.diagnostics[name] for name in ("reliability",) if name in record.diagnostics]
    assert len(found) > 30
    # Single values spread by 0.24, and some are far below 0.
    assert abs(np.mean(found)) < 3 * 0.24 / math.sqrt(len(found))
    assert min(found) < -0.3


def test_halves_without_a_contrast_are_no_news():
    """Of one right and one wrong response each half lacks a side; the weights themselves have both."""
    batch = make_batch(1)
    advantages = torch.zeros(9)
    advantages[0], advantages[1] = 1.0, -1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record = diagnosed(Delta(), {**batch, "advantages": advantages})
    assert record.weights.std() > 0
    assert "reliability" not in record.diagnostics


def test_asking_changes_no_weight_and_a_batch_without_contrast_has_no_numbers():
    batch = make_batch(1)
    stream = CreditStream()
    stream.add(batch["hidden"], batch["logps"], batch["mask"])
    plain = stream.solve(batch["advantages"], keys=batch["keys"])
    assert plain.diagnostics == {}
    assert torch.equal(plain.weights, diagnosed(Delta(), batch).weights)
    with pytest.warns(UserWarning, match="no contrast"):
        empty = diagnosed(Delta(), {**batch, "advantages": torch.zeros(9)})
    assert "reliability" not in empty.diagnostics
    assert "update_share_positive" not in empty.diagnostics
    assert "weight_gini" not in empty.diagnostics
