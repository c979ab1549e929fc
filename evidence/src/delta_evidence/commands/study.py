"""`delta-rlvr study`: train the runs of a study (methods, tasks and seeds) side by side in one process, and tabulate them."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from delta_evidence.commands.options import add_device, add_workers, begin
from delta_evidence.judging import judges_beside
from delta_evidence.learning.curves import curves_figure
from delta_evidence.learning.protocol import read_protocols
from delta_evidence.learning.runner import Study
from delta_evidence.learning.session import Machine
from delta_evidence.learning.table import StudyTable, before_text, markdown, sentences, study_table
from delta_evidence.measured.bench import DTYPES
from delta_evidence.stopping import Stop
from delta_rlvr.evaluate.seeds import gap_text, p_text
from delta_rlvr.files import write_json, write_text
from delta_rlvr.terminal import add_columns, say
from delta_rlvr.words import comma_list, counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("protocol", type=Path, help="the study's YAML file; evidence/protocols/example.yaml has every key")
    add(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder of the outcomes (default: runs/NAME, the file's name without .yaml); run again to go on",
    )
    add(
        "--model",
        help="where the protocol's model lies on this machine: a folder or a GGUF file (default: as the protocol names it)",
    )
    add_device(parser)
    add(
        "--dtype",
        choices=DTYPES,
        default="float32",
        help="precision of the matrix products, one for all runs of a folder (default: float32)",
    )
    add(
        "--runs-at-once",
        type=int,
        metavar="N",
        help="runs (one arm, that is a method with its settings, and one seed) that are trained side by side; fewer take less memory "
        "(default: on a GPU as many as its free memory holds, up to 100; 8 on a CPU)",
    )
    add(
        "--rows-at-once",
        type=int,
        metavar="N",
        help="responses of one training pass, over all runs side by side; fewer take less memory "
        "(default: 8192 on a GPU, 512 on a CPU)",
    )
    add_workers(parser)
    add(
        "--seconds",
        type=float,
        help="end within this time: what is finished is kept, the rest goes on from a checkpoint with the same command",
    )
    add(
        "--checkpoint-seconds",
        type=float,
        default=Machine.checkpoint_seconds,
        help="time between two checkpoints of the runs that are being trained; there is one too at the end of --seconds and on "
        "SIGINT and SIGTERM (default: %(default)g)",
    )
    add(
        "--export",
        metavar="NAMES",
        default="",
        help="arms whose trained weights are written to OUTPUT/models, as in dapo,delta; of the runs that are made now",
    )
    add("--table", action="store_true", help="train nothing: only the table of the runs that are there")


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    console = begin(options.device)
    tell = partial(say, console)
    stop = Stop(options.seconds, tell)
    machine = Machine(
        options.device,
        DTYPES[options.dtype],
        options.runs_at_once,
        options.rows_at_once,
        options.workers if options.workers is not None else judges_beside(options.device),
        options.checkpoint_seconds,
    )
    left = 0
    for protocol in read_protocols(options.protocol):
        # A variant's name is STUDY/VARIANT, and its folder is one within the study's.
        variant = protocol.name.partition("/")[2]
        folder = options.output / variant if options.output else Path("runs") / protocol.name
        study = Study(protocol, folder, options.model)
        if not options.table:
            missing = study.missing()
            if not missing:  # else the runs to come are checked with them
                study.checked_contents()
            tell(f"{protocol.name}: {protocol.question}")
            tell(f"{len(protocol.runs())} runs, {len(missing)} to go")
            if missing and not stop.due():
                with stop:
                    export = comma_list(options.export)
                    study.go(machine, tell, export=export, stop=stop)
            if unmade := len(study.missing()):
                tell(f"stopped with {counted(unmade, 'run')} to go: the same command goes on from here")
                left += unmade
        if not any(outcome.run.arm == protocol.baseline for outcome in study.outcomes()):
            tell(f"{protocol.name}: no run of {protocol.baseline} is finished yet")
            continue
        table = study_table(protocol, study.outcomes())
        show(table, console)
        write_json(study.folder / "table.json", table.as_dict())
        write_text(study.folder / "table.md", markdown(table))
        write_text(study.folder / "curves.svg", curves_figure(protocol, study.outcomes()))
        tell(f"table: {study.folder / 'table.md'}, curves: {study.folder / 'curves.svg'}")
    return stop.exit_code(done=not left)


def show(table: StudyTable, console: Console) -> None:
    """The scores by which the study is decided, and what they tell."""
    for task in table.tasks:
        for column in table.shown(task):
            shown = Table(
                title=f"{task.task}: {column.measure.name}; {before_text(task, table.protocol)}", title_justify="left"
            )
            against = f"against {table.protocol.baseline}"
            headings = ("arm", "seeds", "mean", "SD", against, "p paired", "p Holm")
            # Arms may differ in their settings alone: a name is folded, never cut.
            add_columns(shown, headings, left=("arm",), overflow="fold")
            for row in column.rows:
                shown.add_row(
                    row.method,
                    str(row.seeds),
                    f"{column.measure.unit.scale * row.mean:.1f}",
                    "-" if row.sd is None else f"{column.measure.unit.scale * row.sd:.1f}",
                    gap_text(row.difference, column.measure.unit),
                    p_text(row.p_paired),
                    "primary" if row is table.primary else p_text(row.p_holm),
                )
            console.print(shown)
    for sentence in sentences(table):
        console.print(sentence, markup=False, highlight=False)
