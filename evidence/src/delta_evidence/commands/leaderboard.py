"""`delta-rlvr leaderboard`: rank the methods by the kept results of study and credit-bench."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from delta_evidence.leaderboard import (
    SMOLLM2,
    Leaderboard,
    as_dict,
    leaderboard,
    markdown,
    replace_table,
    share_text,
)
from delta_rlvr.evaluate.seeds import gap_text
from delta_rlvr.files import write_json, write_text
from delta_rlvr.objectives import Method, all_methods


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        type=Path,
        help="folder of outcomes: study folders (runs.jsonl and protocol.json), credit_bench.json, rule_costs.json",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="a page whose table, between the marks <!-- table: begin --> and <!-- table: end -->, is made anew "
        "(default: print the table)",
    )
    parser.add_argument(
        "--methods",
        action="store_true",
        help="the table of docs/methods.md: every method, what it needs, its cost and how it learns",
    )
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    board = leaderboard(options.folder)
    if options.methods:
        methods = all_methods().values()
        show_table(methods_table(methods, board), len(methods), options.output)
        return 0
    table = markdown(board)
    if options.json is not None:
        write_json(options.json, as_dict(board))
    show_table(table, len(board.rows), options.output)
    return 0


def show_table(table: str, methods: int, page: Path | None) -> None:
    """Print a table, or put it into a page in the place of the one there."""
    if page is None:
        print(table, end="")
        return
    write_text(page, replace_table(page.read_text(encoding="utf-8"), table))
    print(f"{methods} methods: {page}")


def methods_table(methods: Iterable[Method], board: Leaderboard) -> str:
    """The table of docs/methods.md: every method, and what was measured of it."""
    measured = {row.method: row for row in board.rows}
    columns = [column for column in board.real if column.startswith(SMOLLM2)]
    headings = ["name", "paper", "what", "needs", "cost", *(f"over training, {column}" for column in columns)]
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for method in methods:
        row = measured.get(method.name)
        cost = share_text(row.cost if row else None)
        learning = " | ".join(gap_text(row.learning.get(column) if row else None) for column in columns)
        needs = ", ".join(method.rule.needs) or "-"
        about = method.about.replace("|", "\\|")
        cells = [f"`{method.name}`", method.paper, about, needs, cost, *filter(None, [learning])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
