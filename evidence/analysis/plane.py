"""The map of token weights: how each method's weight goes with 1 - p, on right and on wrong responses.

    python evidence/analysis/plane.py --measure        # SmolLM2-135M on a CPU, some minutes: evidence/results/plane/slopes.json
    python evidence/analysis/plane.py                  # the figure from it: docs/figures/plane.svg

The slope of the least-squares line of the weight against 1 - p, over the mean weight of that side, on rollouts of the untrained model
(the task of smollm2-chain-sum-controls-200.yaml, 16 prompts x 8 responses at T = 1), mean and standard error over the batches that have
both sides. Left out are methods that need labels, or the LM head (minutes each on a CPU).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from untrained import TASK, untrained_rollouts

from delta_evidence.drawing import INK, LINES, MARGIN, RULE, SOFT, WIDTH, Canvas
from delta_evidence.rollouts import Rollouts
from delta_evidence.weighing import BatchWeigher, study_method
from delta_rlvr.credit.pieces import surprise
from delta_rlvr.files import write_json
from delta_rlvr.objectives import all_methods

ROOT = Path(__file__).parents[2]
KEPT, FIGURE = ROOT / "evidence/results/plane/slopes.json", ROOT / "docs/figures/plane.svg"
SIDES = {"right": 1, "wrong": -1}
FURTHER = ["confidence?right=0.4&wrong=0.4", "confidence?right=0.4&wrong=-0.4", "confidence?right=-0.4&wrong=-0.4"]
REACH, HEIGHT = 1.6, 760
NEAR = 0.02  # slopes this small are level


def methods() -> list[str]:
    """Every method whose weights a rollout batch is enough for."""
    dear = {"decisive", "measured", "head"}
    named = [name for name, one in all_methods().items() if not dear & set(one.rule.needs)]
    return [*named, *FURTHER]


def slopes(rollouts: Rollouts, head: Tensor, number: int) -> dict[str, dict[str, float]]:
    """By method and side."""
    weigher = BatchWeigher(rollouts, head, number)
    uncertain = surprise(rollouts.logps.double())
    sign = torch.where(rollouts.mask, rollouts.advantages[:, None].sign(), 0)
    found = {}
    for name in methods():
        weights = weigher.weights(study_method(name).rule).double()
        found[name] = {side: _slope(uncertain[sign == one], weights[sign == one]) for side, one in SIDES.items()}
    return found


def _slope(x: Tensor, y: Tensor) -> float:
    centred = x - x.mean()
    return float((centred * (y - y.mean())).sum() / (centred**2).sum() / y.mean()) if y.mean() > 0 else 0.0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    batches, head = untrained_rollouts(
        options.model, TASK, seed=options.seed, prompts=16 * options.batches, max_tokens=48, at_once=16, pass_rows=64
    )
    both = [one for one in batches if (one.advantages > 0).any() and (one.advantages < 0).any()]
    each = []
    for number, rollouts in enumerate(both):
        print(f"batch {number + 1} of {len(both)}", flush=True)
        each.append(slopes(rollouts, head, number))
    rows = {}
    for name in methods():
        values = {side: [one[name][side] for one in each] for side in SIDES}
        rows[name] = {
            side: {"mean": statistics.fmean(own), "error": statistics.stdev(own) / math.sqrt(len(own))}
            for side, own in values.items()
        }
    return {"model": options.model, "task": TASK, "seed": options.seed, "batches": len(both), "methods": rows}


def figure(kept: dict[str, Any]) -> str:
    """The plane; what lies beyond its ends is drawn at them, with its numbers."""
    canvas = Canvas()
    canvas.text(MARGIN, 30, "Token weights of the field on one plane", size=16, bold=True)
    where = f"{kept['model']} before training, {kept['batches']} rollout batches. Bars: one standard error."
    words = f"Slope of the weight against 1 - p over the side's mean weight, by side: {where}"
    canvas.text(MARGIN, 52, words, fill=SOFT)
    side, top = HEIGHT - 110, 84
    left = MARGIN + 40

    def place(right: float, wrong: float) -> tuple[float, float]:
        at = [min(max(value, -REACH), REACH) / (2 * REACH) for value in (right, wrong)]
        return left + side * (0.5 + at[0]), top + side * (0.5 - at[1])

    for tick in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5):
        (x, y), stroke = place(tick, tick), SOFT if tick == 0 else RULE
        canvas.line(x, top, x, top + side, stroke)
        canvas.line(left, y, left + side, y, stroke)
        canvas.text(x, top + side + 16, f"{tick:+g}" if tick else "0", size=11, fill=SOFT, anchor="middle")
        canvas.text(left - 6, y + 4, f"{tick:+g}" if tick else "0", size=11, fill=SOFT, anchor="end")
    canvas.text(left + side / 2, top + side + 36, "right responses: slope against 1 - p", anchor="middle", fill=SOFT)
    canvas.text(left + 40, top - 8, "wrong responses: slope against 1 - p", fill=SOFT)
    corners = {
        (-1, 1): "entropy falls: DelTA's corner",
        (1, 1): "unlikely tokens count more",
        (-1, -1): "likely tokens count more",
        (1, -1): "entropy is kept",
    }
    for (right, wrong), about in corners.items():
        x, y = place(right * REACH, wrong * REACH)
        anchor = "start" if right < 0 else "end"
        canvas.text(x - 8 * right, y + (18 if wrong > 0 else -24), about, size=12, fill=SOFT, anchor=anchor, bold=True)
    points = {
        name: (row["right"]["mean"], row["wrong"]["mean"], row["right"]["error"], row["wrong"]["error"])
        for name, row in kept["methods"].items()
    }
    level = [name for name, point in points.items() if max(map(abs, point[:2])) < NEAR]
    shown = [name for name in points if name not in level]
    shown.sort(key=lambda name: (-points[name][1], points[name][0]))
    legend = left + side + 40
    canvas.text(legend, top + 4, "slope on right, on wrong responses", bold=True)
    labels: dict[tuple[float, float], list[tuple[int, str]]] = {}
    for number, name in enumerate(shown, start=1):
        right, wrong, *errors = points[name]
        x, y = place(right, wrong)
        colour = LINES[0] if "arXiv" in _paper(name) else LINES[1] if name.startswith("delta") else LINES[2]
        canvas.line(place(right - errors[0], wrong)[0], y, place(right + errors[0], wrong)[0], y, colour)
        canvas.line(x, place(right, wrong - errors[1])[1], x, place(right, wrong + errors[1])[1], colour)
        canvas.mark(x, y, "circle", colour, size=4, title=f"{name}: {right:+.2f}, {wrong:+.2f}")
        near = next((spot for spot in labels if math.dist(spot, (x, y)) < 12), None)
        labels.setdefault(near or (x, y), []).append((number, colour))
        row = top + 24 + 15.5 * (number - 1)
        canvas.text(legend + 16, row, str(number), size=11, fill=colour, anchor="end", bold=True)
        canvas.text(legend + 24, row, name, size=11, fill=INK)
        canvas.text(WIDTH - MARGIN, row, f"{right:+.2f}, {wrong:+.2f}", size=11, fill=SOFT, anchor="end")
    for (x, y), own in labels.items():  # those of points that cover each other stand together
        numbers = ", ".join(str(number) for number, _ in own)
        outside = x > left + side - 60
        canvas.text(
            x - 8 if outside else x + 7, y - 6, numbers, size=9.5, fill=own[0][1], anchor="end" if outside else "start"
        )
    row = top + 24 + 15.5 * len(shown) + 10
    canvas.text(legend, row, f"Level on both sides (within {NEAR}):", size=11, bold=True)
    for number in range(0, len(level), 5):
        canvas.text(legend, row + 16 + 15 * (number // 5), ", ".join(level[number : number + 5]), size=10.5, fill=SOFT)
    last = max(top + side + 60, row + 30 + 15 * (len(level) // 5 + 1))
    keys = "Blue: other papers. Orange: DelTA and its parts. Green: ours and plain scores. What lies beyond 1.6 is drawn at the edge."
    canvas.text(MARGIN, last, keys, size=11, fill=SOFT)
    return canvas.svg(last + 20)


def _paper(name: str) -> str:
    return all_methods()[name.partition("?")[0]].paper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure again, on this machine")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument("--batches", type=int, default=3)
    options = parser.parse_args()
    if options.measure:
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        write_json(KEPT, measure(options))
    FIGURE.write_text(figure(json.loads(KEPT.read_text(encoding="utf-8"))), encoding="utf-8")
    print(FIGURE)


if __name__ == "__main__":
    main()
