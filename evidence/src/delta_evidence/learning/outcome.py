"""What is kept of a run: of each rollout batch while it trains, and of the whole when it is over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from delta_evidence.learning.protocol import Protocol, Run
from delta_evidence.rollouts import Rollouts
from delta_rlvr.objectives import mixed_share

RUNS = "runs.jsonl"

DIAGNOSTICS = (
    "weight_positive_mean",
    "weight_negative_mean",
    "update_share_positive",
    "update_share_plain",
    "rank_positive",
    "rank_negative",
    "saturated",
    "reliability",
    "weight_gini",
    "weight_effective_share",
    "weight_signal_mean",
    "weight_signal_std",
)
"""Numbers about the weights that outcomes keep (`CreditRecord.summary`, `credit.diagnostics`)."""
DIAGNOSED_EVERY = 5


@dataclass(frozen=True)
class BatchStatistics:
    """What is kept of a rollout batch of one run."""

    number: int
    """From 0."""
    accuracy: float
    """Mean verdict, before any noise: on problems that the run has not seen."""
    reward: float
    """Mean reward, noise included."""
    signal_groups: float
    """Share of groups whose rewards differ."""
    length: float
    """Mean tokens per response."""
    entropy: float
    """Mean over the valid tokens."""
    weight_sd: float
    """Standard deviation of the weights over the tokens with an advantage."""
    losses: tuple[float, ...]
    """Loss of each update."""
    gradient_norms: tuple[float, ...]
    """Before clipping."""
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    """What the weights do to the update (`DIAGNOSTICS`), in every `DIAGNOSED_EVERY`-th batch."""

    @classmethod
    def of(
        cls, number: int, rollouts: Rollouts, weights: Float[Tensor, "batch time"], group: int, **known: Any
    ) -> BatchStatistics:
        """Of one run's batch; `known`: losses, gradient norms and diagnostics."""
        sided = rollouts.mask & (rollouts.advantages != 0)[:, None]
        means = {
            "accuracy": rollouts.correct.mean(),
            "reward": rollouts.rewards.mean(),
            "signal_groups": mixed_share(rollouts.rewards, group),
            "length": rollouts.mask.sum(1).float().mean(),
            "entropy": rollouts.entropy[rollouts.mask].mean(),
            "weight_sd": weights[sided].std(correction=0) if sided.any() else weights.new_zeros(()),
        }
        # Stacked: one wait for the device.
        values = dict(zip(means, torch.stack(list(means.values())).tolist(), strict=True))
        return cls(number, **values, **known)


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    run: Run
    before: float
    """Held-out accuracy before training."""
    after: float | None
    """None for a run that diverged."""
    curve: list[float]
    """Accuracy on each rollout batch, before noise: problems that the run had not seen."""
    entropy: list[float]
    length: list[float]
    signal_groups: list[float]
    weight_sd: list[float]
    gradient_norm: list[float]
    """Of the batch's first update."""
    diverged: int | None = None
    """The batch (from 0) in which a loss or gradient was not finite; the run ended there. Written only where it happened."""
    diagnostics: dict[str, list[float | None]] = field(default_factory=dict)
    """Numbers about the weights by name (`DIAGNOSTICS`), in the batches that "batch" lists, None where a batch had none.
    Outcomes of older versions have none."""
    heldout: list[dict[str, Any]] = field(default_factory=list)
    """Further held-out scores (`heldout.Score`), each with its temperature, samples and the number of batches before it."""

    @classmethod
    def of(cls, run: Run, seen: Sequence[BatchStatistics], **known: Any) -> Outcome:
        """From the statistics of its batches, of which it keeps four digits."""

        def column(name: str) -> list[float]:
            return [_short(getattr(batch, name)) for batch in seen]

        columns: dict[str, Any] = {name: column(name) for name in ("entropy", "length", "signal_groups", "weight_sd")}
        norms = [_short(batch.gradient_norms[0]) for batch in seen]
        diagnostics: dict[str, list[float | None]] = {}
        if diagnosed := [batch for batch in seen if batch.diagnostics]:
            diagnostics["batch"] = [batch.number for batch in diagnosed]
            for name in DIAGNOSTICS:
                values = [batch.diagnostics.get(name) for batch in diagnosed]
                if any(value is not None for value in values):
                    diagnostics[name] = [None if value is None else _short(value) for value in values]
        curve = column("accuracy")
        return cls(run, curve=curve, **columns, gradient_norm=norms, diagnostics=diagnostics, **known)

    @property
    def weight_metrics(self) -> list[dict[str, Any]]:
        """What `weight_words` reads of the diagnosed batches; outcomes of older versions and of DAPO have none."""
        names = ("weight_signal_mean", "weight_signal_std")
        found = zip(*(self.diagnostics.get(name, ()) for name in ("batch", *names)), strict=False)
        return [
            {"signal_groups": self.signal_groups[int(batch or 0)], **dict(zip(names, pair, strict=True))}
            for batch, *pair in found
        ]

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        if self.diverged is None:
            del values["diverged"]
        for name in ("diagnostics", "heldout"):
            if not values[name]:
                del values[name]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Outcome:
        return cls(**{**values, "run": Run(**values["run"])})


def read_outcomes(folder: Path) -> list[Outcome]:
    """The outcomes that a study's folder holds."""
    place = folder / RUNS
    if not place.exists():
        return []
    outcomes = []
    for number, line in enumerate(place.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            outcomes.append(Outcome.from_dict(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{place}, line {number} is no outcome ({error}): delete that line") from error
    return outcomes


def missing_runs(protocol: Protocol, outcomes: Sequence[Outcome]) -> list[Run]:
    """The runs that the protocol plans, that this version can make and that have no outcome."""
    done = {outcome.run for outcome in outcomes}
    return [run for run in protocol.runs() if run not in done and run.arm not in protocol.retired]


def _short(value: float) -> float:
    return float(f"{value:.4g}")
