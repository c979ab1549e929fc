"""How answers of reasoning-gym's problems come about, for the generators where it can be told in a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Entry = Mapping[str, Any]
"""A problem as the generator gives it."""


def running_totals(entry: Entry) -> str:
    """A sum term by term: "4 + 5 - 1" is told as "4 + 5 = 9, 9 - 1 = 8"."""
    first, *rest = entry["metadata"]["expression"].split()
    total = int(first)
    steps = []
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        result = total + int(term) if sign == "+" else total - int(term)
        steps.append(f"{total} {sign} {term} = {result}")
        total = result
    return ", ".join(steps)


WORKINGS: dict[str, Callable[[Entry], str]] = {"chain_sum": running_totals}
"""By the generator's name."""
