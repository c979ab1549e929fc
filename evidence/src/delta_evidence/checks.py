"""What settings of several kinds refuse alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delta_rlvr.tasks.contents import content_digest


def at_least(settings: Any, **smallest: int) -> None:
    """Refuse settings that are below their smallest value; None stands for a default."""
    for name, least in smallest.items():
        value = getattr(settings, name)
        if value is not None and value < least:
            raise ValueError(f"{name}={value}: give at least {least}")


def unchanged_contents(specs: Mapping[str, str], earlier: Mapping[str, str], what: str) -> dict[str, str]:
    """The digests of the files that these specs come from; refused where one is not as it was for `what`."""
    contents = {name: found for name, spec in specs.items() if (found := content_digest(spec))}
    if other := [name for name in contents if earlier.get(name, contents[name]) != contents[name]]:
        raise ValueError(
            f"{other[0]}: its file has changed since {what} were made; put it back, or give another --output"
        )
    return contents
