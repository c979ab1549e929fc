"""How well a token weight finds the tokens that decided: on tokens with planted labels, and on whole rollout batches."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from scipy import stats
from torch import Tensor

from delta_evidence.rollouts import Rollouts
from delta_rlvr.credit.diagnostics import rank_correlation
from delta_rlvr.evaluate import significance
from delta_rlvr.objectives import mixed_share

SIDES = {"right": 1.0, "wrong": 0.0}
"""Which verdict the responses have whose tokens count."""
BINS = (10, 50)
"""Quantile bins of p within which tokens are alike. In tenths 1 - p still tells a good deal, since p spreads within the lowest."""
LEVEL = 0.95


def auroc(scores: Float[Tensor, " token"], labels: Bool[Tensor, " token"]) -> float:
    """P(decisive > other) + P(equal) / 2; NaN where one of the two is missing."""
    values = scores.double().cpu().numpy()
    decisive = labels.cpu().numpy()
    return significance.auroc(values[decisive], values[~decisive])


def average_precision(scores: Float[Tensor, " token"], labels: Bool[Tensor, " token"]) -> float:
    """Sum over thresholds of precision times the recall gained; tokens with one score pass together.

    Without skill it is the share of decisive tokens. NaN where there is none.
    """
    if not labels.any():
        return math.nan
    ordered, order = scores.double().sort(descending=True)
    hits = labels[order].double().cumsum(0)
    last_of_tie = torch.ones_like(ordered, dtype=torch.bool)
    last_of_tie[:-1] = ordered[1:] != ordered[:-1]
    passed = (torch.arange(len(ordered), device=scores.device) + 1)[last_of_tie]
    hits_so_far = hits[last_of_tie]
    gained = torch.diff(hits_so_far, prepend=hits_so_far.new_zeros(1))
    return ((hits_so_far / passed) * gained).sum().item() / hits[-1].item()


def auroc_within(
    scores: Float[Tensor, " token"], labels: Bool[Tensor, " token"], given: Float[Tensor, " token"], bins: int
) -> float:
    """AUROC among tokens that are alike in `given`: of all pairs within one of its quantile bins, the share that is ordered right.

    With the probability of the sampled token as `given`, a weight that is a function of it has little left to tell tokens apart
    by. Equal values of `given` share a bin. NaN where no bin has both kinds.
    """
    shares = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=given.device)[1:-1]
    place = torch.bucketize(given.double(), torch.quantile(given.double(), shares), right=True)
    # A key that orders by bin first and by score within it: then one sorted list answers for all bins.
    rank = scores.double().unique(return_inverse=True)[1]
    levels = len(rank) + 1
    key = place * levels + rank
    others = key[~labels].sort().values
    first = torch.searchsorted(others, place[labels] * levels)
    past = torch.searchsorted(others, (place[labels] + 1) * levels)
    below = torch.searchsorted(others, key[labels], right=False) - first
    not_above = torch.searchsorted(others, key[labels], right=True) - first
    pairs = (past - first).sum().item()
    return (below + not_above).sum().item() / (2 * pairs) if pairs else math.nan


def update_mass_share(
    weights: Float[Tensor, " token"], advantages: Float[Tensor, " token"], labels: Bool[Tensor, " token"]
) -> float:
    """Share of the update's mass, sum of rho |A|, that lies on decisive tokens; NaN where there is no mass."""
    mass = weights.double() * advantages.double().abs()
    total = mass.sum().item()
    return mass[labels].sum().item() / total if total > 0 else math.nan


def rank_agreement(weights: Float[Tensor, " token"], others: Float[Tensor, " token"]) -> float:
    """Spearman's correlation; NaN where one of the two is constant, or there is no token."""
    if not len(weights) or bool((weights == weights[0]).all()) or bool((others == others[0]).all()):
        return math.nan
    return rank_correlation(weights, others)


def drift(weights: Float[Tensor, " token"], before: Float[Tensor, " token"]) -> dict[str, float]:
    """How far weights moved from what they were before a perturbation, on the tokens that both have."""
    return {
        "rank_correlation": rank_agreement(weights, before),
        "mean_absolute_change": (weights.double() - before.double()).abs().mean().item(),
    }


@dataclass(frozen=True)
class Spread:
    """A mean over cells (task x policy) and what other rollouts of the same cells would do to it."""

    mean: float
    low: float
    high: float
    batches: int
    """Values behind it; `low` and `high` are NaN where no cell has two."""


