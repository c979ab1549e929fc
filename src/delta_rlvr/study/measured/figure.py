"""Measured credit as one figure: where the weights land, and what the updates gain."""

from __future__ import annotations

import math
from typing import Any

from delta_rlvr.study.drawing import LINES, MARGIN, SOFT, WIDTH, Canvas
from delta_rlvr.study.measured.agreement import LABELS
from delta_rlvr.study.measured.table import ordered
from delta_rlvr.study.planted.figure import LABELS as LABEL_WIDTH
from delta_rlvr.study.planted.figure import ROW, axis, interval
from delta_rlvr.study.planted.table import value

PANELS = (
    ("right_auroc", "AUROC, right responses", LINES[0], 0.5),
    ("wrong_auroc", "AUROC, wrong responses", LINES[1], 0.5),
    ("gain", "gain of the update", "#00805f", 0.0),
    ("aim", "aim: cosine of the mean update", "#00805f", 0.0),
)
"""Measure, heading, colour, and where its scale has no skill."""


def measured_figure(result: dict[str, Any]) -> str:
    """A row per weight: AUROC for the top tenth by measured credit on both sides, gain and aim of the update."""
    canvas = Canvas()
    canvas.text(
        MARGIN, 38, "Do weights follow measured credit, and what do updates gain?", size=22, bold=True
    )
    rows = ordered(result)
    if not rows:
        canvas.text(
            MARGIN, 70, "No batch had a group with both outcomes: there is nothing to show.", fill=SOFT
        )
        return canvas.svg(100)
    canvas.text(
        MARGIN,
        66,
        f"Means over policies and tasks with 95 % intervals. {LABELS}: one half of the continuations as a score of the other. "
        "gain: 1 is what the true gradient gains at the same step length.",
        fill=SOFT,
    )
    top = 100
    bottom = top + ROW * len(rows)
    for number, row in enumerate(rows):
        middle = top + ROW * (number + 0.5)
        if number % 2:
            canvas.parts.append(
                f'<rect x="{MARGIN}" y="{middle - ROW / 2:.1f}" width="{WIDTH - 2 * MARGIN}" height="{ROW}" fill="#f4f1ea"/>'
            )
        canvas.text(MARGIN + LABEL_WIDTH - 10, middle + 4, row["label"], anchor="end")
    panel = (WIDTH - 2 * MARGIN - LABEL_WIDTH - 90) / len(PANELS)
    for place, (measure, heading, colour, chance) in enumerate(PANELS):
        left = MARGIN + LABEL_WIDTH + place * (panel + 30)
        spreads = [value(row, measure) for row in rows]
        known = [one.mean for one in spreads if not math.isnan(one.mean)]
        low = min(0.0, math.floor(min(known, default=0.0) * 4) / 4)
        high = 1.0 if measure.endswith("auroc") else max(0.25, math.ceil(max(known, default=1.0) * 4) / 4)
        scale = axis(canvas, left, panel, top, bottom, low, high, 0.25, heading, middle=chance)
        for number, (row, one) in enumerate(zip(rows, spreads, strict=True)):
            interval(canvas, scale, top + ROW * (number + 0.5), one, colour, row["label"])
    return canvas.svg(bottom + 44)
