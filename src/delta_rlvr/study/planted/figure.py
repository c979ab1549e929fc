"""The benchmark as one figure: a self-contained SVG that needs no library to make and none to show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from delta_rlvr.study.drawing import INK, LINES, MARGIN, RULE, SOFT, WIDTH, Canvas
from delta_rlvr.study.planted.conditions import CLEAN, NOISE, SHUFFLED
from delta_rlvr.study.planted.measures import Spread
from delta_rlvr.study.planted.methods import label
from delta_rlvr.study.planted.table import select, value

SIDES = {"right": LINES[0], "wrong": LINES[1]}
MARKS = ("circle", "square", "triangle", "diamond")
LABELS, ROW = 230, 19


def bench_figure(result: dict[str, Any]) -> str:
    """Dots for every weight (AUROC on right and on wrong responses, what the update gains), then how they bear noise."""
    canvas = Canvas()
    rows = select(result)
    canvas.text(MARGIN, 38, "Does the credit land on the tokens that decided?", size=22, bold=True)
    if not rows:
        canvas.text(
            MARGIN, 70, "No batch had a group with both outcomes: there is nothing to show.", fill=SOFT
        )
        return canvas.svg(100)
    y = _dots(canvas, result, sorted(rows, key=_merit, reverse=True), 66)
    y = _lines(canvas, result, y + 46)
    return canvas.svg(y + 20)


def _merit(row: dict[str, Any]) -> float:
    means = [value(row, f"{side}_auroc").mean for side in SIDES]
    known = [number for number in means if not math.isnan(number)]
    return sum(known) / len(known) if known else -1.0


def _dots(canvas: Canvas, result: dict[str, Any], rows: Sequence[dict[str, Any]], top: float) -> float:
    policies = [name for name in result["settings"]["policies"] if select(result, f"policy {name}")]
    marks = dict(zip(policies, MARKS * len(policies), strict=False))
    shuffled = {row["method"]: row for row in select(result, condition=SHUFFLED.name)}
    canvas.text(
        MARGIN,
        top,
        "Large dots: mean over policies and tasks, with a 95 % interval over rollout batches.",
        fill=SOFT,
    )
    x: float = MARGIN + 520
    if len(policies) > 1:
        canvas.text(x, top, "Small marks:", fill=SOFT)
        x += 84
        for name, shape in marks.items():
            canvas.mark(x, top - 4, shape, SOFT, size=3, hollow=True)
            canvas.text(x + 8, top, name, fill=SOFT)
            x += 32 + 6.6 * len(name)
    if shuffled:
        canvas.line(x + 8, top - 11, x + 8, top + 2, stroke=INK, width=1.6)
        canvas.text(x + 16, top, "the same weight with rewards shuffled within groups", fill=SOFT)
    top += 34
    panel = (WIDTH - 2 * MARGIN - LABELS - 60) / 3
    bottom = top + ROW * len(rows)
    by_policy = {name: {row["method"]: row for row in select(result, f"policy {name}")} for name in policies}
    for number, row in enumerate(rows):
        middle = top + ROW * (number + 0.5)
        if number % 2:
            canvas.parts.append(
                f'<rect x="{MARGIN}" y="{middle - ROW / 2:.1f}" width="{WIDTH - 2 * MARGIN}" height="{ROW}" fill="#f4f1ea"/>'
            )
        canvas.text(MARGIN + LABELS - 10, middle + 4, row["label"], anchor="end")
    for place, (side, colour) in enumerate(SIDES.items()):
        left = MARGIN + LABELS + place * (panel + 30)
        scale = axis(canvas, left, panel, top, bottom, 0, 1, 0.25, f"AUROC on {side} responses", middle=0.5)
        for number, row in enumerate(rows):
            y = top + ROW * (number + 0.5)
            key = f"{side}_auroc"
            for name in policies:
                spread = value(by_policy[name].get(row["method"], {}), key)
                if not math.isnan(spread.mean) and len(policies) > 1:
                    canvas.mark(
                        scale(spread.mean),
                        y,
                        marks[name],
                        colour,
                        size=2.6,
                        hollow=True,
                        title=f"{row['label']}, {name}: {spread.mean:.3f}",
                    )
            control = value(shuffled.get(row["method"], {}), key).mean
            if not math.isnan(control):
                canvas.line(scale(control), y - 7, scale(control), y + 7, stroke=INK, width=1.6)
            interval(canvas, scale, y, value(row, key), colour, row["label"])
    left = MARGIN + LABELS + 2 * (panel + 30)
    gains = [value(row, "cosine_gain") for row in rows]
    known = [gain.mean for gain in gains if not math.isnan(gain.mean)]
    if known:
        low, high = min(-0.05, *known), max(0.05, *known)
        step = 0.1 if high - low > 0.25 else 0.05
        low, high = math.floor(low / step) * step, math.ceil(high / step) * step
        scale = axis(
            canvas,
            left,
            panel,
            top,
            bottom,
            low,
            high,
            step,
            "cosine with the oracle's update, against DAPO",
            middle=0.0,
        )
        for number, (row, gain) in enumerate(zip(rows, gains, strict=True)):
            interval(canvas, scale, top + ROW * (number + 0.5), gain, "#00805f", row["label"])
    return bottom + 24


def interval(
    canvas: Canvas, scale: Callable[[float], float], y: float, spread: Spread, colour: str, label: str
) -> None:
    if math.isnan(spread.mean):
        return
    if not math.isnan(spread.low):
        canvas.line(scale(spread.low), y, scale(spread.high), y, stroke=colour, width=2.4)
    canvas.mark(scale(spread.mean), y, "circle", colour, title=f"{label}: {spread.mean:.3f}")


def axis(
    canvas: Canvas,
    left: float,
    width: float,
    top: float,
    bottom: float,
    low: float,
    high: float,
    step: float,
    title: str,
    *,
    middle: float,
) -> Callable[[float], float]:
    """A horizontal scale with its grid; what lies beyond its ends is drawn at them."""

    def scale(number: float) -> float:
        return left + width * (min(max(number, low), high) - low) / (high - low)

    canvas.text(left, top - 12, title, bold=True)
    for tick in range(round((high - low) / step) + 1):
        number = low + tick * step
        chance = abs(number - middle) < 1e-9
        canvas.line(
            scale(number),
            top,
            scale(number),
            bottom,
            stroke=SOFT if chance else RULE,
            dash="3 3" if chance else "",
        )
        canvas.text(
            scale(number),
            bottom + 15,
            f"{number:.2f}".rstrip("0").rstrip(".") or "0",
            size=11,
            fill=SOFT,
            anchor="middle",
        )
    return scale


def _lines(canvas: Canvas, result: dict[str, Any], top: float) -> float:
    """AUROC against the reward's noise, right and wrong."""
    noise = [
        (CLEAN.name, "0"),
        *((one.name, f"{one.noise:.0%}") for one in NOISE),
        (SHUFFLED.name, "shuffled"),
    ]
    by_noise = [
        (noise_name, {row["method"]: row for row in select(result, condition=name)})
        for name, noise_name in noise
    ]
    methods = [method for method in by_noise[0][1] if any(method in rows for _, rows in by_noise[1:])]
    if not methods:
        return top - 46
    colours = {method: LINES[place % len(LINES)] for place, method in enumerate(methods)}
    dashes = {method: "5 3" if place >= len(LINES) else "" for place, method in enumerate(methods)}
    width = (WIDTH - 2 * MARGIN - 230 - 80) / 2
    height = 220
    left: float = MARGIN + 20
    for side in SIDES:
        canvas.text(left, top - 8, f"AUROC, {side} responses", bold=True)
        for tick in (0, 0.25, 0.5, 0.75, 1):
            y = top + height * (1 - tick)
            canvas.line(
                left,
                y,
                left + width,
                y,
                stroke=SOFT if tick == 0.5 else RULE,
                dash="3 3" if tick == 0.5 else "",
            )
            canvas.text(left - 5, y + 4, f"{tick:g}", size=11, fill=SOFT, anchor="end")
        places = [
            left + width * (0.04 + 0.92 * number / (len(by_noise) - 1)) for number in range(len(by_noise))
        ]
        for x, (noise_name, _) in zip(places, by_noise, strict=True):
            canvas.text(x, top + height + 16, noise_name, size=11, fill=SOFT, anchor="middle")
        canvas.text(
            left + width / 2, top + height + 33, "verdicts flipped", size=11, fill=SOFT, anchor="middle"
        )
        for method in methods:
            drawn = [
                (x, top + height * (1 - spread.mean), noise_name, spread)
                for x, (noise_name, rows) in zip(places, by_noise, strict=True)
                if not math.isnan((spread := value(rows.get(method, {}), f"{side}_auroc")).mean)
            ]
            # Shuffled rewards are no more of the same noise: that point stands apart.
            joined = [(x, y) for x, y, noise_name, _ in drawn if noise_name != SHUFFLED.name]
            canvas.path(joined, colours[method], dashes[method])
            for x, y, noise_name, spread in drawn:
                canvas.mark(
                    x,
                    y,
                    "circle",
                    colours[method],
                    size=3,
                    title=f"{label(method)}, {noise_name}: {spread.mean:.3f}",
                )
        left += width + 40
    for number, method in enumerate(methods):
        y = top + 10 + 20 * number
        canvas.line(left - 10, y, left + 12, y, stroke=colours[method], width=2.4, dash=dashes[method])
        canvas.text(left + 18, y + 4, label(method))
    return top + height + 44
