"""The shadings of tokens: the range of each scale, and the weights of further methods.

A scale has one range for the whole run, so that a colour means the same at every step and prompt. Weights of further methods are
computed from the rollouts that the run kept, so their rules must not need hidden states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delta_rlvr.report.weights import OTHER, OWN, PLAIN, StepTokens
from delta_rlvr.runs.layout import round_significant

GIVEN = {name: name for name in ("logps", "entropy", "decisive", "measured")}
GIVEN |= {"tokens": "ids", "groups": "group"}
"""The inputs of a rule that a kept rollout has, and their keys in its line."""
SHARE = "share:"
"""The prefix of a key of weights for the tokens' shares of the update under them."""
# Ignore outliers, which would make all other tokens pale.
_QUANTILE = 0.995


@dataclass
class Scales:
    """Collects the range of every shading over the steps."""

    method: str
    weighted: bool = False
    """Whether the run's own weights differ between tokens."""
    _extent: dict[str, float] = field(default_factory=dict)

    def add(self, tokens: StepTokens, responses: Sequence[Mapping[str, Any]]) -> None:
        """Include a step."""
        self.weighted |= OWN in tokens.weights and tokens.varies(OWN)
        for key, values in tokens.weights.items():
            if key != PLAIN:
                self._widen(key, np.abs(values - 1))
        for key, total in tokens.totals().items():
            self._widen(SHARE + key, tokens.update(key) / total)
        self._widen("probability", 1 - tokens.uncertain)
        entropies = [value for response in responses for value in response.get("entropy") or ()]
        self._widen("entropy", np.array(entropies, np.float64))
        self._widen("measured", np.abs(tokens.measured))

    def _widen(self, key: str, values: NDArray[np.float64]) -> None:
        known = values[np.isfinite(values)]
        if len(known):
            extent = float(np.quantile(known, _QUANTILE))
            self._extent[key] = max(extent, self._extent.get(key, 0.0))

    def shadings(self) -> list[dict[str, Any]]:
        """Return the shadings in the order of the page. `centre` is the blank value of a scale with two colours. Shares have the same
        scale for all methods, so that methods can be compared by eye."""
        extent = self._extent
        shares = nice(max((size for key, size in extent.items() if key.startswith(SHARE)), default=0.0))
        scales: list[dict[str, Any]] = []

        def add(key: str, label: str, group: str, span: float, **centre: int) -> None:
            if key in extent:
                scales.append({"key": key, "label": label, "group": group, **centre, "span": span})

        for key in (OWN, *(key for key in extent if key.startswith(OTHER))):
            group = f"{self.method} (this run)" if key == OWN else key.removeprefix(OTHER)
            add(key, "coefficient", group, nice(extent.get(key, 0.0)) or 0.2, centre=1)
            add(SHARE + key, "share of the update", group, shares)
        if self.weighted:
            add(SHARE + PLAIN, "share of the update", "every weight 1", shares)
        if extent.get("measured"):
            add("measured", "measured credit", "measured", nice(extent["measured"]), centre=0)
        add("probability", "probability", "the policy", 1.0)
        add("entropy", "entropy", "the policy", nice(extent.get("entropy", 0.0)))
        return scales


def nice(value: float) -> float:
    """Return the next of 1, 2, 3, 5, 10 times a power of ten at or above `value`; 0 for 0."""
    if value <= 0:
        return 0.0
    scale = 10.0 ** np.floor(np.log10(value))
    # With some slack, so that 0.20000001 is 0.2.
    factor = next((f for f in (1, 2, 3, 5) if value <= f * scale * 1.02), 10)
    return float(f"{factor * scale:.3g}")


def check_shadings(methods: Sequence[str]) -> None:
    """Refuse methods whose weights cannot be computed from kept rollouts."""
    if not methods:
        return  # without importing torch
    from delta_rlvr.credit.rule import check_needs
    from delta_rlvr.objectives import get_method

    for name in methods:
        check_needs(get_method(name).rho, GIVEN, "a run folder", f"shade_by={name!r}")


def shade_by(responses: Sequence[dict[str, Any]], methods: Sequence[str]) -> None:
    """Add the methods' weights to a step's responses. Their statistics are over these responses, not over the whole batch."""
    usable = [response for response in responses if response.get("tokens")]
    if not methods or not usable:
        return
    import torch

    from delta_rlvr.credit import CreditStream
    from delta_rlvr.objectives import get_method

    numbers: dict[Any, int] = {}
    groups = torch.tensor([numbers.setdefault(response.get("group"), len(numbers)) for response in usable])
    advantages = torch.tensor([response.get("advantage") or 0.0 for response in usable], dtype=torch.float64)
    lengths = torch.tensor([len(response["tokens"]) for response in usable])
    for name in methods:
        rule = get_method(name).rho
        arrays = {need: _packed(need, usable, name) for need in rule.needs if need != "groups"}
        stream = CreditStream(rule)
        stream.add(None, arrays.pop("logps", None), lengths=lengths, **arrays)
        weights = stream.solve(advantages, groups=groups).weights
        for response, row in zip(usable, weights.split(lengths.tolist()), strict=True):
            response.setdefault("other_weights", {})[name] = round_significant(row.tolist())


def _packed(need: str, responses: Sequence[Mapping[str, Any]], method: str) -> Any:
    """Return one array over the tokens of all responses."""
    import torch

    kinds = {"tokens": torch.int64, "decisive": torch.bool}
    values: list[Any] = []
    for response in responses:
        column = response.get(GIVEN[need])
        if column is None or any(value is None for value in column):
            raise ValueError(f"shade_by={method!r}: the run's rollouts have no {GIVEN[need]} for every token")
        values += column
    return torch.tensor(values, dtype=kinds.get(need, torch.float64))
