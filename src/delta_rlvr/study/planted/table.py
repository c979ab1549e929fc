"""What the batches of a benchmark say together, as plain records: means over cells, with intervals over rollout batches."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from delta_rlvr.study.planted.conditions import CLEAN, SHUFFLED
from delta_rlvr.study.planted.labelled import SIDES
from delta_rlvr.study.planted.measures import Spread, spread
from delta_rlvr.study.planted.methods import label
from delta_rlvr.study.planted.settings import RIVAL, BenchSettings

SCHEMA = 1
MEASURES = (
    "right_auroc",
    "right_precision",
    "right_alike_10",
    "right_alike_50",
    "wrong_auroc",
    "wrong_precision",
    "wrong_alike_10",
    "wrong_alike_50",
    "right_gain",
    "wrong_gain",
    "right_by_reward",
    "wrong_by_reward",
    "mass_share",
    "cosine",
    "cosine_gain",
    "rank_correlation",
    "mean_absolute_change",
)

Document = dict[str, Any]
"""One batch's measurements, as its file has them."""


def bench_result(documents: Sequence[Document], settings: BenchSettings) -> dict[str, Any]:
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
    named: dict[str, dict[str, str]] = {"all": {}}
    named |= {f"policy {policy}": {"policy": policy} for policy in policies}
    named |= {f"task {task}": {"task": task} for task in tasks}
    return named | {
        f"{policy} on {task}": {"policy": policy, "task": task} for policy in policies for task in tasks
    }


def table(documents: Sequence[Document], measures: Sequence[str] = MEASURES) -> list[dict[str, Any]]:
    """One row a condition and method: a `Spread` for each measure, over (policy, task) cells and the batches within them."""
    by_arm: dict[tuple[str, str], dict[tuple[str, str], list[dict[str, Any]]]] = {}
    for document in documents:
        cell = document["policy"], document["task"]
        for record in _with_gains(document["records"]):
            by_cell = by_arm.setdefault((record["condition"], record["method"]), {})
            by_cell.setdefault(cell, []).append(record)
    return [
        {
            "condition": condition,
            "method": method,
            "label": label(method),
            **{
                measure: dataclasses.asdict(value)
                for measure in measures
                if (value := _over_cells(list(cells.values()), measure)).batches
            },
        }
        for (condition, method), cells in by_arm.items()
    ]


def facts(documents: Sequence[Document]) -> list[dict[str, Any]]:
    """What each policy's batches on each task were like, on average."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for document in documents:
        cells.setdefault((document["policy"], document["task"]), []).append(document["facts"])
    return [
        {
            "policy": policy,
            "task": task,
            "batches": len(batches),
            **{
                key: _mean([batch.get(key) for batch in batches])
                for key in dict.fromkeys(key for batch in batches for key in batch)
            },
        }
        for (policy, task), batches in cells.items()
    ]


def agreement(documents: Sequence[Document]) -> list[dict[str, Any]]:
    """Each proxy against full gradients under each setting of the estimator, over the cells where it was measured."""
    by_setting: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for document in documents:
        for record in document["agreement"]:
            key = record["proxy"], record["scope"], record["refinements"]
            by_setting.setdefault(key, []).append(record)
    measures = ("margin_rank_correlation", "weight_rank_correlation", "update_cosine")
    return [
        {
            "proxy": proxy,
            "scope": scope,
            "refinements": refinements,
            "cells": len(records),
            "tokens": sum(record["tokens"] for record in records),
            **{measure: _mean([record[measure] for record in records]) for measure in measures},
            **{f"{measure}_range": _range([record[measure] for record in records]) for measure in measures},
        }
        for (proxy, scope, refinements), records in by_setting.items()
    ]


def agreement_file(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """`proxy_agreement.json` as docs/run_schema.md has it; None where nothing was measured."""
    if not rows:
        return None

    def name(row: dict[str, Any]) -> str:
        published = row["scope"] == "batch" and row["refinements"] == 1
        return (
            row["proxy"] if published else f"{row['proxy']} ({row['scope']} scope, K = {row['refinements']})"
        )

    measures = ("margin_rank_correlation", "weight_rank_correlation", "update_cosine")
    first_settings = [row for row in rows if row["proxy"] == rows[0]["proxy"]][:1]
    return {
        "yardstick": "full gradient",
        "tokens": first_settings[0]["tokens"],
        "proxies": {
            name(row): {measure: row[measure] for measure in measures} for row in _published_first(rows)
        },
        "note": (
            f"Means over {first_settings[0]['cells']} policies and tasks of delta-rlvr credit-bench; each proxy and the full gradient "
            "with the same settings of the estimator, as published (batch scope, K = 1) where none are named."
        ),
    }


def notes(documents: Sequence[Document]) -> list[str]:
    """What a reader must know before the table: cells that had nothing to measure."""
    lines = []
    for row in facts(documents):
        if row["mixed_groups"] == 0:
            lines.append(
                f"{row['policy']} on {row['task']}: no group has both right and wrong responses (accuracy "
                f"{row['accuracy']:.1%}), so there is no advantage, no credit, and nothing of it in the tables"
            )
        elif row["mixed_groups"] < 0.1:
            lines.append(
                f"{row['policy']} on {row['task']}: only {row['mixed_groups']:.0%} of the groups have both right and wrong "
                "responses: its numbers rest on few tokens"
            )
    return lines


def value(row: dict[str, Any], measure: str) -> Spread:
    """A measure of a table's row, as it stands there or as its file gave it back."""
    stored = row.get(measure)
    if stored is None:
        return Spread(math.nan, math.nan, math.nan, 0)
    mean, low, high = (
        math.nan if stored[key] is None else float(stored[key]) for key in ("mean", "low", "high")
    )
    return Spread(mean, low, high, stored["batches"])


def select(result: dict[str, Any], part: str = "all", condition: str = CLEAN.name) -> list[dict[str, Any]]:
    """The rows of one slice and condition, in the order of the methods."""
    return [row for row in result["rows"] if row["slice"] == part and row["condition"] == condition]


def _with_gains(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each record with its AUROC's difference to the rival's on the same tokens, and to its own under shuffled rewards.

    Paired by batch, differences vary far less than the AUROCs themselves.
    """
    by_arm = {(record["method"], record["condition"]): record for record in records}

    def gap(record: dict[str, Any], other: dict[str, Any], key: str) -> float | None:
        ours, theirs = record.get(key), other.get(key)
        return None if ours is None or theirs is None else ours - theirs

    with_gains = []
    for record in records:
        rival = by_arm.get((RIVAL, record["condition"]), {})
        control = (
            by_arm.get((record["method"], SHUFFLED.name), {}) if record["condition"] == CLEAN.name else {}
        )
        gains = {f"{side}_gain": gap(record, rival, f"{side}_auroc") for side in SIDES}
        by_reward = {f"{side}_by_reward": gap(record, control, f"{side}_auroc") for side in SIDES}
        with_gains.append({**record, **gains, **by_reward})
    return with_gains


def _over_cells(cells: Sequence[Sequence[dict[str, Any]]], measure: str) -> Spread:
    return spread(
        [
            [math.nan if (number := record.get(measure)) is None else number for record in cell]
            for cell in cells
        ]
    )


def _published_first(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["scope"] != "batch", -row["refinements"]))


def _mean(values: Sequence[float | None]) -> float:
    known = [number for number in values if number is not None and not math.isnan(number)]
    return math.fsum(known) / len(known) if known else math.nan


def _range(values: Sequence[float | None]) -> list[float]:
    known = [number for number in values if number is not None and not math.isnan(number)]
    return [min(known), max(known)] if known else [math.nan, math.nan]
