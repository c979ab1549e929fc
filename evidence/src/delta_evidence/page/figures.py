"""The page's two figures: every arm against its baseline, and accuracy against entropy along training."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from delta_evidence.drawing import LINES, MARGIN, RULE, SOFT, WIDTH, Canvas, DotRows, Points
from delta_evidence.learning.curves import smooth
from delta_evidence.page.studies import KeptStudy, short_task
from delta_rlvr.evaluate.seeds import mean_over_seeds

SHOWN = 6  # lines a panel


class _Rows(DotRows):
    LABELS = 330


def forest(studies: Iterable[KeptStudy]) -> str:
    """Every arm of every study of a language model, task by task: over training and at the end."""
    rows = []
    for study in studies:
        if not study.real or study.protocol.baseline != "dapo":
            continue
        for arm in study.protocol.arms:
            for task in dict.fromkeys(short_task(name) for name in study.protocol.tasks):
                pairs = [pair for pair in study.pairs(arm) if pair.task == task]
                if arm != study.protocol.baseline and len(pairs) > 1:
                    label = f"{_short(arm)}, {task}, lr {study.rate} ({len(pairs)})"
                    declared = study.protocol.primary is not None and study.protocol.primary.arm == arm
                    rows.append((label, declared, pairs))
    canvas = Canvas()
    canvas.text(MARGIN, 36, "Every arm against DAPO, paired by seed", size=15, bold=True)
    words = "Points, with Student's 95 % intervals; in brackets the pairs. Blue: the study's primary arm. Beyond the scale: at its end."
    canvas.text(MARGIN, 58, words, fill=SOFT)
    dots = _Rows(canvas, [label for label, _, _ in rows], 104, 2)
    for place, (title, name) in enumerate((("over training", "over_training"), ("at the end", "at_the_end"))):
        scale = dots.panel(place, title, -8, 8, 2, 0)
        for number, (_, declared, pairs) in enumerate(rows):
            mean = mean_over_seeds([100 * getattr(pair, name) for pair in pairs])
            dots.dot(number, scale, mean.mean, mean.low, mean.high, LINES[0] if declared else SOFT)
    return canvas.svg(dots.bottom + 34)


def paths(studies: Sequence[KeptStudy]) -> str:
    """Accuracy against entropy along training: means over seeds, from the upper right (unsure) to the left."""
    canvas = Canvas()
    canvas.text(MARGIN, 36, "Accuracy against entropy along training", size=15, bold=True)
    words = "Means over seeds and five rollout batches. Every path begins on the right, where the policy is unsure. Dots: batch 10."
    canvas.text(MARGIN, 58, words, fill=SOFT)
    panels = [
        (study, task)
        for study in studies
        if study.real and study.protocol.baseline == "dapo"
        for task in study.protocol.tasks
        if any(one.run.task == task for one in study.outcomes)
    ]
    columns, height = 3, 300
    width = (WIDTH - 2 * MARGIN - (columns - 1) * 24) / columns
    for number, (study, task) in enumerate(panels):
        left = MARGIN + (number % columns) * (width + 24)
        _panel(canvas, study, task, left, 84 + (number // columns) * (height + 40), width, height)
    return canvas.svg(84 + math.ceil(len(panels) / columns) * (height + 40))


def _panel(canvas: Canvas, study: KeptStudy, task: str, left: float, top: float, width: float, height: float) -> None:
    lines: dict[str, Points] = {}
    for arm in study.protocol.arms:
        runs = [one for one in study.outcomes if (one.run.arm, one.run.task, one.diverged) == (arm, task, None)]
        if runs and len(lines) < SHOWN:
            entropy = smooth([statistics.fmean(values) for values in zip(*(one.entropy for one in runs), strict=True)])
            accuracy = smooth([statistics.fmean(values) for values in zip(*(one.curve for one in runs), strict=True)])
            lines[arm] = list(zip(entropy, accuracy, strict=True))
    everything = [point for line in lines.values() for point in line]
    low, high = (math.log10(end(x for x, _ in everything)) for end in (min, max))
    most = 0.1 * math.ceil(10 * max(y for _, y in everything))
    inner, bottom = left + 34, top + height - 30

    def place(x: float, y: float) -> tuple[float, float]:
        across = inner + (left + width - inner) * (math.log10(x) - low) / (high - low)
        return across, bottom - (bottom - top - 26) * y / most

    canvas.text(left, top + 8, f"{study.name.partition('/')[0]}: {short_task(task)}, lr {study.rate}", bold=True)
    for tick in range(round(10 * most) + 1):
        y = place(10**low, tick / 10)[1]
        canvas.line(inner, y, left + width, y, RULE)
        if tick % 2 == 0:
            canvas.text(inner - 6, y + 4, f"{10 * tick} %", size=10, fill=SOFT, anchor="end")
    for nats in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0):
        if low <= math.log10(nats) <= high:
            x = place(nats, 0)[0]
            canvas.line(x, bottom, x, bottom + 4, SOFT)
            canvas.text(x, bottom + 16, f"{nats:g}", size=10, fill=SOFT, anchor="middle")
    canvas.text(left + width, bottom + 28, "entropy, nats per token", size=10, fill=SOFT, anchor="end")
    for number, (arm, line) in enumerate(lines.items()):
        canvas.path([place(*point) for point in line], LINES[number])
        canvas.mark(*place(*line[min(10, len(line) - 1)]), "circle", LINES[number], size=3.5, title=arm)
        canvas.text(left + width, top + 30 + 14 * number, _short(arm), size=10, fill=LINES[number], anchor="end")


def _short(arm: str) -> str:
    """The arm's name, with the values of its settings alone."""
    name, _, settings = arm.partition("?")
    values = [one.partition("=")[2] for one in settings.split("&") if settings]
    return f"{name} ({', '.join(values)})" if values else name
