"""The figures of docs/concepts.md, drawn from the rollouts of a real run.

    delta-rlvr train --steps 1 --rollouts_every 1 --rollout_groups 64 --eval_problems 0 \
        --show_methods delta-no-refinement --output runs/concepts
    python recipes/concept_figures.py runs/concepts --output docs/figures

Any run of a DelTA method with that other method shown will do; the numbers in the figures are those of its first kept step.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from delta_evidence.drawing import INK, LINES, MARGIN, RULE, SOFT, WIDTH, Canvas
from delta_rlvr.credit.diagnostics import SATURATED
from delta_rlvr.runs import read_run

# The colours of the page: sides in green and purple; weights above one in orange, below one in blue.
RIGHT, WRONG = LINES[2], LINES[3]
MORE, LESS = LINES[1], LINES[0]
OTHER = "delta-no-refinement"
Values = Float[np.ndarray, " token"]


class Tokens:
    """The tokens of responses with an advantage, as arrays."""

    def __init__(self, responses: Sequence[dict[str, Any]]) -> None:
        with_signal = [response for response in responses if response["advantage"]]
        if not with_signal:
            raise SystemExit("the run kept no response with an advantage: take another run or step")
        if OTHER not in with_signal[0].get("other_weights", {}):
            raise SystemExit(f"the run does not show {OTHER}: train with --show_methods {OTHER}")

        def join(key: str) -> Values:
            return np.concatenate([np.asarray(response[key], dtype=float) for response in with_signal])

        self.advantage = np.repeat(
            [response["advantage"] for response in with_signal], [len(response["ids"]) for response in with_signal]
        )
        self.positive = self.advantage > 0
        self.weight, self.alpha = join("weight"), join("alpha")
        self.before, self.after = join("margin_initial"), join("margin")
        self.surprise = -np.expm1(join("logps"))
        self.other = np.concatenate([response["other_weights"][OTHER] for response in with_signal])


def discriminator(tokens: Tokens) -> str:
    """Both sides' tokens on the line between the centroids, before and after refinement."""
    canvas = Canvas()
    sign = np.where(tokens.positive, 1, -1)
    panels = (("before refinement", tokens.before * sign), ("after one refinement", tokens.after * sign))
    for place, (title, score) in enumerate(panels):
        left, width = _panel(canvas, place, title)
        edge = float(np.quantile(np.abs(score), 0.98))
        _histogram(canvas, left, width, score, tokens.positive, (-edge, edge))
        canvas.text(left, 292, f"{-edge:.2g}", size=12, fill=SOFT)
        canvas.text(left + width / 2, 292, "0", size=12, fill=SOFT, anchor="middle")
        canvas.text(left + width, 292, f"{edge:.2g}", size=12, fill=SOFT, anchor="end")
        canvas.text(
            left + width / 2,
            312,
            "nearer to the wrong side's centroid  <     >  nearer to the right side's",
            size=12,
            fill=SOFT,
            anchor="middle",
        )
    _key(canvas)
    return canvas.svg(360)


def coefficient(responses: Sequence[dict[str, Any]]) -> str:
    """A right and a wrong response to one prompt, each token on a shade of its coefficient."""
    chosen = _pair(responses)
    canvas = Canvas()
    y = 30.0
    for name, response in chosen:
        canvas.text(MARGIN, y, f"{name}, advantage {response['advantage']:+.2f}", size=14, bold=True)
        y = _shaded(canvas, y + 30, response["tokens"], response["weight"]) + 40
    lowest = min(min(response["weight"]) for _, response in chosen)
    highest = max(max(response["weight"]) for _, response in chosen)
    canvas.text(
        MARGIN, y, f"Coefficients from {lowest:.2f} (blue) through 1 (no shade) to {highest:.2f} (orange).", fill=SOFT
    )
    return canvas.svg(y + 20)


