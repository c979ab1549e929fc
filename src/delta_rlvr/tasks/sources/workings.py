"""How answers of reasoning-gym's problems come about, for the generators where it can be told in a line."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

Entry = Mapping[str, Any]
"""A problem as the generator gives it."""


_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def running_totals(entry: Entry) -> str:
    """A sum or a product term by term: "4 + 5 - 1" is written as "4 + 5 = 9, 9 - 1 = 8"."""
    first, *rest = entry["metadata"]["expression"].split()
    total = int(first)
    steps = []
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        result = _OPERATIONS[sign](total, int(term))
        steps.append(f"{total} {sign} {term} = {result}")
        total = result
    return ", ".join(steps)


def divisions(entry: Entry) -> str:
    """Euclid's algorithm on two numbers: for 18 and 12, "18 = 1 * 12 + 6, 12 = 2 * 6 + 0"."""
    numbers = entry["metadata"]["numbers"]
    if len(numbers) != 2:
        raise ValueError(f"the working of gcd is for two numbers, not {len(numbers)}: give max_numbers=2")
    larger, smaller = max(numbers), min(numbers)
    steps = []
    while smaller:
        times, rest = divmod(larger, smaller)
        steps.append(f"{larger} = {times} * {smaller} + {rest}")
        larger, smaller = smaller, rest
    return ", ".join(steps)


WORKINGS: dict[str, Callable[[Entry], str]] = {
    "chain_sum": running_totals,
    "products": running_totals,
    "gcd": divisions,
}
"""By the generator's name."""
