"""What measured batches and updates say together, as plain records, as markdown and in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from delta_rlvr.study.measured.agreement import LABELS, OPEN
from delta_rlvr.study.measured.estimate import LEVEL
from delta_rlvr.study.measured.fidelity import fidelity_rows, gradient_facts
from delta_rlvr.study.measured.settings import PLAIN, MeasuredSettings
from delta_rlvr.study.planted.labelled import SIDES
from delta_rlvr.study.planted.measures import Spread
from delta_rlvr.study.planted.methods import label
from delta_rlvr.study.planted.settings import BASELINE
from delta_rlvr.study.planted.table import Document, facts, select, slices, table, value

SCHEMA = 1
AGREEMENT = ("right_rank", "right_auroc", "right_gain", "wrong_rank", "wrong_auroc", "wrong_gain", "sign")
FIDELITY = ("gain", "over", "aim", "noise")
HEADINGS = {
    "right_rank": "right: rank",
    "right_auroc": "AUROC",
    "wrong_rank": "wrong: rank",
    "wrong_auroc": "AUROC",
    "sign": "sign",
    "gain": "gain",
    "over": f"- {BASELINE}",
    "aim": "aim",
    "noise": "noise",
}
"""The table's columns, of the measures that have one."""
_Z = float(stats.norm.ppf((1 + LEVEL) / 2))


def measured_result(
    documents: Sequence[Document], fidelities: Sequence[Document], settings: MeasuredSettings
) -> dict[str, Any]:
    """Everything that `measured_credit.json` holds."""
    rows = []
    for name, wanted in slices(settings.policies, settings.tasks).items():
        here = [one for one in documents if wanted.items() <= one.items()]
        by_method = {row["method"]: row for row in table(here, AGREEMENT)}
        for method, measures in _fidelity(
            [one for one in fidelities if wanted.items() <= one.items()]
        ).items():
            row = by_method.setdefault(
                method, {"condition": "clean", "method": method, "label": label(method)}
            )
            row |= measures
        rows += [{"slice": name, **row} for row in by_method.values()]
    return {
        "schema": SCHEMA,
        "labels": "measured",
        "settings": dataclasses.asdict(settings),
        "rows": rows,
        "facts": facts(documents),
        "gradients": [
            {
                "policy": one["policy"],
                "task": one["task"],
                **one["facts"],
                **gradient_facts(np.array(one["gradient"])),
            }
            for one in fidelities
        ],
    }