def sides(tokens: Tokens) -> str:
    """How the coefficients of either side are spread."""
    canvas = Canvas()
    left, width = _panel(canvas, 0, "coefficients by side", columns=1)
    low, high = float(tokens.weight.min()), float(tokens.weight.max())
    _histogram(canvas, left, width, tokens.weight, tokens.positive, (low, high))
    for value in (low, 1.0, high):
        x = left + width * (value - low) / (high - low)
        canvas.text(x, 292, f"{value:.2f}", size=12, fill=SOFT, anchor="middle")
    for name, here, colour, y in (("right", tokens.positive, RIGHT, 70), ("wrong", ~tokens.positive, WRONG, 92)):
        canvas.text(
            left + width / 2,
            y,
            f"mean on {name} responses: {tokens.weight[here].mean():.3f}",
            size=14,
            fill=colour,
            anchor="middle",
        )
    _key(canvas)
    return canvas.svg(360)


def update_mass(tokens: Tokens) -> str:
    """What right responses have of the tokens, of the weights, and of what the optimizer sees."""
    strength = np.abs(tokens.advantage)
    rows = (
        ("of the tokens", np.ones_like(strength)),
        ("of weight x |A|, every weight 1", strength),
        ("of weight x |A|, DelTA", tokens.weight * strength),
        ("of the update, every weight 1: |A| (1 - p)", strength * tokens.surprise),
        ("of the update, DelTA: weight x |A| (1 - p)", tokens.weight * strength * tokens.surprise),
    )
    canvas = Canvas()
    canvas.text(MARGIN, 34, "share that right responses have ...", size=15, bold=True)
    left, width = 420, WIDTH - MARGIN - 420 - 70
    for number, (name, mass) in enumerate(rows):
        y = 60 + 40 * number
        share = float(mass[tokens.positive].sum() / mass.sum())
        canvas.text(left - 14, y + 19, name, size=14, anchor="end")
        canvas.parts.append(f'<rect x="{left}" y="{y}" width="{width}" height="26" fill="{RULE}"/>')
        canvas.parts.append(f'<rect x="{left}" y="{y}" width="{width * share:.1f}" height="26" fill="{RIGHT}"/>')
        canvas.text(left + width + 12, y + 19, f"{share:.1%}", size=14)
    return canvas.svg(60 + 40 * len(rows) + 16)


def saturation(tokens: Tokens) -> str:
    """Where the coefficients lie in their range, without and with the refinement."""
    canvas = Canvas()
    share = float(((tokens.alpha < SATURATED) | (tokens.alpha > 1 - SATURATED)).mean())
    panels = (
        ("without refinement (K = 0)", tokens.other),
        (f"as published (K = 1): {share:.0%} of the assignments at an end", tokens.weight),
    )
    edges = (min(tokens.other.min(), tokens.weight.min()), max(tokens.other.max(), tokens.weight.max()))
    for place, (title, weight) in enumerate(panels):
        left, width = _panel(canvas, place, title)
        _histogram(canvas, left, width, weight, tokens.positive, edges)
        canvas.text(left, 292, f"{edges[0]:.2f}", size=12, fill=SOFT)
        canvas.text(left + width, 292, f"{edges[1]:.2f}", size=12, fill=SOFT, anchor="end")
    _key(canvas)
    return canvas.svg(360)


def _panel(canvas: Canvas, place: int, title: str, columns: int = 2) -> tuple[float, float]:
    width = (WIDTH - 2 * MARGIN - 40 * (columns - 1)) / columns
    left = MARGIN + place * (width + 40)
    canvas.text(left, 30, title, size=15, bold=True)
    canvas.line(left, 270, left + width, 270, stroke=SOFT)
    return left, width


