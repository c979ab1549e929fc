"""What measured batches and updates say together, as plain records, as markdown and in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from delta_evidence.measured.agreement import LABELS, OPEN
from delta_evidence.measured.estimate import Z
from delta_evidence.measured.fidelity import MEASURES as FIDELITY
from delta_evidence.measured.fidelity import fidelity_rows, gradient_facts
from delta_evidence.measured.settings import PLAIN, MeasuredSettings
from delta_evidence.methods import label, listed
from delta_evidence.planted.measures import SIDES, Spread
from delta_evidence.planted.settings import BASELINE
from delta_evidence.planted.table import (
    Document,
    Row,
    by_method,
    effects,
    facts,
    number_text,
    or_nan,
    slices,
    table,
    value,
)
from delta_rlvr.weight_words import over_a_run

SCHEMA = 1
AGREEMENT = ("right_rank", "right_auroc", "right_gain", "wrong_rank", "wrong_auroc", "wrong_gain", "sign")
HEADINGS = {
    "right_rank": "right: rank",
    "right_auroc": "AUROC",
    "wrong_rank": "wrong: rank",
    "wrong_auroc": "AUROC",
    "sign": "sign",
    "gain": "gain",
    "over": f"- {BASELINE}",
    "aim": "mean's gain",
    "noise": "noise",
}
"""The table's columns, of the measures that have one."""


def measured_result(
    documents: Sequence[Document], fidelities: Sequence[Document], settings: MeasuredSettings
) -> dict[str, Any]:
    """Everything that `measured_credit.json` holds."""
    rows = []
    for name, wanted in slices(settings.policies, settings.tasks).items():
        batches, updates = ([one for one in some if wanted.items() <= one.items()] for some in (documents, fidelities))
        of_slice = {row["method"]: row for row in table(batches, AGREEMENT)}
        for method, measures in _fidelity(updates).items():
            row = {"condition": "clean", "method": method, "label": label(method)}
            of_slice[method] = of_slice.get(method, row) | measures
        rows += [{"slice": name, **row} for row in of_slice.values()]
    notes = effects(documents, over_a_run, but=(BASELINE, *PLAIN))
    return {
        "schema": SCHEMA,
        "labels": "measured",
        "settings": dataclasses.asdict(settings),
        "rows": rows,
        "facts": facts(documents),
        "gradients": [
            {"policy": one["policy"], "task": one["task"]} | one["facts"] | gradient_facts(np.array(one["gradient"]))
            for one in fidelities
        ],
    } | ({"notes": notes} if notes else {})


def _fidelity(documents: Sequence[Document]) -> dict[str, dict[str, Any]]:
    """Means over cells, with intervals from the standard errors within them. Methods that not all cells have are left out."""
    by_cell = [fidelity_rows(one, BASELINE) for one in documents if BASELINE in one["methods"]]

    def over_cells(method: str, measure: str) -> dict[str, Any]:
        mean = math.fsum(cell[method][measure] for cell in by_cell) / len(by_cell)
        squares = math.fsum(cell[method][f"{measure}_error"] ** 2 for cell in by_cell)
        reach = Z * math.sqrt(squares) / len(by_cell)
        return dataclasses.asdict(Spread(mean, mean - reach, mean + reach, len(by_cell)))

    shared = [name for name in (by_cell[0] if by_cell else ()) if all(name in cell for cell in by_cell)]
    return {name: {measure: over_cells(name, measure) for measure in FIDELITY} for name in shared}


def cells(row: Row) -> list[str]:
    """A row of the table, without its name."""
    return [_mean(row, measure) for measure in HEADINGS]


def ordered(result: dict[str, Any], part: str = "all") -> list[Row]:
    """The rows of a slice: how reliable the labels are, the plain scores, then the methods by what their update gains."""
    rows = by_method(result, part)
    first = [name for name in (LABELS, *PLAIN) if name in rows]

    def gain(name: str) -> float:
        mean = value(rows[name], "gain").mean
        return -math.inf if math.isnan(mean) else mean

    rest = sorted(rows.keys() - set(first), key=lambda name: (-gain(name), name))
    return [rows[name] for name in (*first, *rest)]


def sentences(result: dict[str, Any]) -> list[str]:
    """What the table says, the conclusion first, and no more than its intervals support."""
    rows = by_method(result)
    said = [f"{note}." for note in result.get("notes", ())]
    if any("over" in row for row in rows.values()):
        over = {
            name: value(row, "over")
            for name, row in rows.items()
            if name not in (BASELINE, LABELS) and not name.startswith("oracle")
        }
        ahead = sorted((name for name in over if over[name].low > 0), key=lambda name: -over[name].mean)
        said.append(
            f"At equal step length the update gains more expected reward than {BASELINE}'s with: {listed(ahead)}."
            if ahead
            else f"No method's update gains more expected reward at equal step length than {BASELINE}'s, as far as the intervals tell."
        )
    for side in SIDES:
        rival, ceiling = (value(rows.get(name, {}), f"{side}_auroc").mean for name in (PLAIN[0], LABELS))
        if math.isnan(rival):
            continue
        others = [name for name in rows if name not in (LABELS, *PLAIN)]
        above = [name for name in others if value(rows[name], f"{side}_gain").low > 0]
        said.append(
            f"On {side} responses 1 - p finds the top tenth by measured credit with AUROC {rival:.3f} "
            f"(the labels' own halves: {ceiling:.3f}); "
            + (f"above it: {listed(above)}." if above else "no weight is above it, as far as the intervals tell.")
        )
    said += filter(None, map(_planted_sentence, result["facts"]))
    return said + [
        f"{one['policy']} on {one['task']}: the gradient is lost in its own noise: give more --gradient-rollouts."
        for one in result["gradients"]
        if not one["square"] > 0
    ]


def _planted_sentence(facts: dict[str, Any]) -> str:
    """Whether measured credit agrees with the decisive tokens that the task knows; nothing where it knows none."""
    keys = ("right_planted", "wrong_planted", "open_planted", "wrong_open")
    right, wrong, still_open, share = (or_nan(facts.get(key)) for key in keys)
    if math.isnan(wrong):
        return ""
    return (
        f"{facts['policy']} on {facts['task']}: the size of the measured credit finds the planted decisive tokens with AUROC "
        f"{number_text(right)} on right and {number_text(wrong)} on wrong responses. {share:.0%} of the wrong ones had a chance of at "
        f"least {OPEN:g} before the slip; on these it is {number_text(still_open)}."
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
            f"{number_text(cosine)} |"
        )
    return "\n".join(lines) + "\n"


def _with_reach(row: Row) -> list[str]:
    spreads = {measure: value(row, measure) for measure in HEADINGS}
    return [
        _mean(row, measure) + ("" if math.isnan(one.low) else f" ± {(one.high - one.low) / 2:.3f}")
        for measure, one in spreads.items()
    ]


def _mean(row: Row, measure: str) -> str:
    return number_text(value(row, measure).mean, sign="+" if measure == "over" else "")
