"""What trackers call the numbers of a method's weights: one prefix for every engine. The run folder has the same names without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIX = "credit/"


def tracked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers under the names that a tracker shows."""
    return {f"{PREFIX}{name}": value for name, value in values.items()}


def untracked(logged: Mapping[str, Any]) -> dict[str, Any]:
    """Of everything that an engine logs the numbers of the weights, under the names of the run folder."""
    return {name.removeprefix(PREFIX): value for name, value in logged.items() if name.startswith(PREFIX)}
