"""`delta-rlvr leaderboard`: tabulate what was measured of every method, from the kept results of study and credit-bench."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from delta_evidence.leaderboard import as_dict, leaderboard, markdown, planted, replace_table
from delta_rlvr.files import replaces, write_json, write_text

NEW_PAGE = "<!-- table: begin -->\n<!-- table: end -->\n"

NUMBERS = """Differences to dapo in points, paired by task and seed, with 95 % intervals (from 5 pairs). Over training: of the
accuracy over all rollout batches. At the end: of the held-out accuracy. `delta` there: delta's mean on the same pairs.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        type=Path,
        help="folder of outcomes: a study's (runs.jsonl and protocol.json), or one that holds such folders and credit_bench.json",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PAGE",
        help="a page whose tables, between the marks <!-- table: begin --> and <!-- table: end -->, are made anew, "
        "or a new one (default: print them)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to this file")


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    if options.json is not None:
        replaces(
            options.json, rb'(?s)\s*\{\s*"columns":.*"rows":.*"left_out":.*', "the numbers of a leaderboard", "json"
        )
    board = leaderboard(options.folder)
    if options.json is not None:
        write_json(options.json, as_dict(board))
    if options.output is None:
        print(NUMBERS)
        print("\n".join(filter(None, (markdown(board), planted(board)))), end="")
    else:
        page = options.output.read_text(encoding="utf-8") if options.output.exists() else NEW_PAGE
        write_text(options.output, replace_table(page, markdown(board)))
        print(f"{len(board.rows)} methods: {options.output}")
    for line in board.left_out:
        print(f"left out: {line}", file=sys.stderr)
    return 0
