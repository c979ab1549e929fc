"""Names of the weights' metrics in trackers: those of the run folder behind a prefix, the same for every engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIX = "credit/"
MAIN_METRICS = (
    "signal_groups",
    "weight_signal_mean",
    "weight_signal_std",
    "update_share_positive",
    "update_share_plain",
    "reliability",
)
"""The most telling metrics: TRL's console line and trackers get only these, unless `all_credit_metrics` is set."""


def tracked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics under their names in trackers."""
    return {f"{PREFIX}{name}": value for name, value in values.items()}


def untracked(logged: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights' metrics among all that an engine logs, under their names in the run folder."""
    return {name.removeprefix(PREFIX): value for name, value in logged.items() if name.startswith(PREFIX)}
