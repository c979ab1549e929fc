"""`delta-rlvr compare`: the same run for several methods and seeds, and a test of the difference."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.prompt import Confirm
from rich.table import Table

from delta_rlvr.commands.options import as_flags, read_request
from delta_rlvr.commands.parser import CommandParser
from delta_rlvr.evaluate.seeds import SeedTable, mean_text, p_text
from delta_rlvr.terminal import plain_console, say
from delta_rlvr.training.compare import ComparedRuns, compare
from delta_rlvr.training.plan import Plan
from delta_rlvr.words import comma_list, command_line


def own_options() -> CommandParser:
    """Return the parser of the options that `train` does not have."""
    parser = CommandParser(prog="delta-rlvr compare", add_help=False, allow_abbrev=False)
    parser.add_argument("--methods")
    parser.add_argument("--seeds", default="3")
    parser.add_argument("--output", default="runs/compare")
    parser.add_argument("--learning-rates", "--learning_rates", default="")
    parser.add_argument("--tuning-seeds", "--tuning_seeds")
    parser.add_argument("--pass-at", "--pass_at")
    parser.add_argument("--parallel")
    parser.add_argument("--only")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--without-signal", "--without_signal", action="store_true")
    return parser


def run(arguments: list[str]) -> int:
    mine, theirs = own_options().parse_known_args(arguments)
    if mine.methods is None:
        read_request(theirs, vars(mine).keys())  # a file may name them
        own_options().error("the following arguments are required: --methods")
    if not mine.seeds.isdecimal() or int(mine.seeds) < 1:  # some give a list
        raise ValueError(
            f"--seeds {mine.seeds}: give the number of seeds, at least 1. They count up from --seed: --seed 1 --seeds 2 runs seeds 1 "
            "and 2"
        )
    numbers: dict[str, Any] = {}
    for name in ("tuning_seeds", "pass_at", "parallel", "only"):
        value = getattr(mine, name)
        if value is not None and (not value.isdecimal() or int(value) < 1):
            raise ValueError(f"--{name.replace('_', '-')} {value}: give a whole number of at least 1")
        numbers[name] = None if value is None else int(value)
    if numbers["tuning_seeds"] is None:
        numbers["tuning_seeds"] = 1
    elif not mine.learning_rates:
        raise ValueError("--tuning-seeds belongs to --learning-rates: leave it out")
    console = plain_console()
    request = read_request(theirs, vars(mine).keys())
    methods = comma_list(mine.methods)
    done = compare(
        request,
        methods,
        int(mine.seeds),
        mine.output,
        learning_rates=_rates(mine.learning_rates),
        **numbers,
        listed=_list if mine.list else None,
        without_signal=mine.without_signal,
        ask=Confirm.ask if console.is_terminal and sys.stdin.isatty() else None,
        console=console,
        wording=as_flags,
    )
    if done is not None:
        show(done, console)
    return 0


def _list(plan: Plan) -> None:
    """Print a shell script: one command per run, then the command that compares them."""
    words = ["delta-rlvr", *plan.words()]
    if plan.tuning:
        print("# learning rates to choose from:")
    for run in plan.runs:
        if plan.tuning and run is plan.compared[0]:
            print("# when these are done:")
        print(command_line(*words, "--only", run.number), f" # {run.name}")
    print("# when all are done:")
    print(command_line(*words))


def _rates(text: str) -> list[float]:
    rates = []
    for word in comma_list(text):
        try:
            rates.append(float(word))
        except ValueError:
            raise ValueError(f"--learning-rates {text}: {word!r} is not a number; write 5e-6,1e-5,2e-5") from None
    return rates


def show(done: ComparedRuns, console: Console) -> None:
    """Print the tables, the conclusion and the path of the report."""
    console.print(_table(done.table, done.title, console))
    if done.beside:
        console.print(_beside(**done.beside))
    for sentence in filter(None, (done.tuned, done.table.sentence)):
        console.print(sentence, markup=False, highlight=False)
    say(console, f"report: {done.report}")


def _table(compared: SeedTable, title: str, console: Console) -> Table:
    """Return the table of scores. A long name of a user rule is broken after its file where there is no room for it."""
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
        for heading in ("mean ± SD", unit.difference, "p", "p Holm"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in compared.rows:
            name = row.method.replace(".py:", end_of_file)
            p, adjusted = p_text(compared.p(row)), p_text(compared.p_adjusted(row))
            table.add_row(name, mean_text(row, unit), compared.gap(row), p, adjusted)
        if console.measure(table, options=console.options.update(width=1000)).maximum <= console.width:
            break
    return table


def _beside(title: str, rows: list[list[str]], caption: str) -> Table:
    """Return the table of sampled and greedy scores, pass@k and entropy."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    headings, *lines = rows
    table.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for method, *values in lines:
        table.add_row(method.replace(".py:", ".py:\n"), *values)
    return table
