"""`delta-rlvr measured-credit`: measure token credit by continuations, whether weights follow it, and what their updates gain."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from delta_evidence.commands.options import add_options, add_workers, asked, begin
from delta_evidence.judging import judges_beside
from delta_evidence.measured.bench import MeasuredBench
from delta_evidence.measured.figure import measured_figure
from delta_evidence.measured.settings import MeasuredSettings
from delta_evidence.measured.table import HEADINGS, cells, markdown, measured_result, ordered, sentences
from delta_evidence.stopping import Stop
from delta_rlvr.evaluate.server_sampler import ServerSettings
from delta_rlvr.exit_codes import at_work
from delta_rlvr.files import dump, locked, write_text
from delta_rlvr.terminal import add_columns, say

FOLDERS = Path("runs/measured"), Path("runs/measured-quick")
RESULT, TABLE, FIGURE = "measured_credit.json", "measured_credit.md", "measured_credit.svg"

QUICK: dict[str, Any] = {"batches": 2, "prompts": 4, "responses": 4, "budget": 64}
QUICK |= {"update_batches": 4, "gradient_rollouts": 64}
"""A look in a minute: too little to conclude from."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    quick = "small batches and few continuations: a minute"
    add_options(parser, MeasuredSettings, FOLDERS, quick)
    add_workers(parser)
    add = parser.add_argument
    add(
        "--server",
        metavar="URL",
        help="take continuations from an OpenAI-compatible server with the same model, such as http://localhost:8000/v1",
    )
    add("--served-model", metavar="NAME", help="the server's name for the model (default: --model's)")
    add("--concurrency", type=int, metavar="N", help="requests to the server at once (default: 256)")
    add(
        "--api-key-env",
        metavar="NAME",
        help="variable that holds the server's key, if one is needed (default: OPENAI_API_KEY)",
    )
    add("--seconds", type=float, help="end within this time; the same command goes on from what is there")


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    console = begin(options.device)
    chosen, folder = asked(options, MeasuredSettings, QUICK, FOLDERS)
    server = _server(options, chosen.get("policies", MeasuredSettings.policies))
    settings = MeasuredSettings(**chosen, served=None if server is None else server.model)
    tell = partial(say, console)
    stop = Stop(options.seconds, tell)
    workers = options.workers if options.workers is not None else judges_beside(options.device)
    bench = MeasuredBench(settings, folder, device=options.device, workers=workers, server=server, stop=stop, say=tell)
    with locked(folder), stop:
        bench.prepare()
        with at_work():
            done = bench.go()
        result = measured_result(bench.documents(), bench.fidelities(), settings)
        files = {RESULT: dump(result, indent=1), TABLE: markdown(result), FIGURE: measured_figure(result)}
        for name, text in files.items():
            write_text(folder / name, text)
    show(result, console)
    if bench.phases.seconds:
        taken = sorted(bench.phases.seconds.items(), key=lambda one: -one[1])
        tell("seconds: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in taken))
    if not done:
        tell("stopped before all was measured: the same command goes on from here")
    for name in files:
        tell(str(folder / name))
    return stop.exit_code(done)


def _server(options: argparse.Namespace, policies: Sequence[str]) -> ServerSettings | None:
    """Where continuations come from, if a server was named."""
    if options.server is None:
        for name in ("served_model", "concurrency", "api_key_env"):
            if getattr(options, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} belongs to --server: name one, or leave it out")
        return None
    if len(policies) != 1:
        raise ValueError(f"--server holds one model: give one --model, not {len(policies)}")
    return ServerSettings(
        url=options.server,
        model=options.served_model or policies[0],
        api="completions",
        concurrency=256 if options.concurrency is None else options.concurrency,
        api_key=os.environ.get(options.api_key_env or "OPENAI_API_KEY"),
    )


def show(result: dict[str, Any], console: Console) -> None:
    """The conclusion, the table, and how to read it."""
    rows = ordered(result)
    if not rows:
        console.print("No batch had a group with both outcomes: there is nothing to tell.", markup=False)
        return
    for sentence in sentences(result):
        console.print(sentence, markup=False, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    table.add_column("weight", overflow="fold", max_width=24)
    add_columns(table, HEADINGS.values(), max_width=6)
    for row in rows:
        table.add_row(row["label"], *cells(row))
    console.print(table)
    console.print(
        "rank: Spearman's correlation of the weight with |measured credit|. AUROC: finding the top tenth by it. sign: share of the "
        "tokens with a sure credit that the weight, less the mean weight, pushes the right way. gain: expected reward gained at equal "
        "step length, 1 for the true gradient. mean's gain: that of the mean update, corrected for noise, so that it may exceed 1 "
        f"(what is lacking is bias; ± in {TABLE}). noise: the share of the update that other batches would not share. labels: one "
        "half of the continuations as a score of the other half.",
        markup=False,
        highlight=False,
    )
