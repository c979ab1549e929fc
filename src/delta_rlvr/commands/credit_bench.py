"""`delta-rlvr credit-bench`: does the credit land on the tokens that decided?"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from delta_rlvr.runs.files import PROXY_AGREEMENT, atomic, dump
from delta_rlvr.study.bench_table import agreement_file, bench_result, select, value
from delta_rlvr.study.conditions import CLEAN, PERTURBED
from delta_rlvr.study.figure import bench_figure
from delta_rlvr.study.measures import Spread
from delta_rlvr.study.planted import STABILITY, TERCILES, BenchSettings, CreditBench

RESULT, FIGURE = "credit_bench.json", "credit_bench.svg"

QUICK = {
    "policies": ("builtin",),
    "tasks": ("phrased-sums", "distractor-facts"),
    "length_tasks": (),
    "batches": 2,
    "prompts": 8,
    "deep_batches": 1,
    "update_prompts": 8,
    "agreement_tokens": 450,
}
"""A look in half a minute: too few tokens to conclude from."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    given = BenchSettings()
    parser.add_argument(
        "--policies",
        "--model",
        type=_names,
        help="builtin; confident and sharp, which are made from it by a short seeded continuation (confident?seed=9 for "
        f"another draw); a folder; smollm2-135m; a hub id (default: {','.join(given.policies)})",
    )
    parser.add_argument(
        "--tasks", type=_names, help=f"built-in tasks, settings after '?' (default: {','.join(given.tasks)})"
    )
    parser.add_argument(
        "--methods",
        type=_names,
        help="methods by name, settings after '?' as in 'delta?proxy=head&scope=group&refinements=0', and oracle, "
        "oracle-wide, oracle-only (default: all, with every proxy and scope)",
    )
    parser.add_argument(
        "--batches", type=int, help=f"rollout batches a policy and task (default: {given.batches})"
    )
    parser.add_argument("--prompts", type=int, help=f"prompts a batch (default: {given.prompts})")
    parser.add_argument("--group", type=int, help=f"responses a prompt (default: {given.group})")
    parser.add_argument("--seed", type=int, help=f"of prompts, samples, noise (default: {given.seed})")
    parser.add_argument(
        "--shots",
        type=int,
        help="worked solutions before each question, for a policy that was never shown the task",
    )
    parser.add_argument(
        "--learning-rate", type=float, help="of the DAPO step after which FIPO's weights are taken"
    )
    parser.add_argument("--rows-at-once", type=int, help="responses in one forward and backward pass")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, default=Path("runs/credit-bench"), help="run again to go on")
    parser.add_argument(
        "--quick", action="store_true", help="one policy, two tasks, small batches: half a minute"
    )


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    console = Console()
    settings = bench_settings(options)
    folder: Path = options.output

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    bench = CreditBench(settings, folder, device=options.device, say=say)
    bench.prepare()
    missing = bench.missing()
    say(f"{len(bench.plan())} rollout batches, {len(missing)} to measure")
    began = time.monotonic()
    for number, unit in enumerate(missing, start=1):
        facts = bench.measure_and_keep(unit)["facts"]
        left = (time.monotonic() - began) / number * (len(missing) - number) / 60
        say(
            f"{number}/{len(missing)}  {unit.policy}, {unit.task}, batch {unit.number + 1}: {facts['accuracy']:.0%} right, "
            f"{facts['mixed_groups']:.0%} of the groups mixed; about {left:.1f} min left"
        )
    documents = bench.documents()
    result = bench_result(documents, settings)
    with atomic(folder / RESULT) as file:
        file.write(dump(result, indent=1).encode())
    agreement = agreement_file(result["agreement"])
    if agreement is not None:
        with atomic(folder / PROXY_AGREEMENT) as file:
            file.write(dump(agreement, indent=1).encode())
    with atomic(folder / FIGURE) as file:
        file.write(bench_figure(result).encode())
    show(result, settings, console)
    for name in (RESULT, FIGURE, *([PROXY_AGREEMENT] if agreement is not None else [])):
        say(str(folder / name))
    return 0


def bench_settings(options: argparse.Namespace) -> BenchSettings:
    """The settings that the options stand for."""
    chosen: dict[str, Any] = dict(QUICK) if options.quick else {}
    for name in (
        "policies",
        "tasks",
        "methods",
        "batches",
        "prompts",
        "group",
        "seed",
        "shots",
        "learning_rate",
        "rows_at_once",
    ):
        given = getattr(options, name)
        if given is not None:
            chosen[name] = given
    if options.methods is not None:
        chosen["stability"] = tuple(name for name in options.methods if name in STABILITY) or tuple(
            options.methods
        )
    if options.tasks is not None:
        chosen.setdefault("length_tasks", ())
    return BenchSettings(**chosen)


def show(result: dict[str, Any], settings: BenchSettings, console: Console) -> None:
    """The tables, and what has to be known to read them."""
    for note in result["notes"]:
        console.print(f"Note: {note}.", markup=False, highlight=False)
    rows = select(result)
    if not rows:
        console.print("No batch had a group with both outcomes: there is nothing to tell.")
        return
    console.print(_main_table(result, settings))
    if len(settings.policies) > 1:
        console.print(_slices_table(result, [f"policy {name}" for name in settings.policies], "By policy"))
    if len(settings.tasks) > 1:
        console.print(_slices_table(result, [f"task {name}" for name in settings.tasks], "By task"))
    if any(row["condition"] != CLEAN.name for row in result["rows"]):
        console.print(_stability_table(result))
    if any(row["slice"].startswith("length ") for row in result["rows"]):
        parts = [f"length {name}" for name in settings.length_tasks]
        console.print(_slices_table(result, parts, "By length: sentences of filler after each step"))
    if result["agreement"]:
        console.print(_agreement_table(result))


