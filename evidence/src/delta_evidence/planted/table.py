"""What the batches of a benchmark say together, as plain records: means over cells, with intervals over rollout batches."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from delta_evidence.methods import label
from delta_evidence.planted.conditions import CLEAN, SHUFFLED
from delta_evidence.planted.measures import SIDES, Spread, spread
from delta_evidence.planted.settings import RIVAL, PlantedSettings
from delta_rlvr.weight_words import without_effect

SCHEMA = 1
MEASURES = (
    *(f"{side}_{name}" for side in SIDES for name in ("auroc", "precision", "alike_10", "alike_50")),
    *(f"{side}_{name}" for name in ("gain", "by_reward") for side in SIDES),
    "mass_share",
    "cosine",
    "cosine_gain",
    "rank_correlation",
    "mean_absolute_change",
)
AGREEMENT = ("margin_rank_correlation", "weight_rank_correlation", "update_cosine")

Document = dict[str, Any]
"""One batch's measurements, as its file has them."""
Row = dict[str, Any]
"""A row of a table: what it is about, and a `Spread` for each measure that is known of it."""


def bench_result(documents: Sequence[Document], settings: PlantedSettings) -> dict[str, Any]:
    """Everything that `credit_bench.json` holds."""
    rows = [
        {"slice": name, **row}
        for name, wanted in slices(settings.policies, settings.tasks).items()
        for row in table([document for document in documents if wanted.items() <= document.items()])
    ]
    return {
        "schema": SCHEMA,
        "settings": dataclasses.asdict(settings),
        "rows": rows,
        "facts": facts(documents),
        "agreement": agreement(documents),
        "notes": notes(documents),
    }


def slices(policies: Sequence[str], tasks: Sequence[str]) -> dict[str, dict[str, str]]:
    """What tables are made of: all documents, those of each policy and task, and of each pair."""
    every: dict[str, dict[str, str]] = {"all": {}}
    every |= {f"policy {policy}": {"policy": policy} for policy in policies}
    every |= {f"task {task}": {"task": task} for task in tasks}
    return every | {f"{policy} on {task}": {"policy": policy, "task": task} for policy in policies for task in tasks}


def table(documents: Sequence[Document], measures: Sequence[str] = MEASURES) -> list[Row]:
    """One row per condition and method: a `Spread` for each measure, over (policy, task) cells and the batches within them."""
    records = [
        {"policy": document["policy"], "task": document["task"], **record}
        for document in documents
        for record in _with_gains(document["records"])
    ]
    return [
        {"condition": condition, "method": method, "label": label(method), **_spreads(some, measures)}
        for (condition, method), some in _grouped(records, "condition", "method").items()
    ]


def facts(documents: Sequence[Document]) -> list[dict[str, Any]]:
    """What each policy's batches on each task were like, on average."""
    rows = []
    for (policy, task), some in _grouped(documents, "policy", "task").items():
        batches = [document["facts"] for document in some]
        keys = dict.fromkeys(key for batch in batches for key in batch)
        means = {key: mean_of_known(batch.get(key) for batch in batches) for key in keys}
        rows.append({"policy": policy, "task": task, "batches": len(batches), **means})
    return rows


def agreement(documents: Sequence[Document]) -> list[dict[str, Any]]:
    """Each proxy against full gradients under each setting of the estimator, over the cells where it was measured."""
    every = [record for document in documents for record in document["agreement"]]
    return [
        {
            "proxy": proxy,
            "scope": scope,
            "refinements": refinements,
            "cells": len(records),
            "tokens": sum(record["tokens"] for record in records),
            **{measure: mean_of_known(record[measure] for record in records) for measure in AGREEMENT},
            **{f"{measure}_range": _range(record[measure] for record in records) for measure in AGREEMENT},
        }
        for (proxy, scope, refinements), records in _grouped(every, "proxy", "scope", "refinements").items()
    ]


