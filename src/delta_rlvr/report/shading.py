"""What tokens can be shaded by: the range of each scale, and weights of methods that the run did not show.

A scale has one range for the whole run, so that a colour means the same at every step and prompt. The weights come from the rollouts
that the run kept: for rules that need no hidden states.
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
"""What a rule may need of a kept rollout, and where it stands in its line."""
SHARE = "share:"
"""Before the key of weights: the share of the update that a token has under them."""
# One outlier must not wash out the rest.
_QUANTILE = 0.995


@dataclass
class Scales:
    """Gathers the extent of every shading, step by step."""

    method: str
    weighted: bool = False
    """Whether the run's own weights tell tokens apart."""
    _extent: dict[str, float] = field(default_factory=dict)

    def add(self, tokens: StepTokens, responses: Sequence[Mapping[str, Any]]) -> None:
        """Take a step into account."""
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
        """In the order of the list on the page. `centre` is where a scale with two colours is blank; a scale of shares is the same for
        all methods, so that two of them can be compared by eye."""
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
    """The next of 1, 2, 3, 5, 10 times a power of ten at or above `value`; 0 for 0."""
    if value <= 0:
        return 0.0
    scale = 10.0 ** np.floor(np.log10(value))
    # A hair of slack: 0.20000001 is 0.2.
    factor = next((f for f in (1, 2, 3, 5) if value <= f * scale * 1.02), 10)
    return float(f"{factor * scale:.3g}")


def check_shadings(methods: Sequence[str]) -> None:
    """Refuse methods whose weights cannot be had from kept rollouts."""
    if not methods:
        return  # a page without them does not wait for torch
    from delta_rlvr.credit.rule import check_needs
    from delta_rlvr.objectives import get_method

    for name in methods:
        check_needs(get_method(name).rho, GIVEN, "a run folder", f"shade_by={name!r}")


def shade_by(responses: Sequence[dict[str, Any]], methods: Sequence[str]) -> None:
    """Add the methods' weights to a step's responses. Their statistics run over these responses alone, not over the whole batch."""
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
    """One array over all responses' tokens."""
    import torch

    kinds = {"tokens": torch.int64, "decisive": torch.bool}
    values: list[Any] = []
    for response in responses:
        column = response.get(GIVEN[need])
        if column is None or any(value is None for value in column):
            raise ValueError(f"shade_by={method!r}: the run's rollouts have no {GIVEN[need]} for every token")
        values += column
    return torch.tensor(values, dtype=kinds.get(need, torch.float64))
