"""`delta-rlvr report`: write one self-contained page about one or more runs."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from delta_rlvr.report.page import TOKEN_MEGABYTES, replaces_page, write_report
from delta_rlvr.terminal import plain_warnings
from delta_rlvr.words import comma_list


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`delta-rlvr report RUN [RUN ...] --output report.html`"""
    parser.description = "Writes one self-contained page about one or more runs."
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        metavar="RUN",
        help="run folder, or a folder of runs such as that of a comparison; several runs are compared",
    )
    add("--output", help="the page to write (default: report.html in the first run)")
    add("--title", help="the page's title")
    add("--megabytes", type=float, default=TOKEN_MEGABYTES, help="room for the token view (default: %(default)s)")
    add(
        "--shade-by",
        default="",
        help="further methods whose weights the token view can show, separated by commas, such as surprise or my_rules.py:MyRule. "
        "They are computed from the rollouts that the run kept, so they must not need hidden states",
    )


def run(args: argparse.Namespace) -> int:
    if args.output and Path(args.output).is_dir():
        raise ValueError(f"--output {args.output} is a folder: name the page, as in {args.output}/report.html")
    replaces_page(Path(args.output) if args.output else Path(args.runs[0]) / "report.html")
    say = partial(print, file=sys.stderr)
    shade_by = comma_list(args.shade_by)
    with plain_warnings(say):
        page = write_report(
            args.runs, args.output, title=args.title, megabytes=args.megabytes, shade_by=shade_by, say=say
        )
    print(page)
    return 0
