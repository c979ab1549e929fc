"""`delta-rlvr compare`: the same run for several methods and seeds, and what the difference is worth."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from delta_rlvr.commands.options import parse_train_options
from delta_rlvr.commands.train import run_settings, train
from delta_rlvr.evaluate.seeds import adjust, compare_seeds
from delta_rlvr.objectives import get_method
from delta_rlvr.report import write_report
from delta_rlvr.runs import read_run
from delta_rlvr.runs.files import atomic, plain

# Settings that may differ between a finished run that is kept and the comparison it is kept for.
_INCIDENTAL = ("output", "output_dir", "logging_dir", "report", "run_name", "save_total_limit")


def run(arguments: list[str]) -> int:
    """The subcommand."""
    parser = argparse.ArgumentParser(prog="delta-rlvr compare", add_help=False, allow_abbrev=False)
    parser.add_argument("--methods", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", default="runs/compare")
    mine, theirs = parser.parse_known_args(arguments)
    methods = [name.strip() for name in mine.methods.split(",") if name.strip()]
    if len(set(methods)) != len(methods) or len(methods) < 2:
        raise ValueError(f"--methods {mine.methods}: give two or more different names, as in dapo,delta")
    if mine.seeds < 1:
        raise ValueError(f"--seeds {mine.seeds}: give at least 1")
    for name in methods:
        get_method(name)
    if len({folder_name(name) for name in methods}) != len(methods):
        raise ValueError(
            f"--methods {mine.methods}: two of them would share a folder; give one a name of its own with @register"
        )
    for flag in ("--method", "--resume"):
        if any(word == flag or word.startswith(f"{flag}=") for word in theirs):
            raise ValueError(f"{flag} is not for compare: it runs --methods, and goes on by itself")
    console = Console()
    folder = Path(mine.output)
    # Seed by seed, so that an interrupted comparison has the same seeds of every method.
    base, config = parse_train_options([*theirs, "--method", methods[0], "--output", str(folder)])
    if base.eval_problems == 0:
        raise ValueError("--eval_problems 0: compare needs a held-out score")
    console.quiet = config.process_index > 0
    seeds = range(config.seed, config.seed + mine.seeds)
    for seed in seeds:
        for name in methods:
            _one(theirs, name, seed, folder, console)
    return conclude(folder, methods, seeds, console) if config.process_index == 0 else 0


def folder_name(method: str) -> str:
    """A method's name as part of a folder's: what a path cannot have, or a shell would trip over, becomes a dash."""
    return re.sub(r"[^\w.=-]+", "-", method)


def _one(arguments: list[str], method: str, seed: int, folder: Path, console: Console) -> None:
    place = folder / f"{folder_name(method)}-seed{seed}"
    given = [*arguments, "--method", method, "--seed", str(seed), "--output", str(place)]
    options, config = parse_train_options(given)
    started = read_run(place).info if (place / "run.json").exists() else None
    if started is not None:
        _check_same(place, started, run_settings(options, config))
        if started.get("status") == "finished":
            console.print(f"{place} is finished: kept", markup=False, highlight=False, soft_wrap=True)
            return
    console.rule(f"{method}, seed {seed}")
    train(replace(options, report=False, resume=started is not None), config, console)


def _check_same(place: Path, started: dict[str, Any], settings: dict[str, Any]) -> None:
    """Runs with other settings must not stand in one table."""
    before = started.get("settings", {})
    now = plain(settings)
    # What is None here is filled in by the task when a run starts.
    other = [
        f"{key} was {before[key]!r} and is now {now[key]!r}"
        for key in sorted(before.keys() & now.keys())
        if before[key] != now[key] and now[key] is not None and key not in _INCIDENTAL
    ]
    if other:
        raise ValueError(
            f"{place} was run with other settings ({'; '.join(other)}): use those, or give another --output"
        )


def conclude(folder: Path, methods: Sequence[str], seeds: Sequence[int], console: Console) -> int:
    """The table, what it can tell, and the report of all runs."""
    scores = {
        method: [_final(folder / f"{folder_name(method)}-seed{seed}")["after"]["accuracy"] for seed in seeds]
        for method in methods
    }
    rows = comparison_rows(scores)
    table = Table(
        title=f"held-out accuracy after training, {_count(len(seeds), 'seed')}", title_justify="left"
    )
    for heading in (
        "method",
        "mean",
        "SD",
        f"against {methods[0]}",
        "p paired",
        "p Mann-Whitney",
        "p paired (Holm)",
    ):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for row in rows:
        cells = [row["method"], f"{row['mean']:.1%}", f"{row['sd']:.1%}" if row["sd"] is not None else "-"]
        for key, form in (
            ("difference", "{:+.1%}"),
            ("p_paired", "{:.3f}"),
            ("p_mann_whitney", "{:.3f}"),
            ("p_holm", "{:.3f}"),
        ):
            cells.append(form.format(row[key]) if row.get(key) is not None else "-")
        table.add_row(*cells)
    console.print(table)
    console.print(sentence(rows, len(seeds)), markup=False, highlight=False)
    told = {"seeds": list(seeds), "scores": scores, "rows": rows, "sentence": sentence(rows, len(seeds))}
    with atomic(folder / "comparison.json") as file:
        file.write(json.dumps(told, indent=1).encode())
    page = write_report(
        [folder / f"{folder_name(method)}-seed{seed}" for method in methods for seed in seeds],
        folder / "report.html",
    )
    console.print(f"report: {page}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _final(place: Path) -> dict[str, Any]:
    final = read_run(place).info.get("final") or {}
    if "after" not in final:
        raise ValueError(f"{place} has no held-out score: delete the folder and run the comparison again")
    return final


def comparison_rows(scores: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Mean, spread and tests of each method against the first, as `comparison.json` keeps them."""
    rows: list[dict[str, Any]] = []
    by_seed = {method: dict(enumerate(values)) for method, values in scores.items()}
    for found in adjust(compare_seeds(by_seed, next(iter(scores)))):
        row: dict[str, Any] = {"method": found.method, "mean": found.mean, "sd": found.sd}
        if found.difference is not None:
            row["difference"] = found.difference.mean
        if found.p_paired is not None:
            row |= {
                "p_paired": found.p_paired,
                "p_mann_whitney": found.p_mann_whitney,
                "p_holm": found.p_holm,
            }
        rows.append(row)
    return rows


def sentence(rows: list[dict[str, Any]], seeds: int) -> str:
    """What the table can and cannot tell."""
    comparisons = len(rows) - 1
    # All differences of one sign: two of the 2^seeds ways to flip them are as extreme. Holm takes the best one times the comparisons.
    least = min(1.0, comparisons * 2.0 ** (1 - seeds))
    if least >= 0.05:
        enough = next(n for n in range(2, 99) if comparisons * 2.0 ** (1 - n) < 0.05)
        return (
            f"With {_count(seeds, 'seed')} and {_count(comparisons, 'comparison')} a test paired by seed cannot come below "
            f"p = {least:.3g}, whatever the difference: take {enough} seeds or more to tell methods apart."
        )
    baseline = rows[0]["method"]
    told = [
        f"{row['method']} is {'above' if row['difference'] > 0 else 'below'} {baseline} by {abs(row['difference']):.1%} "
        f"(p = {row['p_holm']:.3f})"
        for row in rows[1:]
        if row["p_holm"] < 0.05
    ]
    if not told:
        return (
            f"No method differs from {baseline} at the 5 % level (two-sided, Holm's correction): "
            "the differences are within what seeds do."
        )
    return "; ".join(told) + ". The p-values are paired by seed, two-sided, with Holm's correction."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
