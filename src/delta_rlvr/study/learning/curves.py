"""Learning curves of a study as one figure: mean accuracy on each rollout batch over the seeds, with a band of one standard error."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from delta_rlvr.study.drawing import INK, LINES, MARGIN, RULE, SOFT, WIDTH, Canvas
from delta_rlvr.study.learning.protocol import Protocol
from delta_rlvr.study.learning.runner import Outcome

SHOWN = 8  # as many lines as there are colours that can be told apart
WINDOW = 5  # batches that a point is the mean of: one batch of 256 responses has a standard error of 3 points
PANEL, GAP, LEGEND = 300, 64, 210


def curves_figure(protocol: Protocol, outcomes: Sequence[Outcome]) -> str:
    """One panel a task, for at most `SHOWN` arms: those with the most seeds, in the protocol's order where they have as many."""
    arms = sorted(protocol.arms, key=lambda arm: -protocol.arms[arm])[:SHOWN]
    canvas = Canvas()
    canvas.text(MARGIN, 36, f"Accuracy over training: {protocol.question}", size=18, bold=True)
    canvas.text(
        MARGIN,
        58,
        f"Means over seeds of the accuracy on new problems, over {WINDOW} rollout batches; bands of one standard error.",
        fill=SOFT,
    )
    top = 90.0
    for task in protocol.tasks:
        here = [outcome for outcome in outcomes if outcome.run.task == task and outcome.run.arm in arms]
        if here:
            _panel(canvas, task, arms, here, top)
            top += PANEL + GAP
    return canvas.svg(top)


def _panel(canvas: Canvas, task: str, arms: Sequence[str], outcomes: Sequence[Outcome], top: float) -> None:
    rows = {arm: [smooth(outcome.curve) for outcome in outcomes if outcome.run.arm == arm] for arm in arms}
    found = {arm: _band(curves) for arm, curves in rows.items() if curves}
    values = [value for low, _, high in found.values() for value in (*low, *high)]
    least = math.floor(20 * min(values)) / 20
    most = max(math.ceil(20 * max(values)) / 20, least + 0.05)  # room also where all are alike
    left, right = MARGIN + 44, WIDTH - MARGIN - LEGEND
    length = max(len(middle) for _, middle, _ in found.values())

    def place(number: int, value: float) -> tuple[float, float]:
        across = left + (right - left) * number / max(1, length - 1)
        return across, top + 24 + (PANEL - 48) * (most - value) / (most - least)

    canvas.text(MARGIN, top + 8, task, size=14, bold=True)
    for tick in range(round(least * 20), round(most * 20) + 1, max(1, round((most - least) * 20) // 6)):
        y = place(0, tick / 20)[1]
        canvas.line(left, y, right, y, stroke=RULE)
        canvas.text(left - 8, y + 4, f"{5 * tick} %", size=11, fill=SOFT, anchor="end")
    for number in range(0, length, max(1, length // 8)):
        canvas.text(
            place(number, least)[0], top + PANEL, str(number + 1), size=11, fill=SOFT, anchor="middle"
        )
    canvas.text(right, top + PANEL + 18, "rollout batch", size=11, fill=SOFT, anchor="end")
    for order, (arm, (low, middle, high)) in enumerate(found.items()):
        colour = LINES[order % len(LINES)]
        band = [place(n, value) for n, value in enumerate(high)]
        band += [place(n, value) for n, value in reversed(list(enumerate(low)))]
        canvas.area(band, colour)
        canvas.path([place(n, value) for n, value in enumerate(middle)], colour)
        y = top + 24 + 20 * order
        canvas.line(right + 18, y - 4, right + 42, y - 4, stroke=colour, width=2.5)
        canvas.text(
            right + 48,
            y,
            f"{arm.partition('?')[0]}{'?…' if '?' in arm else ''} ({len(rows[arm])} seeds)",
            fill=INK,
        )


def smooth(curve: Sequence[float]) -> list[float]:
    """Means over a window that is centred, and shorter at the ends."""
    reach = WINDOW // 2
    return [statistics.fmean(curve[max(0, place - reach) : place + reach + 1]) for place in range(len(curve))]


def _band(curves: Sequence[Sequence[float]]) -> tuple[list[float], list[float], list[float]]:
    """Mean less, mean, and mean plus one standard error at every batch."""
    low, middle, high = [], [], []
    for column in zip(*curves, strict=True):
        mean = statistics.fmean(column)
        error = statistics.stdev(column) / math.sqrt(len(column)) if len(column) > 1 else 0.0
        low.append(mean - error)
        middle.append(mean)
        high.append(mean + error)
    return low, middle, high
