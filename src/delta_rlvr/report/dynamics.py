"""Training curves: the panels with their metrics, and the columns of each run."""

from __future__ import annotations

from typing import Any

from delta_rlvr.files import is_number
from delta_rlvr.runs import RunReader
from delta_rlvr.runs.layout import round_significant
from delta_rlvr.weight_words import hardly_differ

# The most points of a curve. Of more steps, n become one point (the last step is always one).
POINTS = 1500
_RANKS = ("rank_positive", "rank_negative")

Line = tuple[str, str, str]
"""A metric, the label of its line, and its style."""


def _by_side(metric: str) -> tuple[Line, Line]:
    """Return the lines of a metric for both sides; `metric` has a placeholder for the side's name."""
    return ((metric.format("positive"), "positive side", "solid"), (metric.format("negative"), "negative side", "dash"))


def _alone(metric: str, label: str | None = None) -> tuple[Line]:
    return ((metric, label or metric, "solid"),)


# (title, what it shows, lines) of the panels that are always open; `_MORE_PANELS` are folded.
_PANELS: tuple[tuple[str, str, tuple[Line, ...]], ...] = (
    ("Reward", "Mean reward over the batch.", _alone("reward")),
    ("Held-out score", "During training (`eval_every`).", _alone("eval_accuracy")),
    ("TRL eval_reward", "The script's rewards, weighted and added up, on its eval_dataset.", _alone("eval_reward")),
    ("Response length", "Mean tokens of a response.", _alone("length")),
    ("Entropy", "Mean entropy of the token distributions, in nats.", _alone("entropy")),
    ("Coefficient spread", "Standard deviation of the coefficients on each side.", _by_side("weight_{}_std")),
    (
        "Mean coefficient",
        "On each side. A mean of one is over all tokens; those without an advantage often have the lowest weight.",
        _by_side("weight_{}_mean"),
    ),
    (
        "Coefficient quantiles",
        "5 % and 95 % quantiles of the coefficients on each side.",
        tuple(
            (f"weight_{side}_{quantile}", f"{side} {name}", line)
            for side, lines in (("positive", ("long", "solid")), ("negative", ("dot", "dash")))
            for quantile, name, line in zip(("q05", "q95"), ("5 %", "95 %"), lines, strict=True)
        ),
    ),
    (
        "Centroid gap",
        "Distance between the two sides' centroids, after refinement and before it.",
        (("centroid_gap", "after", "solid"), ("centroid_gap_initial", "before", "dash")),
    ),
    (
        "Temperatures",
        "Spread of the margins on each side, which the soft assignment is measured in.",
        _by_side("gamma_{}"),
    ),
    (
        "The positive side's share of the update",
        "Weight \N{MULTIPLICATION SIGN} |A| \N{MULTIPLICATION SIGN} (1 \N{MINUS SIGN} p) of the responses with a positive advantage, "
        "as a share of the whole batch; and with every weight one.",
        (("update_share_positive", "as weighed", "solid"), ("update_share_plain", "every weight 1", "dash")),
    ),
    (
        "Weight against 1 \N{MINUS SIGN} p",
        "Rank correlation on each side: near 1 or \N{MINUS SIGN}1, the weight only says how unsure the policy was. "
        "If most weights are saturated, it ranks differences too small to see.",
        _by_side("rank_{}"),
    ),
    (
        "Saturation and reliability",
        "Share of the coefficients at the ends of their range; rank correlation of the weights from two halves of the batch.",
        (("saturated", "saturated", "solid"), ("reliability", "reliability", "dash")),
    ),
    (
        "No-signal share",
        "Share of tokens with advantage 0: their responses teach nothing in this step.",
        _alone("zero_advantage", "zero advantage"),
    ),
    (
        "Seconds by phase",
        "The time of each phase of a step.",
        tuple(
            (f"seconds_{phase}", phase, line)
            for phase, line in zip(
                ("generate", "update", "logps", "reward", "credit"),
                ("solid", "dash", "dot", "dashdot", "long"),
                strict=True,
            )
        ),
    ),
)
_MORE_PANELS: tuple[tuple[str, str, tuple[Line, ...]], ...] = (
    ("Loss", "Loss of the step.", _alone("loss")),
    ("Gradient norm", "Before clipping.", _alone("grad_norm", "gradient norm")),
    ("Learning rate", "", _alone("learning_rate", "learning rate")),
    (
        "Clipped tokens",
        "Share of tokens whose ratio left the trust region, by side of the clip.",
        (("clip_low", "low", "dash"), ("clip_high", "high", "solid")),
    ),
    ("Truncated", "Share of responses cut at the length limit.", _alone("truncated")),
    (
        "Groups with a signal",
        "Share of prompts whose responses earned different rewards.",
        _alone("signal_groups", "groups with a signal"),
    ),
    ("Side masses", "Sum of the absolute advantages on each side.", _by_side("mass_{}")),
)


def panels(runs: list[RunReader]) -> list[dict[str, Any]]:
    """Return the panels and lines for which at least one run has a number."""
    known = {key for run in runs for line in _telling(run) for key, value in line.items() if is_number(value)}
    shown, primary = [], {title for title, _, _ in _PANELS}
    for title, words, lines in (*_PANELS, *_MORE_PANELS):
        kept = [{"key": key, "label": label, "line": line} for key, label, line in lines if key in known]
        if kept:
            shown.append({"title": title, "words": words, "lines": kept, "primary": title in primary})
    return shown


def _telling(run: RunReader) -> list[dict[str, Any]]:
    """Return the metrics of a run, without rank correlations of weights that hardly differ: these differences have no effect."""
    return [
        {key: value for key, value in line.items() if key not in _RANKS} if _alike(line) else line
        for line in run.metrics
    ]


def _alike(line: dict[str, Any]) -> bool:
    names = ("weight_signal_mean", "weight_signal_std")
    return all(is_number(line.get(name)) for name in names) and hardly_differ(*(line[name] for name in names))


def columns(run: RunReader, shown: list[dict[str, Any]], points: int = POINTS) -> dict[str, list[Any]]:
    """Return the metrics of a run as columns. If it has more steps than `points`, n steps become one point with the first known value
    of each metric, so that metrics of few steps are not lost."""
    lines = _telling(run)
    stride = max(1, -(-len(lines) // points))
    body = lines[:-1]
    parts = [body[start : start + stride] for start in range(0, len(body), stride)]
    parts += [lines[-1:]] if lines else []
    keys = [line["key"] for panel in shown for line in panel["lines"]]
    table: dict[str, list[Any]] = {"step": [part[0]["step"] for part in parts]}
    for key in dict.fromkeys(keys):
        values = [next((line[key] for line in part if is_number(line.get(key))), None) for part in parts]
        if any(value is not None for value in values):
            table[key] = round_significant(values)
    return table


def notes(run: RunReader, limit: int = 20) -> list[str]:
    """Return the notes in the metrics of a run, each once, with its first step."""
    first: dict[str, int] = {}
    for line in run.metrics:
        if isinstance(line.get("note"), str) and line["note"]:
            first.setdefault(line["note"], line["step"])
    texts = [f"step {step}: {note}" for note, step in first.items()]
    return texts[:limit] + ([f"... and {len(texts) - limit} more notes"] if len(texts) > limit else [])
