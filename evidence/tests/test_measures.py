"""Measures of planted credit against numbers worked out by hand and against plain loops."""

import math

import pytest
import torch

from delta_evidence.planted.measures import auroc, auroc_within, average_precision, drift, spread, update_mass_share

pytestmark = pytest.mark.numeric


def flags(*values):
    return torch.tensor(values, dtype=torch.bool)


def test_average_precision_by_hand():
    # order of labels 1 0 1 0: precision 1/1 and 2/3 where recall rises by a half
    assert average_precision(torch.tensor([4.0, 3.0, 2.0, 1.0]), flags(1, 0, 1, 0)) == pytest.approx((1 + 2 / 3) / 2)
    # all tied: they pass together, precision is the share of decisive tokens
    assert average_precision(torch.zeros(5), flags(0, 1, 0, 0, 0)) == pytest.approx(0.2)
    assert math.isnan(average_precision(torch.zeros(2), flags(0, 0)))


def test_auroc_and_average_precision_equal_a_loop():
    torch.manual_seed(0)
    for _ in range(20):
        scores, labels = torch.randint(0, 5, (30,)).float(), torch.rand(30) < 0.3
        labels[:2] = flags(1, 0)
        pairs = [(a, b) for a in scores[labels].tolist() for b in scores[~labels].tolist()]
        assert auroc(scores, labels) == pytest.approx(sum((a > b) + 0.5 * (a == b) for a, b in pairs) / len(pairs))
        total, recall = 0.0, 0.0
        for threshold in sorted(set(scores.tolist()), reverse=True):
            passed = scores >= threshold
            new_recall = (labels & passed).sum().item() / labels.sum().item()
            total += (new_recall - recall) * (labels & passed).sum().item() / passed.sum().item()
            recall = new_recall
        assert average_precision(scores, labels) == pytest.approx(total)


def test_within_bins_only_like_tokens_are_compared():
    given = torch.tensor([0.1, 0.2, 0.8, 0.9])
    labels = flags(1, 0, 1, 0)
    # over all pairs the scores 1 2 3 4 win one of four ((3 > 2)); within the halves both decisive tokens lose
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert auroc(scores, labels) == 0.25
    assert auroc_within(scores, labels, given, bins=2) == 0
    # bins count by their pairs: low half (2 x 1 pairs, both won), high half (1 x 2 pairs, one won)
    six = torch.tensor([5.0, 4.0, 1.0, 3.0, 2.0, 9.0])
    assert auroc_within(six, flags(1, 1, 0, 1, 0, 0), torch.arange(6.0), bins=2) == 0.75
    # a function of what is held equal has nothing to say, once equal values share their bin
    same = torch.tensor([0.3, 0.3, 0.3, 0.7, 0.7, 0.7])
    assert auroc_within(1 - same, flags(1, 0, 1, 0, 0, 1), same, bins=2) == 0.5
    assert math.isnan(auroc_within(scores, flags(1, 1, 0, 0), given, bins=2))


def test_update_mass_share_by_hand():
    # masses 1.2 * 2, 0.8 * 1, 1 * 3 (the sign of A does not matter), 5 * 0: decisive 2.4 of 6.2
    share = update_mass_share(
        torch.tensor([1.2, 0.8, 1.0, 5.0]), torch.tensor([2.0, 1.0, -3.0, 0.0]), flags(1, 0, 0, 1)
    )
    assert share == pytest.approx(2.4 / 6.2)
    assert math.isnan(update_mass_share(torch.ones(2), torch.zeros(2), flags(1, 0)))


def test_drift_by_hand():
    # order 1 2 3 against 2 1 3: Spearman 1 - 6 (1 + 1) / (3 * 8) = 0.5
    moved = drift(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 1.0, 3.0]))
    assert moved == {"rank_correlation": pytest.approx(0.5), "mean_absolute_change": pytest.approx(2 / 3)}
    flat = drift(torch.ones(3), torch.tensor([1.0, 1.0, 2.0]))
    assert math.isnan(flat["rank_correlation"])
    assert flat["mean_absolute_change"] == pytest.approx(1 / 3)


def test_spread_of_one_cell_is_the_t_interval():
    # mean 2, standard deviation 1, standard error 1 / sqrt(3), t(0.975, 2) = 4.302653
    found = spread([[1.0, 2.0, 3.0]])
    assert found.mean == 2
    assert found.high - 2 == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)  # the digits of the quantile
    assert 2 - found.low == pytest.approx(found.high - 2)


def test_spread_over_cells_counts_cells_alike_and_their_difference_not_at_all():
    # cell means 1.5 and 11 (a value that could not be measured is left out); variances 0.5 / 2 and 2 / 2, over 2^2: sum 0.3125
    found = spread([[1.0, 2.0], [10.0, 12.0, math.nan]])
    assert found.mean == pytest.approx(6.25)
    assert found.batches == 4
    # Welch and Satterthwaite: 0.3125^2 / (0.0625^2 + 0.25^2) = 1.470588; t(0.975, 1.470588) = 6.1709...
    from scipy import stats

    assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, 1.4705882353) * math.sqrt(0.3125))
    alone = spread([[1.0, 2.0], [3.0]])
    assert alone.mean == pytest.approx(2.25)
    assert math.isnan(alone.low)
    assert spread([[math.nan]]).batches == 0
