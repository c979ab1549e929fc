"""Weights from measured credit, by hand."""

import pytest
import torch

from delta_rlvr.credit import credit_record
from delta_rlvr.credit.rules.measured import Measured
from delta_rlvr.objectives import get_method

MASK = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
CREDIT = torch.tensor([[0.4, -0.2, 0.0], [-0.6, 0.3, 9.0], [0.5, 0.0, 0.0]])
ADVANTAGES = torch.tensor([1.0, -1.0, 0.0])


def weights(rule):
    logps = torch.full(MASK.shape, -1.0)
    return credit_record(None, logps, ADVANTAGES, MASK, rule=rule, measured=CREDIT).weights.tolist()


def test_credit_counts_where_it_speaks_for_the_verdict():
    # Scores 0.4, 0, 0 | 0.6, 0 | 0 (no advantage): sum 1 over 6 tokens.
    assert weights(Measured()) == pytest.approx([2.4, 0, 0, 3.6, 0, 0])


def test_the_range_bounds_the_weights():
    # 0.8 + 0.4 score: 0.96, 0.8, 0.8, 1.04, 0.8, 0.8 with sum 5.2
    rule = get_method("measured-range").rule
    assert weights(rule) == pytest.approx([x * 6 / 5.2 for x in (0.96, 0.8, 0.8, 1.04, 0.8, 0.8)])


def test_no_credit_at_all_is_plain():
    nothing = credit_record(
        None, torch.zeros(MASK.shape), ADVANTAGES, MASK, rule=Measured(), measured=torch.zeros(MASK.shape)
    )
    assert nothing.weights.tolist() == [1] * 6
