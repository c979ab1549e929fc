"""Warnings about weights that have no effect or change the scale of the loss: one text for `methods`, terminal and page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

NOTHING = "every weight is 0: nothing is learnt"
ALIKE = "the weights hardly differ from each other: in effect, this is DAPO"

HARDLY = 0.01
"""Weights hardly differ if their standard deviation is less than this share of their mean."""
FAR = 3.0
"""A mean weight changes the scale of the loss if it is above this number or below its inverse."""


def hardly_differ(mean: float, std: float) -> bool:
    """Return whether the weights of the tokens with an advantage hardly differ."""
    return std < HARDLY * mean or mean == std == 0


def weights_in_effect(mean: float, std: float, digits: int = 1) -> str | None:
    """Return a warning, or None. Its numbers are rounded to so many digits; to one, so that it stays the same from step to step."""
    if mean == 0:
        return NOTHING
    size = f"{float(f'{mean:.{digits}g}'):g}"
    scaled = None
    if not 1 / FAR <= mean <= FAR:
        scaled = f"their mean is about {size}, which scales the loss: divide by the mean, unless that is meant"
    if hardly_differ(mean, std):
        return f"{ALIKE}; {scaled}" if scaled else ALIKE
    return scaled and f"the weights are far from one; {scaled}"


def without_effect(metrics: Iterable[Mapping[str, Any]]) -> str | None:
    """Return a warning if the weights had no effect in any batch with a learning signal, else None."""
    learnt = [line for line in metrics if line.get("signal_groups", 1)]
    pairs = [(line.get("weight_signal_mean"), line.get("weight_signal_std")) for line in learnt]
    known = [(mean, std) for mean, std in pairs if mean is not None and std is not None]
    if not known or not all(hardly_differ(mean, std) for mean, std in known):
        return None
    return ALIKE if any(mean for mean, _ in known) else NOTHING