def _fidelity(documents: Sequence[Document]) -> dict[str, dict[str, Any]]:
    """Means over cells, with intervals from the standard errors within them. Methods that not all cells have are left out."""
    by_cell = [fidelity_rows(one, BASELINE) for one in documents if BASELINE in one["methods"]]
    if not by_cell:
        return {}
    by_method: dict[str, dict[str, Any]] = {}
    for method in [name for name in by_cell[0] if all(name in cell for cell in by_cell)]:
        by_method[method] = {}
        for measure in FIDELITY:
            values = [cell[method][measure] for cell in by_cell]
            errors = [cell[method][f"{measure}_error"] for cell in by_cell]
            mean = math.fsum(values) / len(values)
            reach = _Z * math.sqrt(math.fsum(error**2 for error in errors)) / len(errors)
            by_method[method][measure] = dataclasses.asdict(
                Spread(mean, mean - reach, mean + reach, len(values))
            )
    return by_method


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table, without its name."""
    return [_number(value(row, measure).mean, measure) for measure in HEADINGS]


def ordered(result: dict[str, Any], part: str = "all") -> list[dict[str, Any]]:
    """The rows of a slice: how reliable the labels are, the plain scores, then the methods by what their update gains."""
    rows = {row["method"]: row for row in select(result, part)}
    first = [name for name in (LABELS, *PLAIN) if name in rows]
    rest = sorted(rows.keys() - set(first), key=lambda name: (-_known(rows[name], "gain"), name))
    return [rows[name] for name in (*first, *rest)]


def sentences(result: dict[str, Any]) -> list[str]:
    """What the table says, the conclusion first, and no more than its intervals support."""
    rows = {row["method"]: row for row in select(result)}
    lines = []
    ahead = [
        name
        for name in rows
        if name not in (BASELINE, LABELS)
        and not name.startswith("oracle")
        and value(rows[name], "over").low > 0
    ]
    if any("over" in row for row in rows.values()):
        ahead.sort(key=lambda name: -value(rows[name], "over").mean)
        lines.append(
            f"At equal step length the update gains more expected reward than {BASELINE}'s with: {_listed(ahead)}."
            if ahead
            else f"No method's update gains more expected reward at equal step length than {BASELINE}'s, as far as the intervals tell."
        )
    for side in SIDES:
        above = [
            name
            for name in rows
            if name not in (LABELS, *PLAIN) and value(rows[name], f"{side}_gain").low > 0
        ]
        ceiling = value(rows.get(LABELS, {}), f"{side}_auroc").mean
        rival = value(rows.get(PLAIN[0], {}), f"{side}_auroc").mean
        if math.isnan(rival):
            continue
        lines.append(
            f"On {side} responses 1 - p finds the top tenth by measured credit with AUROC {rival:.3f} "
            f"(the labels' own halves: {ceiling:.3f}); "
            + (
                f"above it: {_listed(above)}."
                if above
                else "no weight is above it, as far as the intervals tell."
            )
        )
    lines += filter(None, map(_planted_sentence, result["facts"]))
    return lines + [
        f"{one['policy']} on {one['task']}: the gradient is lost in its own noise: give more --gradient-rollouts."
        for one in result["gradients"]
        if not one["square"] > 0
    ]


def _planted_sentence(facts: dict[str, Any]) -> str:
    """Whether measured credit agrees with the decisive tokens that the task knows; nothing where it knows none."""
    keys = ("right_planted", "wrong_planted", "open_planted", "wrong_open")
    right, wrong, still_open, share = (_or_nan(facts.get(key)) for key in keys)
    if math.isnan(wrong):
        return ""
    return (
        f"{facts['policy']} on {facts['task']}: the size of the measured credit finds the planted decisive tokens with AUROC "
        f"{_number(right)} on right and {_number(wrong)} on wrong responses. {share:.0%} of the wrong ones had a chance of at least "
        f"{OPEN:g} before the slip; on these it is {_number(still_open)}."
    )


def markdown(result: dict[str, Any]) -> str:
    """The table of each slice, as a file to keep."""
    lines = ["# Measured credit", "", *sentences(result), ""]
    parts = ["all", *(f"{one['policy']} on {one['task']}" for one in result["facts"])]
    for part in parts if len(result["facts"]) > 1 else ["all"]:
        lines += [
            f"## {part}",
            "",
            f"| weight | {' | '.join(HEADINGS.values())} |",
            f"|---{'|---:' * len(HEADINGS)}|",
            *(f"| {row['label']} | {' | '.join(_with_reach(row))} |" for row in ordered(result, part)),
            "",
        ]
    lines += [
        "| policy, task | right | measured tokens | sure | gradient's halves: cosine |",
        "|---|---:|---:|---:|---:|",
    ]
    cosines = {(one["policy"], one["task"]): one["halves_cosine"] for one in result["gradients"]}
    for one in result["facts"]:
        cosine = cosines.get((one["policy"], one["task"]), math.nan)
        tokens = one.get("tokens", 0) * one["batches"]
        lines.append(
            f"| {one['policy']}, {one['task']} | {one['accuracy']:.1%} | {tokens:.0f} | {one.get('sure_share', math.nan):.0%} | "
            f"{_number(cosine)} |"
        )
    return "\n".join(lines) + "\n"


def _with_reach(row: dict[str, Any]) -> list[str]:
    cells = []
    for measure in HEADINGS:
        one = value(row, measure)
        reach = "" if math.isnan(one.low) else f" ± {(one.high - one.low) / 2:.3f}"
        cells.append(_number(one.mean, measure) + reach)
    return cells


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number


def _known(row: dict[str, Any], measure: str) -> float:
    mean = value(row, measure).mean
    return -math.inf if math.isnan(mean) else mean


def _listed(names: Sequence[str]) -> str:
    return ", ".join(label(name) for name in names)


def _number(number: float, measure: str = "") -> str:
    if math.isnan(number):
        return "-"
    return f"{number:+.3f}" if measure == "over" else f"{number:.3f}"
