"""`delta-rlvr study`: a protocol's runs, seeds and methods side by side in one process, and the table at the end."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from delta_rlvr.runs.files import atomic, dump
from delta_rlvr.study.learning.curves import curves_figure
from delta_rlvr.study.learning.protocol import read_protocols
from delta_rlvr.study.learning.runner import Machine, Study
from delta_rlvr.study.learning.table import StudyTable, markdown, sentences, study_table

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("protocol", type=Path, help="the study's YAML file, as in recipes/study")
    parser.add_argument(
        "--output", type=Path, help="folder of the outcomes (default: runs/NAME); run again to go on"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="precision of the products")
    parser.add_argument(
        "--runs-at-once", type=int, help="runs of one stack (default: 100 on a GPU, 8 on a CPU)"
    )
    parser.add_argument("--rows-at-once", type=int, help="responses of one forward, over all runs of a stack")
    parser.add_argument(
        "--workers", type=int, help="processes that judge responses (default: one a core, on a GPU)"
    )
    parser.add_argument("--export", default="", help="arms whose trained weights are kept, as in dapo,delta")
    parser.add_argument("--table", action="store_true", help="only the table of what is there")


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    console = Console()

    def tell(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    for protocol in read_protocols(options.protocol):
        # A variant's name is a path within its study's folder.
        own = Path(protocol.name).relative_to(options.protocol.stem) if "/" in protocol.name else Path()
        study = Study(protocol, (options.output or Path("runs") / options.protocol.stem) / own)
        if not options.table:
            missing = study.missing()
            tell(f"{protocol.name}: {protocol.question}")
            tell(f"{len(protocol.runs())} runs, {len(missing)} to go")
            if missing:
                study.go(_machine(options), tell, export=[name for name in options.export.split(",") if name])
        if options.table and not study.outcomes():
            tell(f"{protocol.name}: no run is finished yet")
            continue
        table = study_table(protocol, study.outcomes())
        show(table, console)
        with atomic(study.folder / "table.json") as file:
            file.write(dump(table.as_dict(), indent=1).encode())
        with atomic(study.folder / "table.md") as file:
            file.write(markdown(table).encode())
        with atomic(study.folder / "curves.svg") as file:
            file.write(curves_figure(protocol, study.outcomes()).encode())
        tell(f"table: {study.folder / 'table.md'}, curves: {study.folder / 'curves.svg'}")
    return 0


def _machine(options: argparse.Namespace) -> Machine:
    device = torch.device(options.device)
    fast = device.type != "cpu"
    return Machine(
        device=options.device,
        compute_dtype=DTYPES[options.dtype],
        runs_at_once=options.runs_at_once or (100 if fast else 8),
        rows_at_once=options.rows_at_once or (8192 if fast else 512),
        workers=options.workers or ((os.cpu_count() or 1) if fast else 1),
    )


def show(table: StudyTable, console: Console) -> None:
    """The held-out scores, and what they tell."""
    for task in table.tasks:
        shown = Table(
            title=f"{task.task}: held-out accuracy, {100 * task.before:.1f} % before training",
            title_justify="left",
        )
        for heading in (
            "arm",
            "seeds",
            "after",
            "SD",
            f"against {table.protocol.baseline}",
            "p paired",
            "p Holm",
        ):
            shown.add_column(heading, justify="left" if heading == "arm" else "right")
        for found in task.heldout:
            gap = found.difference
            shown.add_row(
                found.method,
                str(found.seeds),
                f"{100 * found.mean:.1f}",
                "-" if found.sd is None else f"{100 * found.sd:.1f}",
                "-"
                if gap is None
                else f"{100 * gap.mean:+.1f} ({100 * gap.low:+.1f} to {100 * gap.high:+.1f})",
                "-" if found.p_paired is None else f"{found.p_paired:.3f}",
                "-" if found.p_holm is None else f"{found.p_holm:.3f}",
            )
        console.print(shown)
    for told in sentences(table):
        console.print(told, markup=False, highlight=False)
