"""Warnings about weights that have no effect or change the scale of the loss: one text for `methods`, terminal and page."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

NOTHING = "every weight is 0: nothing is learnt"
ALIKE = "the weights hardly differ from each other: in effect, this is DAPO"

HARDLY = 0.01
"""Weights hardly differ if their standard deviation is less than this share of their mean."""
FAR = 3.0
"""A mean weight changes the scale of the loss if it is above this number or below its inverse."""
FAR_ALIKE = 1.5
"""The same of weights that hardly differ: the scale is all that they do."""


def hardly_differ(mean: float, std: float) -> bool:
    """Return whether the weights of the tokens with an advantage hardly differ."""
    return std < HARDLY * mean or mean == std == 0


def weights_in_effect(mean: float, std: float, digits: int = 1) -> str | None:
    """Return a warning, or None. Its numbers are rounded to so many digits; to one, so that it stays the same from step to step."""
    if mean == 0:
        return NOTHING
    alike = hardly_differ(mean, std)
    far = FAR_ALIKE if alike else FAR
    if 1 / far <= mean <= far:
        return ALIKE if alike else None
    size = f"{float(f'{mean:.{digits}g}'):g}"
    scaled = f"their mean is about {size}, which scales the loss: divide by the mean, unless that is meant"
    divided = "; they hardly differ from each other: divided so, this is DAPO" if alike else ""
    return f"the weights are far from one; {scaled}{divided}"


def without_effect(metrics: Iterable[Mapping[str, Any]]) -> str | None:
    """Return a warning if the weights had no effect in any batch with a learning signal, else None."""
    known = _learnt(metrics)
    if not known or not all(hardly_differ(mean, std) for mean, std in known):
        return None
    return weights_in_effect(statistics.fmean(mean for mean, _ in known), 0.0)


def over_a_run(metrics: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the warning of `weights_in_effect` for the mean batch with a learning signal, or None."""
    known = _learnt(metrics)
    if not known:
        return None
    mean, std = (statistics.fmean(values) for values in zip(*known, strict=True))
    return weights_in_effect(mean, std)


def _learnt(metrics: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return mean and standard deviation of the weights in every batch with a learning signal."""
    learnt = [line for line in metrics if line.get("signal_groups", 1)]
    pairs = [(line.get("weight_signal_mean"), line.get("weight_signal_std")) for line in learnt]
    return [(mean, std) for mean, std in pairs if mean is not None and std is not None]
