"""Where the suite's tolerances come from: the dtype, the length of the sum and the size of the numbers, not one processor's luck.

Two right programs add the same numbers in another order: with other vector widths, thread counts, paddings or batches. Each addition
rounds by at most u = eps / 2, as often up as down, so that a sum of n numbers is off by about sqrt(n) u times the sum of their absolute
values (Higham and Mary 2019), and two such sums lie sqrt(2 n) u apart. We allow four times that. A chain of sums (layers, optimizer
steps) counts with the length of them all. A right program then never fails, and a wrong one is off by far more.

    float32, one rounding         3.4e-7 of the size
    float32, a sum of 100         3.4e-6
    float32, a chain of 10,000    3.4e-5
    float64, a chain of 10,000    6.3e-14
"""

import math

import torch

from delta_rlvr.credit.rules.ablations import Ablation, Selection
from delta_rlvr.credit.rules.forking import ForkingTokens

MODEL = 1000
"""Additions on the longest path through the suite's small models: a few layers of width 32 to 64, a softmax over 600 entries."""


FIVE_DIGITS, FOUR_DIGITS = 1e-4, 1e-3
"""Numbers that the run folder keeps, and the page writes, with so many significant digits: half a unit of the last one, twice."""


def rounding(terms: int = 1, size: float = 1.0, dtype: torch.dtype = torch.float32) -> float:
    """How far two sums of the same `terms` numbers may lie apart; `size`: the sum of their absolute values, or a bound of it."""
    return 4 * math.sqrt(2 * terms) * torch.finfo(dtype).eps / 2 * size


EXACT = rounding(100, dtype=torch.float64)
"""A hundred roundings of float64."""


def assert_clear_cut(rule, record, entropy=None):
    """Selections by rank and hard assignments jump where two tokens are nearly level: in the batch at hand none are, or rounding
    alone would decide what they do."""
    clear = 10 * rounding(MODEL)
    if isinstance(rule, ForkingTokens):
        ordered = entropy.sort().values
        place = int(rule.quantile * (len(ordered) - 1))
        assert ordered[place + 1] - ordered[place] > clear
    elif isinstance(rule, Selection):
        ordered = record.alpha[record.side != 0].sort(descending=rule.keep == "top").values
        kept = int(rule.share * len(ordered) + 0.5)
        assert abs(ordered[kept - 1] - ordered[kept]) > clear
    elif isinstance(rule, Ablation) and rule.assignment == "hard":
        margins = torch.cat([record.margin, record.margin_initial])
        assert margins[torch.cat([record.side] * 2) != 0].abs().min() > clear
