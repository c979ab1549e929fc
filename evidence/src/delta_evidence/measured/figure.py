"""Measured credit as one figure: where the weights land, and what the updates gain."""

from __future__ import annotations

import math
from typing import Any

from delta_evidence.drawing import LINES, MARGIN, SOFT, Canvas, DotRows
from delta_evidence.measured.agreement import LABELS
from delta_evidence.measured.table import ordered
from delta_evidence.planted.figure import SIDES, nothing_to_show
from delta_evidence.planted.table import value

PANELS = (
    ("right_auroc", "AUROC, right responses", SIDES["right"], 0.5),
    ("wrong_auroc", "AUROC, wrong responses", SIDES["wrong"], 0.5),
    ("gain", "gain of the update", LINES[0], 0.0),
    ("aim", "cosine of the mean update", LINES[0], 0.0),
)
"""Measure, heading, colour, and where its scale has no skill."""


def measured_figure(result: dict[str, Any]) -> str:
    """A row per weight: AUROC for the top tenth by measured credit on both sides, gain of the update and of its mean."""
    canvas = Canvas()
    canvas.text(MARGIN, 38, "Do weights follow measured credit, and what do updates gain?", size=22, bold=True)
    rows = ordered(result)
    if not rows:
        return nothing_to_show(canvas)
    canvas.text(
        MARGIN,
        66,
        f"Means over policies and tasks with 95 % intervals. {LABELS}: one half of the continuations as a score of the other. "
        "gain: 1 is what the true gradient gains at the same step length.",
        fill=SOFT,
    )
    dots = DotRows(canvas, [row["label"] for row in rows], top=100, panels=len(PANELS))
    for place, (measure, heading, colour, chance) in enumerate(PANELS):
        spreads = [value(row, measure) for row in rows]
        known = [one.mean for one in spreads if not math.isnan(one.mean)]
        low = min(0.0, math.floor(min(known, default=0.0) * 4) / 4)
        high = 1.0 if measure.endswith("auroc") else max(0.25, math.ceil(max(known, default=1.0) * 4) / 4)
        scale = dots.panel(place, heading, low, high, 0.25, middle=chance)
        for number, one in enumerate(spreads):
            dots.dot(number, scale, one.mean, one.low, one.high, colour)
    return canvas.svg(dots.bottom + 44)
