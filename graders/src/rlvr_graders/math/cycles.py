"""Permutations as products of cycles, (1 2)(3 4), which have neither an order nor a first point."""

from __future__ import annotations

import re

from .characters import MAX_DIGITS

_SPACES = re.compile(r"\\[,;: ]|[~$\s]+")
_CYCLES = re.compile(r"(?:\(\d+\)){2,}|\(\d(?: \d)+\)(?:\(\d(?: \d)+\))*", re.ASCII)
"""One cycle alone needs its spaces: (12) may be a number."""
_ONE_CYCLE = re.compile(r"\(\d+\)", re.ASCII)


def cycles(text: str, *, of_permutation: bool = False) -> set[str]:
    """The cycles, each from its least point on; none for anything else. `of_permutation` where it is known to be one."""
    if "(" not in text or len(text) > MAX_DIGITS:
        return set()
    text = re.sub(r" *([()]) *", r"\1", _SPACES.sub(" ", text))
    rings = text.replace(" ", "")
    points = re.sub(r"[()]", "", rings)
    is_known = _CYCLES.fullmatch(text) or _CYCLES.fullmatch(rings) or (of_permutation and _ONE_CYCLE.fullmatch(rings))
    if not is_known or len({*points}) < len(points) or re.search(r"\(\d?\)", rings):
        return set()
    found = rings[1:-1].split(")(")
    return {ring[ring.index(min(ring)) :] + ring[: ring.index(min(ring))] for ring in found}
