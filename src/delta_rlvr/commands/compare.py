"""`delta-rlvr compare`: the same run for several methods and seeds, and what the difference is worth."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from delta_rlvr.commands.options import as_flags, read_request
from delta_rlvr.evaluate.seeds import SeedTable, mean_text, p_text
from delta_rlvr.terminal import say
from delta_rlvr.training.compare import ComparedRuns, compare
from delta_rlvr.words import comma_list


def run(arguments: list[str]) -> int:
    """The subcommand."""
    parser = argparse.ArgumentParser(prog="delta-rlvr compare", add_help=False, allow_abbrev=False)
    parser.add_argument("--methods", required=True)
    parser.add_argument("--seeds", default="3")
    parser.add_argument("--output", default="runs/compare")
    mine, theirs = parser.parse_known_args(arguments)
    if not mine.seeds.isdecimal() or int(mine.seeds) < 1:  # a list of them is a natural guess
        raise ValueError(
            f"--seeds {mine.seeds}: give how many seeds, at least 1. They count up from --seed: --seed 1 --seeds 2 takes the seeds "
            "1 and 2"
        )
    console = Console()
    request, methods = read_request(theirs), comma_list(mine.methods)
    done = compare(request, methods, int(mine.seeds), mine.output, console=console, wording=as_flags)
    if done is not None:
        show(done, console)
    return 0


def show(done: ComparedRuns, console: Console) -> None:
    """The table, its conclusion, and where the report is."""
    console.print(_table(done.table, done.title, console))
    console.print(done.table.sentence, markup=False, highlight=False)
    say(console, f"report: {done.report}")


def _table(compared: SeedTable, title: str, console: Console) -> Table:
    """A user rule may have a long name, which must not be cut: where there is no room, it goes on in a new line after its file."""
    unit = compared.unit
    for end_of_file in (".py:", ".py:\n"):
        table = Table(
            title=title,
            caption=f"difference to {compared.rows[0].method} (in brackets: {compared.gap_name}); p: {compared.test_name}; "
            "Holm: corrected for all comparisons",
            title_justify="left",
            caption_justify="left",
        )
        table.add_column("method", overflow="fold")
        for heading in ("mean ± SD", f"difference, {unit.name}", "p", "p Holm"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in compared.rows:
            name = row.method.replace(".py:", end_of_file)
            p, adjusted = p_text(compared.p(row)), p_text(compared.p_adjusted(row))
            table.add_row(name, mean_text(row, unit), compared.gap(row), p, adjusted)
        if console.measure(table, options=console.options.update(width=1000)).maximum <= console.width:
            break
    return table
