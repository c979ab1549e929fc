"""How well token weights agree with measured credit, on the tokens of the measured responses of one rollout batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from delta_evidence.measured.estimate import MeasuredCredit
from delta_evidence.planted.measures import SIDES, auroc, rank_agreement, weight_spread
from delta_evidence.rollouts import Rollouts

TOP = 0.1
"""The share of a side's tokens, largest |credit| first, that a weight is to find."""
OPEN = 0.1
"""The chance of success from which on a response counts as one that could still have been right."""
ROUNDING = 1e-6
"""Weights are float32: one that is this close to the mean, as a share of it, is the mean."""
LABELS = "labels"
"""The row that tells how reliable the labels are: one half of the samples as a score of the other."""


def choose(rollouts: Rollouts, count: int) -> list[int]:
    """Responses to measure: groups with both outcomes in turn, from each its next right and its next wrong response."""
    waiting = {
        (group, verdict): ((rollouts.groups == group) & (rollouts.advantages != 0) & (rollouts.correct == verdict))
        .nonzero()[:, 0]
        .tolist()
        for group in rollouts.groups.unique().tolist()
        for verdict in SIDES.values()
    }
    chosen: list[int] = []
    while any(waiting.values()) and len(chosen) < count:
        for rows in waiting.values():
            if rows and len(chosen) < count:
                chosen.append(rows.pop(0))
    return sorted(chosen)


class Labels:
    """The measured tokens of a batch, packed response by response."""

    def __init__(self, rollouts: Rollouts, rows: Sequence[int], credits: Sequence[MeasuredCredit]):
        self._rollouts = rollouts
        self._rows = torch.tensor(rows, device=rollouts.mask.device)
        self._mask = rollouts.mask[self._rows]
        self._right = self.take(rollouts.correct[:, None].expand_as(rollouts.mask))
        self._advantage = self.take(rollouts.advantages[:, None].expand_as(rollouts.mask))
        self.credit, self.low, self.high, self.first, self.second = (
            _packed([getattr(one, name) for one in credits]) for name in ("credit", "low", "high", "first", "second")
        )
        self._sure = (self.low > 0) | (self.high < 0)

    def take(self, values: Float[Tensor, "batch time"]) -> Float[Tensor, " token"]:
        """The measured tokens' entries of a whole batch's."""
        return values[self._rows][self._mask].double().cpu()

    def agreement(self, weights: Float[Tensor, "batch time"]) -> dict[str, float]:
        """Of one method's weights, with their mean and standard deviation (`weight_spread`).

        {side}_rank   Spearman's correlation of the weight with |credit| on responses of that side
        {side}_auroc  chance that a token of that side's top tenth by |credit| has a larger weight than another
        sign          share of the tokens whose interval leaves 0 out on which (weight - mean weight) A has the sign of the credit: the
                      weight pushes a token up, against DAPO with a loss of the same scale, where the credit is positive, and down
                      where it is negative. A weight that is the mean does neither and counts half; NaN where all weights are 0
        """
        own, spread = self.take(weights), weight_spread(weights, self._rollouts)
        mean = own.new_tensor(spread["weight_signal_mean"])
        agrees = (1 + ((own - mean) * self._advantage).sign() * self.credit.sign()) / 2
        agrees[own.isclose(mean, rtol=ROUNDING, atol=0)] = 0.5
        sign = self._over_sure(agrees) if mean or spread["weight_signal_std"] else math.nan
        return {"sign": sign} | spread | self._by_side(own, self.credit)

    def reliability(self) -> dict[str, float]:
        """The same of the labels: |credit| from either half of the samples against the other half, and how often their signs agree."""
        agrees = (1 + self.first.sign() * self.second.sign()) / 2
        there = self._by_side(self.first.abs(), self.second)
        back = self._by_side(self.second.abs(), self.first)
        return {"sign": self._over_sure(agrees)} | {key: (there[key] + back[key]) / 2 for key in there}

    def facts(self) -> dict[str, float]:
        facts: dict[str, float] = {"tokens": len(self.credit), "sure_share": self._sure.double().mean().item()}
        for side, verdict in SIDES.items():
            here = self._right == verdict
            facts[f"{side}_tokens"] = int(here.sum())
            facts[f"{side}_size"] = self.credit[here].abs().mean().item()  # NaN where there are none
        return facts

    def _over_sure(self, values: Float[Tensor, " token"]) -> float:
        """The mean over tokens whose interval leaves 0 out; NaN where there are none."""
        return values[self._sure].mean().item()

    def _by_side(self, score: Tensor, credit: Tensor) -> dict[str, float]:
        measures: dict[str, float] = {}
        for side, verdict in SIDES.items():
            here = self._right == verdict
            size = credit[here].abs()
            measures[f"{side}_rank"] = rank_agreement(score[here], size)
            measures[f"{side}_auroc"] = auroc(score[here], top(size))
        return measures


def top(size: Float[Tensor, " token"]) -> Bool[Tensor, " token"]:
    """The largest tenth; tokens without any credit are never among them."""
    chosen = torch.zeros(len(size), dtype=torch.bool)
    chosen[size.argsort(descending=True, stable=True)[: math.ceil(TOP * len(size))]] = True
    return chosen & (size > 0)


def planted_agreement(
    decisive: Sequence[Bool[np.ndarray, " token"]], right: Sequence[float], credits: Sequence[MeasuredCredit]
) -> Mapping[str, float]:
    """Whether the two truths agree.

    {side}_planted  AUROC of |credit| for the decisive tokens that a task knows, on responses of that side
    wrong_open      share of the wrong responses that could still have been right (`OPEN`) before the slip that the task names
    open_planted    AUROC on these alone: after a response is lost, a slip decides nothing, whatever the label says
    """

    def found_by_size(places: Sequence[int]) -> float:
        return auroc(
            _packed([np.abs(credits[place].credit) for place in places]),
            _packed([decisive[place] for place in places]).bool(),
        )

    of_side = {
        side: [place for place, score in enumerate(right) if score == verdict] for side, verdict in SIDES.items()
    }
    still_open = [
        place
        for place in of_side["wrong"]
        if decisive[place].any() and credits[place].value[int(decisive[place].argmax())] >= OPEN
    ]
    return {f"{side}_planted": found_by_size(places) for side, places in of_side.items()} | {
        "wrong_open": len(still_open) / len(of_side["wrong"]) if of_side["wrong"] else math.nan,
        "open_planted": found_by_size(still_open),
    }


def _packed(parts: Sequence[np.ndarray]) -> Float[Tensor, " token"]:
    return torch.from_numpy(np.concatenate([np.zeros(0), *parts]))
