"""`delta-rlvr leaderboard`: rank the methods by the kept results of study and credit-bench."""

from __future__ import annotations

import argparse
from pathlib import Path

from delta_rlvr.files import write_json, write_text
from delta_rlvr.study.leaderboard import as_dict, leaderboard, markdown, replace_table


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
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    board = leaderboard(options.folder)
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