def spread(cells: Sequence[Sequence[float]]) -> Spread:
    """Mean over cells of their means over batches, with a t interval over the independent batches within cells.

    Cells are fixed: the interval says what new rollouts would change, not what new tasks or policies would. Degrees of freedom by
    Welch and Satterthwaite. NaN values (nothing to measure in a batch) are left out.
    """
    kept = [known for cell in cells if (known := [value for value in cell if not math.isnan(value)])]
    count = sum(map(len, kept))
    if not kept:
        return Spread(math.nan, math.nan, math.nan, 0)
    mean = math.fsum(math.fsum(cell) / len(cell) for cell in kept) / len(kept)
    if min(map(len, kept)) < 2:
        return Spread(mean, math.nan, math.nan, count)
    errors = [statistics.variance(cell) / len(cell) / len(kept) ** 2 for cell in kept]
    variance = math.fsum(errors)
    if variance == 0:
        return Spread(mean, mean, mean, count)
    freedom = variance**2 / math.fsum(e**2 / (len(cell) - 1) for e, cell in zip(errors, kept, strict=True))
    reach = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(variance)
    return Spread(mean, mean - reach, mean + reach, count)


def measure_weights(
    weights: Float[Tensor, "batch time"], rollouts: Rollouts, advantages: Float[Tensor, " batch"]
) -> dict[str, float]:
    """How well weights find the decisive tokens of right and of wrong responses; tokens without an advantage do not count."""
    labels = _labels(rollouts)
    live = rollouts.mask & (advantages != 0)[:, None]
    token_advantages = advantages[:, None].expand_as(weights)
    measures = {"mass_share": update_mass_share(weights[live], token_advantages[live], labels[live])}
    for side, verdict in SIDES.items():
        here = live & (rollouts.correct == verdict)[:, None]
        scores, decisive, p = weights[here], labels[here], rollouts.logps[here].exp()
        measures[f"{side}_auroc"] = auroc(scores, decisive)
        measures[f"{side}_precision"] = average_precision(scores, decisive)
        for bins in BINS:
            alike = auroc_within(scores, decisive, p, bins) if len(scores) else math.nan
            measures[f"{side}_alike_{bins}"] = alike
    return measures


def weight_spread(weights: Float[Tensor, "batch time"], rollouts: Rollouts) -> dict[str, float]:
    """Mean and standard deviation of the weights of tokens with an advantage, by their names in a run's metrics."""
    learnt = weights[rollouts.mask & (rollouts.advantages != 0)[:, None]].double()
    return {"weight_signal_mean": learnt.mean().item(), "weight_signal_std": learnt.std(correction=0).item()}


def batch_facts(rollouts: Rollouts, group: int) -> dict[str, float]:
    """What the batch is like: without mixed groups there is no credit to give."""
    labels = _labels(rollouts)
    facts = {
        "accuracy": rollouts.correct.mean().item(),
        "mixed_groups": mixed_share(rollouts.correct, group).item(),
        "length": rollouts.mask.sum(1).float().mean().item(),
    }
    for side, verdict in SIDES.items():
        here = rollouts.mask & ((rollouts.advantages != 0) & (rollouts.correct == verdict))[:, None]
        decisive = labels & here
        facts[f"{side}_tokens"] = int(here.sum())
        facts[f"{side}_decisive_share"] = (decisive.sum() / here.sum()).item() if here.any() else math.nan
        facts[f"{side}_decisive_p"] = rollouts.logps[decisive].exp().median().item() if decisive.any() else math.nan
    return facts


def length_terciles(rollouts: Rollouts) -> list[Bool[Tensor, " batch"]]:
    """The responses with an advantage in three parts of like size, shortest first."""
    live = (rollouts.advantages != 0).nonzero()[:, 0]
    order = live[rollouts.mask[live].sum(1).argsort(stable=True)]
    every = torch.arange(len(rollouts.advantages), device=order.device)
    return [torch.isin(every, rows) for rows in order.tensor_split(3)]


def small_sample(rollouts: Rollouts, tokens: int) -> Int[Tensor, " some"]:
    """Rows of the first mixed groups, up to `tokens` tokens: two right and two wrong responses of each."""
    chosen: list[int] = []
    total = 0
    for group in rollouts.groups.unique().tolist():
        rows = ((rollouts.groups == group) & (rollouts.advantages != 0)).nonzero()[:, 0]
        picked = torch.cat([rows[rollouts.correct[rows] == verdict][:2] for verdict in SIDES.values()])
        total += int(rollouts.mask[picked].sum())
        if total > tokens:
            break
        chosen += picked.tolist()
    return torch.tensor(chosen, dtype=torch.int64, device=rollouts.mask.device)


def _labels(rollouts: Rollouts) -> Bool[Tensor, "batch time"]:
    if rollouts.decisive is None:
        raise ValueError("rollouts: the decisive tokens are not there; collect them with decisive=True")
    return rollouts.decisive
