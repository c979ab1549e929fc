"""The benchmark as one figure: where every weight lands and what its update gains, then how the weights bear noise in the rewards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from delta_evidence.drawing import INK, LINES, MARGIN, RULE, SOFT, WIDTH, Canvas, DotRows
from delta_evidence.methods import label
from delta_evidence.planted.conditions import CLEAN, NOISE, SHUFFLED
from delta_evidence.planted.table import Row, by_method, select, value

SIDES = {"right": LINES[2], "wrong": LINES[3]}
"""Their colours, here as on the page of a run."""
MARKS = ("circle", "square", "triangle", "diamond")


def bench_figure(result: dict[str, Any]) -> str:
    """Dots for every weight (AUROC on right and on wrong responses, what the update gains), then lines over noise."""
    canvas = Canvas()
    canvas.text(MARGIN, 38, "Does the credit land on the tokens that decided?", size=22, bold=True)
    rows = sorted(select(result), key=_merit, reverse=True)
    if not rows:
        return nothing_to_show(canvas)
    policies = {name: by_method(result, f"policy {name}") for name in result["settings"]["policies"]}
    policies = {name: own for name, own in policies.items() if own}
    shuffled = by_method(result, condition=SHUFFLED)
    _explain(canvas, list(policies), bool(shuffled))
    dots = DotRows(canvas, [row["label"] for row in rows], top=100, panels=3)
    for place, side in enumerate(SIDES):
        _finding(dots, place, side, rows, policies if len(policies) > 1 else {}, shuffled)
    _gains(dots, rows)
    return canvas.svg(_noise(canvas, result, dots.bottom + 24) + 20)


def nothing_to_show(canvas: Canvas) -> str:
    """The figure of a benchmark in which no group had a signal."""
    canvas.text(MARGIN, 70, "No batch had a group with both outcomes: there is nothing to show.", fill=SOFT)
    return canvas.svg(100)


def _merit(row: Row) -> float:
    means = [value(row, f"{side}_auroc").mean for side in SIDES]
    known = [number for number in means if not math.isnan(number)]
    return sum(known) / len(known) if known else -1.0


def _explain(canvas: Canvas, policies: Sequence[str], shuffled: bool) -> None:
    """What the dots, the small marks and the strokes are."""
    y, x = 66, MARGIN + 520.0
    words = "Large dots: mean over policies and tasks, with a 95 % interval over rollout batches."
    canvas.text(MARGIN, y, words, fill=SOFT)
    if len(policies) > 1:
        canvas.text(x, y, "Small marks:", fill=SOFT)
        x += 84
        for place, name in enumerate(policies):
            canvas.mark(x, y - 4, MARKS[place % len(MARKS)], SOFT, size=3, hollow=True)
            canvas.text(x + 8, y, name, fill=SOFT)
            x += 32 + 6.6 * len(name)
    if shuffled:
        canvas.line(x + 8, y - 11, x + 8, y + 2, INK, 1.6)
        canvas.text(x + 16, y, "the same weight with rewards shuffled within groups", fill=SOFT)


def _finding(
    dots: DotRows,
    place: int,
    side: str,
    rows: Sequence[Row],
    policies: dict[str, dict[str, Row]],
    shuffled: dict[str, Row],
) -> None:
    """AUROC on one side: a small mark per policy, a stroke for shuffled rewards, a dot for the mean."""
    canvas, key, colour = dots.canvas, f"{side}_auroc", SIDES[side]
    scale = dots.panel(place, f"AUROC on {side} responses", 0, 1, 0.25, middle=0.5)
    for number, row in enumerate(rows):
        y = dots.y(number)
        for shape, (name, own) in enumerate(policies.items()):
            mean = value(own.get(row["method"], {}), key).mean
            if not math.isnan(mean):
                title = f"{row['label']}, {name}: {mean:.3f}"
                mark = MARKS[shape % len(MARKS)]
                canvas.mark(scale(mean), y, mark, colour, size=2.6, hollow=True, title=title)
        control = value(shuffled.get(row["method"], {}), key).mean
        if not math.isnan(control):
            canvas.line(scale(control), y - 7, scale(control), y + 7, INK, 1.6)
        one = value(row, key)
        dots.dot(number, scale, one.mean, one.low, one.high, colour)


def _gains(dots: DotRows, rows: Sequence[Row]) -> None:
    """How much nearer to the oracle's update each method's comes than DAPO's."""
    gains = [value(row, "cosine_gain") for row in rows]
    known = [gain.mean for gain in gains if not math.isnan(gain.mean)]
    if not known:
        return
    low, high = min(-0.05, *known), max(0.05, *known)
    step = 0.1 if high - low > 0.25 else 0.05
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    scale = dots.panel(2, "cosine with the oracle's update, against DAPO", low, high, step, middle=0.0)
    for number, gain in enumerate(gains):
        dots.dot(number, scale, gain.mean, gain.low, gain.high, LINES[0])


def _noise(canvas: Canvas, result: dict[str, Any], above: float) -> float:
    """AUROC against the share of flipped verdicts, right and wrong; where the drawing ends."""
    names = {CLEAN: "0", **{name: f"{share:.0%}" for name, share in NOISE.items()}, SHUFFLED: SHUFFLED}
    conditions = {heading: by_method(result, condition=name) for name, heading in names.items()}
    clean, *others = conditions.values()
    methods = [method for method in clean if any(method in rows for rows in others)]
    if not methods:
        return above
    styles = {
        method: (LINES[place % len(LINES)], "5 3" if place >= len(LINES) else "")
        for place, method in enumerate(methods)
    }
    top, height, width = above + 46, 220, (WIDTH - 2 * MARGIN - 230 - 80) / 2
    left = MARGIN + 20.0
    for side in SIDES:
        canvas.text(left, top - 8, f"AUROC, {side} responses", bold=True)
        for tick in (0, 0.25, 0.5, 0.75, 1):
            y = top + height * (1 - tick)
            canvas.line(left, y, left + width, y, *((SOFT, 1, "3 3") if tick == 0.5 else (RULE,)))
            canvas.text(left - 5, y + 4, f"{tick:g}", size=11, fill=SOFT, anchor="end")
        places = {
            heading: left + width * (0.04 + 0.92 * number / (len(conditions) - 1))
            for number, heading in enumerate(conditions)
        }
        for heading, x in places.items():
            canvas.text(x, top + height + 16, heading, size=11, fill=SOFT, anchor="middle")
        canvas.text(left + width / 2, top + height + 33, "verdicts flipped", size=11, fill=SOFT, anchor="middle")
        for method, (colour, dash) in styles.items():
            means = {
                heading: mean
                for heading, rows in conditions.items()
                if not math.isnan(mean := value(rows.get(method, {}), f"{side}_auroc").mean)
            }
            points = {heading: (places[heading], top + height * (1 - mean)) for heading, mean in means.items()}
            # Shuffled rewards are no more of the same noise: that point stands apart.
            canvas.path([point for heading, point in points.items() if heading != "shuffled"], colour, dash)
            for heading, point in points.items():
                title = f"{label(method)}, {heading}: {means[heading]:.3f}"
                canvas.mark(*point, "circle", colour, size=3, title=title)
        left += width + 40
    for number, (method, (colour, dash)) in enumerate(styles.items()):
        y = top + 10 + 20 * number
        canvas.line(left - 10, y, left + 12, y, colour, 2.4, dash)
        canvas.text(left + 18, y + 4, label(method))
    return top + height + 44