def agreement_file(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """`proxy_agreement.json` as docs/run_schema.md has it; None where nothing was measured."""
    if not rows:
        return None

    def name(row: dict[str, Any]) -> str:
        published = row["scope"] == "batch" and row["refinements"] == 1
        return row["proxy"] + ("" if published else f" ({row['scope']} scope, K = {row['refinements']})")

    ordered = sorted(rows, key=lambda row: (row["scope"] != "batch", -row["refinements"]))
    return {
        "yardstick": "full gradient",
        "tokens": rows[0]["tokens"],
        "proxies": {name(row): {measure: row[measure] for measure in AGREEMENT} for row in ordered},
        "note": (
            f"Means over {rows[0]['cells']} policies and tasks of delta-rlvr credit-bench; each proxy and the full gradient "
            "with the same settings of the estimator, as published (batch scope, K = 1) where none are named."
        ),
    }


def notes(documents: Sequence[Document]) -> list[str]:
    """What a reader must know before the table: cells that had nothing to measure, and weights without an effect."""
    said = []
    for row in facts(documents):
        cell = f"{row['policy']} on {row['task']}"
        if row["mixed_groups"] == 0:
            said.append(
                f"{cell}: no group has both right and wrong responses (accuracy {row['accuracy']:.1%}), so there is no advantage, no "
                "credit, and nothing of it in the tables"
            )
        elif row["mixed_groups"] < 0.1:
            said.append(
                f"{cell}: only {row['mixed_groups']:.0%} of the groups have both right and wrong responses: its numbers rest on few "
                "tokens"
            )
    return said + effects(documents, without_effect)


def effects(
    documents: Sequence[Document], warn: Callable[[Iterable[Document]], str | None], but: Sequence[str] = ()
) -> list[str]:
    """What `warn` says of each method's weights."""
    records = [record for document in documents for record in document["records"] if record["condition"] == CLEAN]
    told = {method: warn(some) for (method,), some in _grouped(records, "method").items() if method not in but}
    return [f"{label(method)}: {warning}" for method, warning in told.items() if warning]


def value(row: Row, measure: str) -> Spread:
    """A measure of a table's row, as it stands there or as its file gave it back."""
    one = row.get(measure, {})
    mean, low, high = (or_nan(one.get(key)) for key in ("mean", "low", "high"))
    return Spread(mean, low, high, one.get("batches", 0))


def select(result: dict[str, Any], part: str = "all", condition: str = CLEAN) -> list[Row]:
    """The rows of one slice and condition, in the order of the methods."""
    return [row for row in result["rows"] if row["slice"] == part and row["condition"] == condition]


def by_method(result: dict[str, Any], part: str = "all", condition: str = CLEAN) -> dict[str, Row]:
    """The same rows by their method."""
    return {row["method"]: row for row in select(result, part, condition)}


def _with_gains(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each record with its AUROC's difference to the rival's on the same tokens, and to its own under shuffled rewards.

    Paired by batch, differences vary far less than the AUROCs themselves.
    """
    known = {(record["method"], record["condition"]): record for record in records}

    def gaps(name: str, record: dict[str, Any], method: str, condition: str) -> dict[str, float]:
        other = known.get((method, condition), {})
        return {
            f"{side}_{name}": or_nan(record.get(f"{side}_auroc")) - or_nan(other.get(f"{side}_auroc")) for side in SIDES
        }

    every = []
    for record in records:
        method, condition = record["method"], record["condition"]
        by_reward = gaps("by_reward", record, method, SHUFFLED) if condition == CLEAN else {}
        every.append({**record, **gaps("gain", record, RIVAL, condition), **by_reward})
    return every


def _grouped(records: Iterable[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Records by what they hold under these keys, in the order in which they come."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(tuple(record[key] for key in keys), []).append(record)
    return groups


def _spreads(records: Sequence[dict[str, Any]], measures: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Each measure over cells and the batches within them; those that were never measured are left out."""
    cells = _grouped(records, "policy", "task").values()
    spreads = {
        measure: spread([[or_nan(record.get(measure)) for record in cell] for cell in cells]) for measure in measures
    }
    return {measure: dataclasses.asdict(one) for measure, one in spreads.items() if one.batches}


def or_nan(given: float | None) -> float:
    """A file has null where a number was NaN."""
    return math.nan if given is None else float(given)


def number_text(number: float, digits: int = 3, sign: str = "") -> str:
    """A number in a table; a dash for NaN."""
    return "-" if math.isnan(number) else f"{number:{sign}.{digits}f}"


def mean_of_known(values: Iterable[float | None]) -> float:
    """Without those that are NaN; NaN where all are."""
    known = _known(values)
    return math.fsum(known) / len(known) if known else math.nan


def _range(values: Iterable[float | None]) -> list[float]:
    known = _known(values)
    return [min(known), max(known)] if known else [math.nan, math.nan]


def _known(values: Iterable[float | None]) -> list[float]:
    return [number for given in values if not math.isnan(number := or_nan(given))]
