"""The tokens of both sides on the contrast of the centroids, before and after refinement, and the overlap of the sides.

A token's margin is its score on the contrast, with the sign of its side: score = +margin on the positive side, -margin on the negative
one. This needs margins between both centroids, which have both signs. Distances to the own centroid ("within_side") and unsigned scores
("alignment") have one sign and no common axis, and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delta_rlvr.evaluate.significance import auroc
from delta_rlvr.runs.layout import round_significant

BINS = 48
# The room of a tick's label, as a share of the axis.
TICK_ROOM = 0.11
# The most tokens of a step that are ranked and binned; of more, a seeded sample.
LIMIT = 400_000


def step_view(responses: Iterable[dict[str, Any]], step: int) -> dict[str, Any] | None:
    """Return the histograms and overlap of a sampled step; None if all margins have one sign or a side is missing."""
    scores: dict[str, dict[int, list[Any]]] = {"before": {1: [], -1: []}, "after": {1: [], -1: []}}
    for response in responses:
        advantage = response.get("advantage") or 0.0
        margin, initial = response.get("margin"), response.get("margin_initial")
        if not advantage or margin is None or initial is None:
            continue
        side = 1 if advantage > 0 else -1
        for moment, column in (("before", initial), ("after", margin)):
            scores[moment][side].extend(side * value for value in column if value is not None)
    margins = np.concatenate(
        [side * np.asarray(sides[side], np.float64) for sides in scores.values() for side in (1, -1)]
    )
    if not ((margins > 0).any() and (margins < 0).any()):
        return None
    moments = {}
    for moment, sides in scores.items():
        positive, negative = (_limited(np.asarray(sides[side], np.float64)) for side in (1, -1))
        if len(positive) < 2 or len(negative) < 2:
            return None
        moments[moment] = _moment(positive, negative)
    return {"step": step, **moments}


def summary(steps: list[dict[str, Any]]) -> str:
    """Return a sentence about what refinement does to the overlap, over all sampled steps."""
    before, after, auroc_before, auroc_after = (
        float(np.mean([step[moment][name] for step in steps]))
        for name in ("overlap", "auroc")
        for moment in ("before", "after")
    )
    change = 100 * (after / before - 1) if before > 0 else 0.0
    verb = "lowers" if after < before else "raises"
    if abs(change) < 0.5:
        effect = f"leaves the overlap of the two sides at {after:.3f}"
    else:
        effect = f"{verb} the overlap of the two sides from {before:.3f} to {after:.3f} ({change:+.0f} %)"
    over = "the one sampled step" if len(steps) == 1 else f"{len(steps)} sampled steps"
    return (
        f"Over {over}, refinement {effect}; the chance that a token of the positive side scores above one of the "
        f"negative side goes from {auroc_before:.3f} to {auroc_after:.3f}."
    )


def overlap(positive: NDArray[np.float64], negative: NDArray[np.float64]) -> float:
    """Return the shared area of the two sides' distributions: 1 = the same, 0 = apart.

    The bins have equal shares of the pooled tokens, so that neither outliers nor the scale of the axis change the result.
    """
    edges = np.unique(np.quantile(np.concatenate([positive, negative]), np.linspace(0, 1, BINS + 1)))
    if len(edges) < 2:
        return 1.0
    shares = [np.histogram(values, edges)[0] / len(values) for values in (positive, negative)]
    return float(np.minimum(*shares).sum())


def _moment(positive: NDArray[np.float64], negative: NDArray[np.float64]) -> dict[str, Any]:
    """Return histograms on an axis that is linear around 0, where the sides separate, and logarithmic far from it. Near-certain tokens
    have almost no gradient and all score near 0, so a linear axis would show little else."""
    pooled = np.concatenate([positive, negative])
    low, high = np.quantile(pooled, [0.002, 0.998])
    reach = max(abs(low), abs(high)) or 1.0
    unit = max(float(np.median(np.abs(pooled))), 0.01 * reach)

    def place(score: Any) -> NDArray[np.float64]:
        return np.arcsinh(np.asarray(score) / unit)

    # The axis always has zero, and some room on both sides of it.
    start, end = place(min(low, -0.1 * reach)), place(max(high, 0.1 * reach))
    edges = np.linspace(start, end, BINS + 1)
    # Tokens outside the range are counted in the outermost bins.
    shares = [np.histogram(np.clip(place(v), start, end), edges)[0] / len(v) for v in (positive, negative)]
    return {
        "positive": round_significant(shares[0].tolist(), 4),
        "negative": round_significant(shares[1].tolist(), 4),
        "edges": round_significant((np.sinh(edges) * unit).tolist(), 3),
        "ticks": ticks(lambda score: float((place(score) - start) / (end - start)), reach),
        "count_positive": len(positive),
        "count_negative": len(negative),
        "overlap": overlap(positive, negative),
        "auroc": auroc(positive, negative),
    }


def ticks(place: Callable[[float], float], reach: float) -> list[tuple[float, float]]:
    """Return (place, score) of round scores that have room on the axis. Zero comes first, then powers of ten from the outside in, then
    scores between them. `place` maps a score to 0 at the left end of the axis and 1 at the right end."""
    top = int(np.floor(np.log10(reach)))
    powers = range(top, top - 4, -1)
    sizes = [float(f"{factor}e{power}") for factor in (1, 5, 2) for power in powers]
    scores = [0.0, *(sign * size for size in sizes for sign in (1, -1))]
    chosen: list[tuple[float, float]] = []
    for score in scores:
        at = place(score)
        if 0.02 <= at <= 0.98 and all(abs(at - other) >= TICK_ROOM for other, _ in chosen):
            chosen.append((round(at, 4), score))
    return sorted(chosen)


def _limited(values: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(values) <= LIMIT:
        return values
    return np.random.default_rng(0).choice(values, LIMIT, replace=False)
