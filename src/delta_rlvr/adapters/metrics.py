"""What trackers call the numbers of a method's weights: one prefix for every engine. The run folder has the same names without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIX = "credit/"
TOLD = (
    "signal_groups",
    "weight_signal_mean",
    "weight_signal_std",
    "update_share_positive",
    "update_share_plain",
    "reliability",
)
"""The numbers that tell most: those that TRL's console line and trackers get unless they are to have all."""


def tracked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers under the names that a tracker shows."""
    return {f"{PREFIX}{name}": value for name, value in values.items()}


def untracked(logged: Mapping[str, Any]) -> dict[str, Any]:
    """Of everything that an engine logs the numbers of the weights, under the names of the run folder."""
    return {name.removeprefix(PREFIX): value for name, value in logged.items() if name.startswith(PREFIX)}
