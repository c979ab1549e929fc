"""`delta-rlvr compare`: the same run for several methods and seeds, and what the difference is worth."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from delta_rlvr.commands.options import parse_train_options
from delta_rlvr.commands.train import train
from delta_rlvr.evaluate.significance import holm, mann_whitney, sign_flip_test
from delta_rlvr.objectives import get_method
from delta_rlvr.report import write_report
from delta_rlvr.runs import read_run

HELP = """The same training run for each method and seed, one after another, then one table: held-out accuracy by method, the
difference to the first method paired by seed, and a test. Interrupt it and start it again with the same options: finished
runs are kept, an unfinished one goes on from its last whole checkpoint. Every option of `delta-rlvr train` works here too."""


def run(arguments: list[str]) -> int:
    """The subcommand."""
    parser = argparse.ArgumentParser(
        prog="delta-rlvr compare",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--methods",
        required=True,
        help="names with commas; the first one is what the others are compared with",
    )
    parser.add_argument(
        "--seeds", type=int, default=3, help="how many seeds, from --seed upwards (default: %(default)s)"
    )
    parser.add_argument("--output", default="runs/compare", help="folder of the runs (default: %(default)s)")
    mine, theirs = parser.parse_known_args(arguments)
    methods = [name.strip() for name in mine.methods.split(",") if name.strip()]
    if len(set(methods)) != len(methods) or len(methods) < 2:
        raise ValueError(f"--methods {mine.methods}: give two or more different names, as in dapo,delta")
    if mine.seeds < 1:
        raise ValueError(f"--seeds {mine.seeds}: give at least 1")
    for name in methods:
        get_method(name)
    for flag in ("--method", "--resume"):
        if flag in theirs:
            raise ValueError(f"{flag} is not for compare: it runs --methods, and goes on by itself")
    console = Console()
    folder = Path(mine.output)
    # Seed by seed, so that an interrupted comparison has the same seeds of every method.
    _, base = parse_train_options([*theirs, "--method", methods[0], "--output", str(folder)])
    for seed in range(base.seed, base.seed + mine.seeds):
        for name in methods:
            _one(theirs, name, seed, folder, console)
    return conclude(folder, methods, range(base.seed, base.seed + mine.seeds), console)


def _one(arguments: list[str], method: str, seed: int, folder: Path, console: Console) -> None:
    place = folder / f"{method}-seed{seed}"
    status = _status(place)
    if status == "finished":
        console.print(f"{place} is finished: kept")
        return
    console.rule(f"{method}, seed {seed}")
    given = [*arguments, "--method", method, "--seed", str(seed), "--output", str(place)]
    options, config = parse_train_options(given)
    options = replace(options, report=False, resume=status is not None)
    if options.eval_problems == 0:
        raise ValueError("--eval_problems 0: compare needs a held-out score")
    train(options, config, console)


def _status(place: Path) -> str | None:
    """Where a run stands; None where there is none."""
    path = place / "run.json"
    return json.loads(path.read_text(encoding="utf-8"))["status"] if path.exists() else None


def conclude(folder: Path, methods: Sequence[str], seeds: Sequence[int], console: Console) -> int:
    """The table, what it can tell, and the report of all runs."""
    scores = {
        method: [_final(folder / f"{method}-seed{seed}")["after"]["accuracy"] for seed in seeds]
        for method in methods
    }
    rows = comparison_rows(scores)
    table = Table(title=f"held-out accuracy after training, {len(seeds)} seeds", title_justify="left")
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
    console.print(sentence(rows, len(seeds)), highlight=False)
    (folder / "comparison.json").write_text(json.dumps({"scores": scores, "rows": rows}, indent=1))
    page = write_report(
        [folder / f"{method}-seed{seed}" for method in methods for seed in seeds], folder / "report.html"
    )
    console.print(f"report: {page}", soft_wrap=True)
    return 0


def _final(place: Path) -> dict[str, Any]:
    final = read_run(place).info.get("final") or {}
    if "after" not in final:
        raise ValueError(f"{place} has no held-out score: delete the folder and run the comparison again")
    return final


def comparison_rows(scores: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Mean, spread and tests of each method against the first."""
    baseline, *others = scores
    rows: list[dict[str, Any]] = []
    for method, values in scores.items():
        row: dict[str, Any] = {"method": method, "mean": statistics.fmean(values), "sd": None}
        if len(values) > 1:
            row["sd"] = statistics.stdev(values)
        if method != baseline:
            row["difference"] = row["mean"] - statistics.fmean(scores[baseline])
            if len(values) > 1:
                row["p_paired"] = sign_flip_test(values, scores[baseline]).p
                row["p_mann_whitney"] = mann_whitney(values, scores[baseline]).p
        rows.append(row)
    if len(scores[baseline]) > 1:
        for row, adjusted in zip(rows[1:], holm([row["p_paired"] for row in rows[1:]]), strict=True):
            row["p_holm"] = adjusted
    assert len(rows) == len(others) + 1
    return rows


def sentence(rows: list[dict[str, Any]], seeds: int) -> str:
    """What the table can and cannot tell."""
    least = 2.0 ** (1 - seeds)
    if least > 0.05:
        return (
            f"With {seeds} seeds a test paired by seed cannot come below p = {least:.3g}, whatever the difference: "
            "take 6 or more to tell methods apart."
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
