"""Learning curves of a study as one figure: mean accuracy by rollout batch, and the paired difference to the baseline."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import t as student

from delta_evidence.drawing import INK, LINES, MARGIN, RULE, SOFT, WIDTH, Canvas
from delta_evidence.learning.outcome import Outcome
from delta_evidence.learning.protocol import Protocol

SHOWN = 8  # as many lines as there are colours that can be told apart
WINDOW = 5  # batches that a point is the mean of: one batch of 256 responses has a standard error of 3 points
CURVES, DIFFERENCES, GAP, LEGEND = 300, 200, 64, 300
LEVEL = 0.95  # of the bands around differences


def curves_figure(protocol: Protocol, outcomes: Sequence[Outcome]) -> str:
    """Two panels a task, for at most `SHOWN` arms: those with the most seeds, in the protocol's order where they have as many."""
    arms = sorted(protocol.arms, key=lambda arm: -protocol.arms[arm])[:SHOWN]
    canvas = Canvas()
    canvas.text(MARGIN, 36, protocol.question[:1].upper() + protocol.question[1:], size=15, bold=True)
    canvas.text(
        MARGIN,
        58,
        f"Accuracy on new problems: means over seeds and {WINDOW} rollout batches (fewer at the ends), with one standard error. "
        f"Below: the paired difference to {protocol.baseline}, with {100 * LEVEL:.0f} % bands, batch by batch.",
        fill=SOFT,
    )
    top = 90.0
    for task in protocol.tasks:
        curves = {
            arm: {
                outcome.run.seed: smooth(outcome.curve)
                for outcome in outcomes
                if (outcome.run.task, outcome.run.arm) == (task, arm) and outcome.diverged is None
            }
            for arm in arms
        }
        lines = [
            _line(arm, list(by_seed.values()), LINES[order])
            for order, (arm, by_seed) in enumerate(curves.items())
            if by_seed
        ]
        if not lines:
            continue
        canvas.text(MARGIN, top + 8, task, size=14, bold=True)
        _panel(canvas, lines, top, CURVES)
        top += CURVES + GAP
        gaps = [
            _line(arm, paired, LINES[order], LEVEL)
            for order, arm in enumerate(curves)
            if arm != protocol.baseline and len(paired := _differences(curves, arm, protocol.baseline)) > 1
        ]
        if gaps:
            canvas.text(MARGIN, top + 8, f"difference to {protocol.baseline}, in points", size=12, fill=SOFT)
            _panel(canvas, gaps, top, DIFFERENCES, signed=True)
            top += DIFFERENCES + GAP
    return canvas.svg(top)


@dataclass(frozen=True)
class _Line:
    """A mean over seeds at every batch, with a band."""

    label: str
    colour: str
    points: list[tuple[float, float, float]]
    """Low, mean and high."""


def _line(arm: str, curves: Sequence[Sequence[float]], colour: str, level: float | None = None) -> _Line:
    """The band is one standard error of the mean, or the t interval of a level."""
    seeds = len(curves)
    errors = 1.0 if level is None or seeds < 2 else float(student.ppf((1 + level) / 2, seeds - 1))
    points = []
    for column in zip(*curves, strict=True):
        mean = statistics.fmean(column)
        reach = errors * statistics.stdev(column) / math.sqrt(seeds) if seeds > 1 else 0.0
        points.append((mean - reach, mean, mean + reach))
    short = f"{arm.partition('?')[0]}{'?…' if '?' in arm else ''}"
    return _Line(f"{short} ({seeds} {'pairs' if level else 'seeds'})", colour, points)


def _differences(curves: Mapping[str, Mapping[int, list[float]]], arm: str, baseline: str) -> list[list[float]]:
    own, base = curves[arm], curves.get(baseline, {})
    return [[a - b for a, b in zip(own[seed], base[seed], strict=True)] for seed in own.keys() & base.keys()]


def _panel(canvas: Canvas, lines: Sequence[_Line], top: float, height: float, *, signed: bool = False) -> None:
    values = [value for line in lines for point in line.points for value in point]
    least = math.floor(20 * min(values)) / 20
    most = max(math.ceil(20 * max(values)) / 20, least + 0.05)  # room also where all are alike
    left, right = MARGIN + 44, WIDTH - MARGIN - LEGEND
    length = max(len(line.points) for line in lines)

    def place(number: int, value: float) -> tuple[float, float]:
        across = left + (right - left) * number / max(1, length - 1)
        return across, top + 24 + (height - 48) * (most - value) / (most - least)

    for tick in range(round(least * 20), round(most * 20) + 1, max(1, round((most - least) * 20) // 6)):
        y = place(0, tick / 20)[1]
        canvas.line(left, y, right, y, SOFT if signed and tick == 0 else RULE)
        label = f"{5 * tick:+d}" if signed and tick else f"{5 * tick}{'' if signed else ' %'}"
        canvas.text(left - 8, y + 4, label, size=11, fill=SOFT, anchor="end")
    for number in range(0, length, max(1, length // 8)):
        canvas.text(place(number, least)[0], top + height, str(number + 1), size=11, fill=SOFT, anchor="middle")
    canvas.text(right, top + height + 18, "rollout batch", size=11, fill=SOFT, anchor="end")
    for order, line in enumerate(lines):
        low, middle, high = (
            [place(n, value) for n, value in enumerate(column)] for column in zip(*line.points, strict=True)
        )
        canvas.area(high + low[::-1], line.colour)
        canvas.path(middle, line.colour)
        y = top + 24 + 20 * order
        canvas.line(right + 18, y - 4, right + 42, y - 4, line.colour, 2.5)
        canvas.text(right + 48, y, line.label, fill=INK)


def smooth(curve: Sequence[float]) -> list[float]:
    """Means over a window that is centred, and narrower at the ends: the first batch, where all arms are one policy, stays as it is."""
    last = len(curve) - 1
    reach = [min(WINDOW // 2, place, last - place) for place in range(len(curve))]
    return [statistics.fmean(curve[place - wide : place + wide + 1]) for place, wide in enumerate(reach)]