def _main_table(result: dict[str, Any], settings: BenchSettings) -> Table:
    share = {side: _share(result, settings, f"{side}_decisive_share") for side in ("right", "wrong")}
    table = Table(
        title="Where the credit lands: token weights against the tokens that decided",
        title_justify="left",
        caption=(
            f"Means over {len(settings.policies)} policies x {len(settings.tasks)} tasks, +- half a 95 % interval over rollout "
            "batches. Only tokens of groups with both outcomes. AP: average precision; without skill it is the share of decisive "
            f"tokens, {share['right']:.3f} (right) and {share['wrong']:.3f} (wrong). alike: AUROC among tokens within tenths / "
            "fiftieths of p; what `surprise` has there is what p still tells. mass: share of sum rho|A| on decisive tokens. "
            "cosine: of the update with that of the decisive tokens alone. fipo: after one DAPO step (it is dapo at theta_old)."
        ),
        caption_justify="left",
    )
    headings = (
        "weight",
        "right AUROC",
        "AP",
        "alike",
        "wrong AUROC",
        "AP",
        "alike",
        "mass",
        "cosine",
        "against dapo",
    )
    for heading in headings:
        table.add_column(
            heading, justify="left" if heading == "weight" else "right", no_wrap=heading == "weight"
        )
    for row in select(result):
        cells = [row["label"]]
        for side in ("right", "wrong"):
            alike = " / ".join(_number(value(row, f"{side}_alike_{bins}").mean, 2) for bins in (10, 50))
            cells += [
                _spread(value(row, f"{side}_auroc")),
                _number(value(row, f"{side}_precision").mean),
                alike,
            ]
        cells += [_number(value(row, "mass_share").mean), _number(value(row, "cosine").mean)]
        cells.append(_spread(value(row, "cosine_gain"), sign="+"))
        table.add_row(*cells)
    return table


def _slices_table(result: dict[str, Any], parts: Sequence[str], title: str) -> Table:
    table = Table(title=f"{title}: AUROC on right / wrong responses", title_justify="left")
    table.add_column("weight", no_wrap=True)
    for part in parts:
        table.add_column(part.partition(" ")[2].partition("&")[0], justify="right")
    by_part = [{row["method"]: row for row in select(result, part)} for part in parts]
    names = list(dict.fromkeys(name for rows in by_part for name in rows))
    for name in names:
        cells = []
        for rows in by_part:
            row = rows.get(name, {})
            sides = [value(row, f"{side}_auroc").mean for side in ("right", "wrong")]
            cells.append(" / ".join(_number(number, 2) for number in sides))
        table.add_row(next(rows[name]["label"] for rows in by_part if name in rows), *cells)
    return table


def _stability_table(result: dict[str, Any]) -> Table:
    conditions = [CLEAN.name, *(condition.name for condition in PERTURBED), *TERCILES]
    table = Table(
        title="Stability: AUROC on right / wrong responses, and the rank correlation with the clean weights",
        title_justify="left",
        caption=(
            "noise: share of verdicts flipped. sparse: one right response a group is kept. shuffled: rewards permuted within "
            "groups, so that they say nothing. Thirds by length: the clean weights, on those responses alone."
        ),
        caption_justify="left",
    )
    table.add_column("weight", no_wrap=True)
    by_condition = {
        name: {row["method"]: row for row in select(result, condition=name)} for name in conditions
    }
    for name in conditions:
        table.add_column(name, justify="right")
    methods = list(dict.fromkeys(method for name in conditions[1:] for method in by_condition[name]))
    for method in methods:
        cells = []
        for name in conditions:
            row = by_condition[name].get(method, {})
            sides = " / ".join(_number(value(row, f"{side}_auroc").mean, 2) for side in ("right", "wrong"))
            moved = value(row, "rank_correlation").mean
            cells.append(sides if math.isnan(moved) else f"{sides}\n{moved:.2f}")
        table.add_row(by_condition[CLEAN.name][method]["label"], *cells)
    return table


def _agreement_table(result: dict[str, Any]) -> Table:
    first = result["agreement"][0]
    table = Table(
        title=f"Proxies against full-parameter gradients ({first['tokens']} tokens of {first['cells']} policies and tasks)",
        title_justify="left",
        caption="Rank correlations of margins and of coefficients, and the cosine of the updates that the coefficients give.",
        caption_justify="left",
    )
    for heading in ("proxy", "scope", "K", "margins", "coefficients", "updates"):
        table.add_column(heading, justify="left" if heading in ("proxy", "scope") else "right")
    for row in result["agreement"]:
        table.add_row(
            row["proxy"],
            row["scope"],
            str(row["refinements"]),
            *(
                f"{_number(row[key])} ({_number(row[f'{key}_range'][0], 2)} .. {_number(row[f'{key}_range'][1], 2)})"
                for key in ("margin_rank_correlation", "weight_rank_correlation")
            ),
            _number(row["update_cosine"], 4),
        )
    return table


def _share(result: dict[str, Any], settings: BenchSettings, key: str) -> float:
    known = [
        row[key] for row in result["facts"] if row["task"] in settings.tasks and not math.isnan(row[key])
    ]
    return sum(known) / len(known) if known else math.nan


def _number(number: float, digits: int = 3) -> str:
    return "-" if math.isnan(number) else f"{number:.{digits}f}"


def _spread(found: Spread, sign: str = "") -> str:
    if math.isnan(found.mean):
        return "-"
    reach = "" if math.isnan(found.low) else f" ±{(found.high - found.low) / 2:.3f}"
    return f"{found.mean:{sign}.3f}{reach}"


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError("give names, separated by commas")
    return names
