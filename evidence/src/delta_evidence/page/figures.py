"""The page's two figures: every arm against its baseline, and accuracy against entropy along training."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from delta_evidence.drawing import LINES, MARGIN, RULE, SOFT, WIDTH, Canvas, DotRows, Points
from delta_evidence.learning.curves import smooth
from delta_evidence.page.studies import KeptStudy, Pair, short_task
from delta_rlvr.evaluate.seeds import mean_over_seeds

SHOWN = 6  # lines a panel


class _Rows(DotRows):
    LABELS = 340


def forest(studies: Iterable[KeptStudy]) -> str:
    """Every arm of every study of a language model against DAPO, task by task: over training and at the end."""
    rows: list[tuple[str, bool, list[Pair]]] = []  # without pairs: a heading
    drawn = set()
    for study in studies:
        if not study.real:
            continue
        for task in dict.fromkeys(short_task(name) for name in study.protocol.tasks):
            found = []
            for arm in study.protocol.arms:
                pairs = [pair for pair in study.pairs(arm) if pair.task == task]
                # Studies that go on from others hold copies of their runs.
                runs = (arm, task, tuple(sorted((pair.seed, pair.over_training) for pair in pairs)))
                if len(pairs) > 1 and runs not in drawn:
                    drawn.add(runs)
                    declared = study.protocol.primary is not None and study.protocol.primary.arm == arm
                    found.append((f"{_short(arm)}, {len(pairs)} pairs", declared, pairs))
            if found:
                rows += [(f"{study.name}: {task}, lr {study.rate}", False, []), *found]
    canvas = Canvas()
    canvas.text(MARGIN, 36, "Every arm against DAPO, paired by seed", size=15, bold=True)
    words = (
        "Points, with Student's 95 % intervals (from 5 pairs). Blue: the study's primary arm. Beyond the scale: at its end. "
        "patched-: from a copy of DelTA that was changed by hand. Left out: a study that tunes rates."
    )
    canvas.text(MARGIN, 58, words, fill=SOFT)
    dots = _Rows(canvas, [label if pairs else "" for label, _, pairs in rows], 104, 2)
    for number, (label, _, pairs) in enumerate(rows):
        if not pairs:
            canvas.text(MARGIN + 4, dots.y(number) + 4, label, size=11, bold=True)
    for place, (title, name) in enumerate((("over training", "over_training"), ("at the end", "at_the_end"))):
        scale = dots.panel(place, title, -8, 8, 2, 0)
        for number, (_, declared, pairs) in enumerate(rows):
            if pairs:
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


def mean_path(study: KeptStudy, task: str, arm: str) -> Points:
    """Entropy and accuracy along an arm's training: means over seeds, smoothed."""
    runs = [one for one in study.finished if (one.run.arm, one.run.task) == (arm, task)]
    curves = ([one.entropy for one in runs], [one.curve for one in runs])
    columns = [smooth([statistics.fmean(values) for values in zip(*each, strict=True)]) for each in curves]
    return list(zip(*columns, strict=True))


def _panel(canvas: Canvas, study: KeptStudy, task: str, left: float, top: float, width: float, height: float) -> None:
    lines: dict[str, Points] = {arm: path for arm in study.protocol.arms if (path := mean_path(study, task, arm))}
    lines = dict(list(lines.items())[:SHOWN])
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
