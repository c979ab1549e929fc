"""Training curves: which metrics share a panel, and each run's columns."""

from __future__ import annotations

from typing import Any

from delta_rlvr.files import is_number
from delta_rlvr.runs import RunReader
from delta_rlvr.runs.layout import round_significant

# A page of many runs must stay light: beyond this, n steps become one point (the last step always stands alone).
POINTS = 1500

_SIDES = (("positive", "solid"), ("negative", "dash"))

# (title, what it shows, [(metric, label, line)], shown at once?)
_PANELS: tuple[tuple[str, str, tuple[tuple[str, str, str], ...], bool], ...] = (
    ("Reward", "Mean reward over the batch.", (("reward", "reward", "solid"),), True),
    ("Response length", "Mean tokens of a response.", (("length", "length", "solid"),), True),
    (
        "Entropy",
        "Mean entropy of the token distributions, in nats.",
        (("entropy", "entropy", "solid"),),
        True,
    ),
    (
        "Coefficient spread",
        "Standard deviation of the coefficients on each side.",
        tuple((f"weight_{side}_std", f"{side} side", line) for side, line in _SIDES),
        True,
    ),
    (
        "Coefficient quantiles",
        "5 % and 95 % quantiles of the coefficients on each side; the mean over all tokens is 1.",
        tuple(
            (f"weight_{side}_{quantile}", f"{side} {name}", line)
            for side, line in _SIDES
            for quantile, name in (("q05", "5 %"), ("q95", "95 %"))
        ),
        True,
    ),
    (
        "Centroid gap",
        "Distance between the two sides' centroids, after refinement and before it.",
        (("centroid_gap", "after", "solid"), ("centroid_gap_initial", "before", "dash")),
        True,
    ),
    (
        "Temperatures",
        "Spread of the margins on each side, which the soft assignment is measured in.",
        tuple((f"gamma_{side}", f"{side} side", line) for side, line in _SIDES),
        True,
    ),
    (
        "Right responses' share of the update",
        "Weight x |A| x (1 - p) of the responses with a positive advantage, of the whole batch's; and with every weight one.",
        (("update_share_positive", "as weighed", "solid"), ("update_share_plain", "every weight 1", "dash")),
        True,
    ),
    (
        "Weight against 1 - p",
        "Rank correlation on each side: near 1 or -1, the weight is another name for how unsure the policy was.",
        tuple((f"rank_{side}", f"{side} side", line) for side, line in _SIDES),
        True,
    ),
    (
        "Saturation and reliability",
        "Share of the coefficients at the ends of their range; rank correlation of the weights from two halves of the batch.",
        (("saturated", "saturated", "solid"), ("reliability", "reliability", "dash")),
        True,
    ),
    (
        "No-signal share",
        "Share of tokens with advantage 0: their responses teach nothing in this step.",
        (("zero_advantage", "zero advantage", "solid"),),
        True,
    ),
    (
        "Seconds by phase",
        "Where the time of a step goes.",
        tuple(
            (f"seconds_{phase}", phase, line)
            for phase, line in (
                ("generate", "solid"),
                ("update", "dash"),
                ("logps", "dot"),
                ("reward", "dashdot"),
                ("credit", "long"),
            )
        ),
        True,
    ),
    ("Loss", "Of the step.", (("loss", "loss", "solid"),), False),
    ("Gradient norm", "Before clipping.", (("grad_norm", "gradient norm", "solid"),), False),
    ("Learning rate", "", (("learning_rate", "learning rate", "solid"),), False),
    (
        "Clipped tokens",
        "Share of tokens whose ratio left the trust region, by side of the clip.",
        (("clip_low", "low", "dash"), ("clip_high", "high", "solid")),
        False,
    ),
    (
        "Truncated",
        "Share of responses cut at the length limit.",
        (("truncated", "truncated", "solid"),),
        False,
    ),
    (
        "Groups with a signal",
        "Share of prompts whose responses earned different rewards.",
        (("signal_groups", "groups with a signal", "solid"),),
        False,
    ),
    (
        "Side masses",
        "Sum of the absolute advantages on each side.",
        tuple((f"mass_{side}", f"{side} side", line) for side, line in _SIDES),
        False,
    ),
)


def panels(runs: list[RunReader]) -> list[dict[str, Any]]:
    """The panels for which at least one run has a number, with only the lines that some run has."""
    known = {key for run in runs for line in run.metrics for key, value in line.items() if is_number(value)}
    shown = []
    for title, words, lines, primary in _PANELS:
        kept = [{"key": key, "label": label, "line": line} for key, label, line in lines if key in known]
        if kept:
            shown.append({"title": title, "words": words, "lines": kept, "primary": primary})
    return shown


def columns(run: RunReader, shown: list[dict[str, Any]], points: int = POINTS) -> dict[str, list[Any]]:
    """The run's metrics as columns. Where there are more steps than `points`, n steps become one point, which has the first known value
    of each metric: some are known at few steps only, and none of them must be lost."""
    lines = run.metrics
    stride = max(1, -(-len(lines) // points))
    body = lines[:-1]
    parts = [body[start : start + stride] for start in range(0, len(body), stride)] + [lines[-1:]] * bool(
        lines
    )
    keys = [line["key"] for panel in shown for line in panel["lines"]]
    table: dict[str, list[Any]] = {"step": [part[0]["step"] for part in parts]}
    for key in dict.fromkeys(keys):
        values = [next((line[key] for line in part if is_number(line.get(key))), None) for part in parts]
        if any(value is not None for value in values):
            table[key] = round_significant(values)
    return table


def notes(run: RunReader, limit: int = 20) -> list[str]:
    """What the run said while it went on: `note` of its metrics, each sentence once with its first step."""
    first: dict[str, int] = {}
    for line in run.metrics:
        if isinstance(line.get("note"), str) and line["note"]:
            first.setdefault(line["note"], line["step"])
    said = [f"step {step}: {note}" for note, step in first.items()]
    return said[:limit] + ([f"... and {len(said) - limit} more notes"] if len(said) > limit else [])