def _histogram(
    canvas: Canvas, left: float, width: float, values: Values, positive: np.ndarray, edges: tuple[float, float]
) -> None:
    """Shares of each side's tokens in forty bins, side by side; what lies beyond the edges counts in the last bins."""
    bins = np.linspace(*edges, 41)
    shares = [
        np.histogram(np.clip(values[here], *edges), bins)[0] / max(1, int(here.sum())) for here in (positive, ~positive)
    ]
    top = max(float(share.max()) for share in shares)
    step = width / 40
    for offset, (share, colour) in enumerate(zip(shares, (RIGHT, WRONG), strict=True)):
        for number, value in enumerate(share):
            height = 200 * float(np.sqrt(value / top))
            x = left + step * number + offset * step * 0.45 + step * 0.05
            canvas.parts.append(
                f'<rect x="{x:.1f}" y="{270 - height:.1f}" width="{step * 0.45:.1f}" height="{height:.1f}" fill="{colour}"/>'
            )
    canvas.text(left, 60, f"highest bar: {top:.0%} of a side's tokens", size=12, fill=SOFT)


def _key(canvas: Canvas) -> None:
    for x, name, colour in (
        (MARGIN, "tokens of right responses", RIGHT),
        (MARGIN + 230, "tokens of wrong responses", WRONG),
    ):
        canvas.parts.append(f'<rect x="{x}" y="331" width="12" height="12" fill="{colour}"/>')
        canvas.text(x + 18, 342, name, size=13)
    canvas.text(MARGIN + 470, 342, "heights are square roots, so that small shares can be seen", size=13, fill=SOFT)


def _pair(responses: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """The first prompt's first right and first wrong response."""
    groups: dict[Any, dict[str, dict[str, Any]]] = {}
    for response in responses:
        name = "right" if response["advantage"] > 0 else "wrong"
        group = groups.setdefault(response["group"], {})
        group.setdefault(name, response)
        if len(group) == 2:
            return [("right", group["right"]), ("wrong", group["wrong"])]
    raise SystemExit("no prompt has both a right and a wrong response: take another run or step")


def _shaded(canvas: Canvas, y: float, texts: Sequence[str], weights: Sequence[float]) -> float:
    """Tokens in lines of monospaced text; the last baseline."""
    size, advance = 15.0, 9.03  # a monospaced letter is 0.602 of its size wide
    x = float(MARGIN)
    for text, weight in zip(texts, weights, strict=True):
        shown = text.replace("\n", "\u21b5")
        width = advance * len(shown)
        if x + width > WIDTH - MARGIN:
            x, y = float(MARGIN), y + 30
        colour = MORE if weight > 1 else LESS
        strength = min(1.0, abs(weight - 1) / 0.2)
        canvas.parts.append(
            f'<rect x="{x:.1f}" y="{y - 16:.1f}" width="{width:.1f}" height="22" fill="{colour}" fill-opacity="{0.5 * strength:.2f}">'
            f"<title>{weight:.3f}</title></rect>"
        )
        letters = shown.replace(" ", "\u00a0").replace("&", "&amp;").replace("<", "&lt;")
        canvas.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-family="monospace" font-size="{size}" fill="{INK}" '
            f'textLength="{width:.1f}">{letters}</text>'
        )
        x += width
    return y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a run")
    parser.add_argument("--output", type=Path, default=Path("docs/figures"), help="folder (default: %(default)s)")
    arguments = parser.parse_args()
    run = read_run(arguments.run)
    step = min(run.rollout_steps)
    responses = list(run.rollouts(step))
    tokens = Tokens(responses)
    figures = {
        "discriminator": discriminator(tokens),
        "coefficient": coefficient(responses),
        "sides": sides(tokens),
        "update_mass": update_mass(tokens),
        "saturation": saturation(tokens),
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, svg in figures.items():
        (arguments.output / f"{name}.svg").write_text(svg, encoding="utf-8")
    about = {"method": run.info["method"], "task": run.info["task"], "step": step, "tokens": len(tokens.weight)}
    print(json.dumps(about))


if __name__ == "__main__":
    main()
