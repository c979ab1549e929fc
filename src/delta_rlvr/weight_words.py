"""Warnings about weights that have no effect or change the scale of the loss: one text for `methods`, terminal and page."""

from __future__ import annotations

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
        return "every weight is 0: nothing is learnt"
    size = f"{float(f'{mean:.{digits}g}'):g}"
    scaled = None
    if not 1 / FAR <= mean <= FAR:
        scaled = f"their mean is about {size}, which scales the loss: divide by the mean, unless that is meant"
    if hardly_differ(mean, std):
        alike = "the weights hardly differ from each other: in effect, this is DAPO"
        return f"{alike}; {scaled}" if scaled else alike
    return scaled and f"the weights are far from one; {scaled}"
