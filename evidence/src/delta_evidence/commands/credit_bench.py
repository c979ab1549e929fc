"""`delta-rlvr credit-bench`: measure whether the credit lands on the tokens that decided, on tasks that know them."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

from delta_evidence.commands.options import add_options, asked, begin
from delta_evidence.commands.planted_display import show
from delta_evidence.planted.bench import CreditBench
from delta_evidence.planted.figure import bench_figure
from delta_evidence.planted.settings import PlantedSettings
from delta_evidence.planted.table import agreement_file, bench_result
from delta_rlvr.exit_codes import at_work
from delta_rlvr.files import dump, write_text
from delta_rlvr.runs.layout import PROXY_AGREEMENT
from delta_rlvr.terminal import say

# Two folders: batches of other sizes are refused in one.
FOLDERS = Path("runs/credit-bench"), Path("runs/credit-bench-quick")
RESULT, FIGURE = "credit_bench.json", "credit_bench.svg"

QUICK: dict[str, Any] = {"policies": ("builtin",), "tasks": ("phrased-sums", "distractor-facts")}
QUICK |= {"batches": 2, "prompts": 8, "deep_batches": 1, "update_prompts": 8, "agreement_tokens": 450}
"""A look in half a minute: too few tokens to conclude from."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    quick = "one policy, two tasks, small batches: half a minute"
    add_options(parser, PlantedSettings, FOLDERS, quick)


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    console = begin(options.device)
    chosen, folder = asked(options, PlantedSettings, QUICK, FOLDERS)
    if options.methods is not None:
        chosen["stability"] = options.methods
    settings = PlantedSettings(**chosen)
    tell = partial(say, console)
    bench = CreditBench(settings, folder, device=options.device, say=tell)
    bench.prepare()
    missing = bench.missing()
    tell(f"{len(settings.units)} rollout batches, {len(missing)} to measure")
    began = time.monotonic()
    for number, unit in enumerate(missing, start=1):
        try:
            with at_work():
                facts = bench.measure_and_keep(unit)["facts"]
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"batches so far are kept in {folder}; the same command resumes") from None
        left = (time.monotonic() - began) / number * (len(missing) - number) / 60
        tell(
            f"{number}/{len(missing)}  {unit.policy}, {unit.task}, batch {unit.number + 1}: {facts['accuracy']:.0%} right, "
            f"{facts['mixed_groups']:.0%} of the groups mixed; about {left:.1f} min left"
        )
    result = bench_result(bench.documents(), settings)
    files = {RESULT: dump(result, indent=1), FIGURE: bench_figure(result)}
    if (agreement := agreement_file(result["agreement"])) is not None:
        files[PROXY_AGREEMENT] = dump(agreement, indent=1)
    for name, text in files.items():
        write_text(folder / name, text)
    show(result, settings, console)
    for name in files:
        tell(str(folder / name))
    return 0
