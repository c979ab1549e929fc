"""What a method's weights come to where they do not do what they look like: one sentence for check, terminal and page."""

from __future__ import annotations

HARDLY = 0.01
"""Weights whose standard deviation is less than this share of their mean tell no token from another."""
FAR = 3.0
"""A mean weight that is so many times above or below one makes another loss of it."""


def hardly_differ(mean: float, std: float) -> bool:
    """Of the tokens that have an advantage."""
    return std < HARDLY * mean or mean == std == 0


def weights_in_effect(mean: float, std: float) -> str | None:
    """A warning; None where there is nothing to say. Its numbers are rounded, so that it stays the same from step to step."""
    if mean == 0:
        return "every weight is 0: nothing is learnt"
    size = f"{float(f'{mean:.1g}'):g}"
    scaled = None
    if not 1 / FAR <= mean <= FAR:
        scaled = f"their mean is about {size}, which scales the loss: divide by the mean, unless that is meant"
    if hardly_differ(mean, std):
        said = "the weights hardly differ from each other: in effect, this is DAPO"
        return f"{said}; {scaled}" if scaled else said
    return scaled and f"the weights are far from one; {scaled}"
