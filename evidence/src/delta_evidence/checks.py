"""What settings of several kinds refuse alike."""

from __future__ import annotations

from typing import Any


def at_least(settings: Any, **smallest: int) -> None:
    """Refuse settings that are below their smallest value; None stands for a default."""
    for name, least in smallest.items():
        value = getattr(settings, name)
        if value is not None and value < least:
            raise ValueError(f"{name}={value}: give at least {least}")
