"""`delta-rlvr credit-bench`: does the credit land on the tokens that decided?"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from delta_evidence.commands import measured_bench
from delta_evidence.commands.credit_bench_display import show
from delta_evidence.commands.settings_options import add_settings, given_settings
from delta_evidence.planted.bench import CreditBench
from delta_evidence.planted.figure import bench_figure
from delta_evidence.planted.settings import PlantedSettings
from delta_evidence.planted.table import agreement_file, bench_result
from delta_rlvr.exit_codes import at_work
from delta_rlvr.files import write_json, write_text
from delta_rlvr.models.load import check_device
from delta_rlvr.runs.layout import PROXY_AGREEMENT
from delta_rlvr.terminal import make_console, say
from delta_rlvr.words import comma_list

# Two folders: batches of other sizes are refused in one.
OUTPUT, QUICK_OUTPUT = Path("runs/credit-bench"), Path("runs/credit-bench-quick")
RESULT, FIGURE = "credit_bench.json", "credit_bench.svg"

QUICK: dict[str, Any] = {"policies": ("builtin",), "tasks": ("phrased-sums", "distractor-facts")}
QUICK |= {"batches": 2, "prompts": 8, "deep_batches": 1, "update_prompts": 8, "agreement_tokens": 450}
"""A look in half a minute: too few tokens to conclude from."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    given = PlantedSettings()
    add = parser.add_argument
    add(
        "--labels",
        choices=("planted", "measured"),
        default="planted",
        help="planted: tasks that know their decisive tokens. measured: any task; the credit of tokens is measured by continuations, "
        "and updates are compared with the gradient of the expected reward (default: %(default)s)",
    )
    add(
        "--policies",
        "--model",
        type=_names,
        help="builtin; confident and sharp, which are made from it by a short seeded continuation (confident?seed=9 for "
        f"another draw); a folder; smollm2-135m; a hub id (default: {','.join(given.policies)})",
    )
    add(
        "--tasks",
        "--task",
        type=_names,
        help=f"built-in tasks, settings after '?' (default: {','.join(given.tasks)})",
    )
    add(
        "--methods",
        type=_names,
        help="methods by name, settings after '?' as in 'delta?proxy=head&scope=group&refinements=0', and oracle, "
        "oracle-wide, oracle-only (default: all, with every proxy and scope)",
    )
    add_settings(
        parser,
        given,
        ("--batches", int, "rollout batches per policy and task"),
        ("--prompts", int, "prompts per batch"),
        ("--group", int, "responses per prompt"),
        ("--seed", int, "seed of prompts, samples and noise"),
        ("--shots", int, "worked solutions before each question, for a policy that was never shown the task"),
        ("--learning-rate", float, "learning rate of the DAPO step after which FIPO's weights are taken"),
        ("--temperature", float, "sampling temperature"),
        ("--rows-at-once", int, "responses in one forward and backward pass; fewer take less memory"),
    )
    add(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="cpu, cuda or cuda:N (default: cuda where there is one)",
    )
    add(
        "--output",
        type=Path,
        help=f"folder of the measurements, tables and figure (default: {OUTPUT}, with --quick {QUICK_OUTPUT}); run again to go on",
    )
    add(
        "--quick",
        action="store_true",
        help="one policy, two tasks, small batches: half a minute, too little to conclude from",
    )
    measured_bench.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    check_device(options.device)
    console = make_console()
    if options.labels == "measured":
        if options.shots is not None:
            raise ValueError("--shots: with --labels measured write it into the task, as in 'TASK?shots=4'")
        return measured_bench.run(options, console, _given(options))
    for name in (*measured_bench.OPTIONS, *measured_bench.OTHERS):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')}: it belongs to --labels measured")
    settings = bench_settings(options)
    folder: Path = options.output or (QUICK_OUTPUT if options.quick else OUTPUT)
    tell = partial(say, console)
    bench = CreditBench(settings, folder, device=options.device, say=tell)
    bench.prepare()
    missing = bench.missing()
    tell(f"{len(settings.units)} rollout batches, {len(missing)} to measure")
    began = time.monotonic()
    for number, unit in enumerate(missing, start=1):
        with at_work():
            facts = bench.measure_and_keep(unit)["facts"]
        left = (time.monotonic() - began) / number * (len(missing) - number) / 60
        tell(
            f"{number}/{len(missing)}  {unit.policy}, {unit.task}, batch {unit.number + 1}: {facts['accuracy']:.0%} right, "
            f"{facts['mixed_groups']:.0%} of the groups mixed; about {left:.1f} min left"
        )
    documents = bench.documents()
    result = bench_result(documents, settings)
    write_json(folder / RESULT, result)
    agreement = agreement_file(result["agreement"])
    if agreement is not None:
        write_json(folder / PROXY_AGREEMENT, agreement)
    write_text(folder / FIGURE, bench_figure(result))
    show(result, settings, console)
    for name in (RESULT, FIGURE, *([PROXY_AGREEMENT] if agreement is not None else [])):
        tell(str(folder / name))
    return 0


def bench_settings(options: argparse.Namespace) -> PlantedSettings:
    """The settings that the options stand for."""
    chosen = (QUICK if options.quick else {}) | _given(options) | given_settings(options, ["shots"])
    if options.methods is not None:
        chosen["stability"] = options.methods
    return PlantedSettings(**chosen)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of either kind of labels that were given."""
    names = "policies tasks methods batches prompts group seed learning_rate temperature rows_at_once"
    return given_settings(options, names.split())


def _names(text: str) -> tuple[str, ...]:
    names = tuple(comma_list(text))
    if not names:
        raise argparse.ArgumentTypeError("give names, separated by commas")
    return names
