"""What DelTA's coefficients are on a model: weight against 1 - p, by side, as published and with hidden states less their mean.

    python evidence/analysis/weights_by_confidence.py --model smollm2-135m --output docs/figures/weights_by_confidence.svg

Rollouts come from the untrained model on running totals of short sums (the task of smollm2-chain-sum-controls-200.yaml), 16 prompts x 8
responses at T = 1. Rank correlations are printed, and stand in the figure.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor
from untrained import TASK, untrained_rollouts

from delta_evidence.drawing import INK, LINES, MARGIN, RULE, SOFT, WIDTH, Canvas
from delta_evidence.rollouts import Rollouts
from delta_evidence.weighing import BatchWeigher, study_method
from delta_rlvr.credit.diagnostics import rank_correlation

METHODS = {
    "delta": "as published",
    "delta-scalar": "the same estimator on 1 - p alone",
    "delta-centred": "hidden states less their mean",
}
SIDES = {1: "right responses", -1: "wrong responses"}
HEIGHT = 330
LOW, HIGH = 0.6, 1.6


def figure(rollouts: Rollouts, head: Tensor, model: str) -> str:
    """Three panels, one for each method; a dot is a token."""
    canvas = Canvas()
    weigher = BatchWeigher(rollouts, head, number=0)
    uncertain = -torch.expm1(rollouts.logps.clamp(max=0))
    side = torch.where(rollouts.mask, rollouts.advantages[:, None].sign(), 0)
    canvas.text(
        MARGIN,
        26,
        f"DelTA's weight per token against 1 - p, with rank correlations ({model}, before training)",
        size=16,
        bold=True,
    )
    panel = (WIDTH - 4 * MARGIN) / 3
    for number, (name, about) in enumerate(METHODS.items()):
        left, top = MARGIN + number * (panel + MARGIN), 92
        weights = weigher.weights(study_method(name).rule)
        canvas.text(left, 52, f"{name}: {about}", size=13, bold=True)
        for place, (sign, words) in enumerate(SIDES.items()):
            here = side == sign
            ranks = rank_correlation(weights[here].double(), uncertain[here].double())
            print(f"{name:14} {words}: {int(here.sum())} tokens, rank correlation with 1 - p {ranks:+.2f}")
            canvas.text(left + place * panel / 2, 72, f"{words}: {ranks:+.2f}", size=11.5, fill=LINES[place])
        for level in (0.8, 1.0, 1.2, 1.4):
            y = top + HEIGHT * (HIGH - level) / (HIGH - LOW)
            canvas.line(left, y, left + panel, y, stroke=SOFT if level == 1 else RULE)
            canvas.text(left - 4, y + 4, f"{level:g}", size=10, fill=SOFT, anchor="end")
        for place, sign in enumerate(SIDES):
            here = side == sign
            for x, y in zip(uncertain[here].tolist(), weights[here].tolist(), strict=True):
                canvas.mark(
                    left + panel * x,
                    top + HEIGHT * (HIGH - min(max(y, LOW), HIGH)) / (HIGH - LOW),
                    "circle",
                    LINES[place],
                    size=1.8,
                )
        for x in (0, 0.5, 1):
            canvas.text(left + panel * x, top + HEIGHT + 18, f"{x:g}", size=10, fill=INK, anchor="middle")
        canvas.text(
            left + panel / 2, top + HEIGHT + 34, "1 - p of the sampled token", size=11, fill=SOFT, anchor="middle"
        )
    return canvas.svg(92 + HEIGHT + 56)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--task", default=TASK)
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    (rollouts,), head = untrained_rollouts(
        options.model,
        options.task,
        seed=options.seed,
        prompts=options.prompts,
        max_tokens=options.max_tokens,
        at_once=options.prompts,
        pass_rows=64,
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(figure(rollouts, head, options.model), encoding="utf-8")
    print(options.output)


if __name__ == "__main__":
    main()
