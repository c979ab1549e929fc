"""What tokens can be shaded by, and the range of each scale: one range for the whole run, so that a colour means the same at every
step and prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delta_rlvr.report.weights import OTHER, OWN, PLAIN, StepTokens

SHARE = "share:"
"""Before the key of weights: the share of the update that a token has under them."""
# One outlier must not wash out the rest.
_QUANTILE = 0.995


class Scales:
    """Gathers the extent of every shading, step by step."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._extent: dict[str, float] = {}
        self._weighted = False

    @property
    def weighted(self) -> bool:
        """Whether the run's own weights tell tokens apart."""
        return self._weighted

    def add(self, tokens: StepTokens, responses: Sequence[Mapping[str, Any]]) -> None:
        """Take a step into account."""
        self._weighted |= OWN in tokens.weights and tokens.varies(OWN)
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
        shares = nice(
            max((extent for key, extent in self._extent.items() if key.startswith(SHARE)), default=0.0)
        )
        found = []
        others = [key for key in self._extent if key.startswith(OTHER)]
        for key in (OWN, *others):
            group = f"{self._method} (this run)" if key == OWN else key.removeprefix(OTHER)
            if key in self._extent:
                span = nice(self._extent[key]) or 0.2
                found.append({"key": key, "label": "coefficient", "group": group, "centre": 1, "span": span})
            if SHARE + key in self._extent:
                found.append(
                    {"key": SHARE + key, "label": "share of the update", "group": group, "span": shares}
                )
        if self._weighted and SHARE + PLAIN in self._extent:
            plain = {"label": "share of the update", "group": "every weight 1", "span": shares}
            found.append({"key": SHARE + PLAIN, **plain})
        if self._extent.get("measured"):
            span = nice(self._extent["measured"])
            found.append(
                {
                    "key": "measured",
                    "label": "measured credit",
                    "group": "measured",
                    "centre": 0,
                    "span": span,
                }
            )
        if "probability" in self._extent:
            found.append({"key": "probability", "label": "probability", "group": "the policy", "span": 1.0})
        if "entropy" in self._extent:
            span = nice(self._extent["entropy"])
            found.append({"key": "entropy", "label": "entropy", "group": "the policy", "span": span})
        return found


def nice(value: float) -> float:
    """The next of 1, 2, 3, 5, 10 times a power of ten at or above `value`; 0 for 0."""
    if value <= 0:
        return 0.0
    scale = 10.0 ** np.floor(np.log10(value))
    # A hair of slack: 0.20000001 is 0.2.
    factor = next((f for f in (1, 2, 3, 5) if value <= f * scale * 1.02), 10)
    return float(f"{factor * scale:.3g}")
