"""`delta-rlvr explain`: which tokens of given rollouts would get the credit, and which of them changed the chance of success."""

from __future__ import annotations

import argparse
from pathlib import Path

from delta_rlvr.report.command import add_explain_arguments, run_explain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_explain_arguments(parser)
    parser.add_argument(
        "--measured",
        type=int,
        metavar="N",
        help="measure the credit of tokens too, with N continuations per response on average, such as 256 (docs/measured.md)",
    )
    parser.add_argument(
        "--task",
        metavar="T",
        help="with --measured: the task whose grader judges continuations against the `answer` of their line",
    )


def run(args: argparse.Namespace) -> Path:
    if (args.measured is None) != (args.task is None):
        raise ValueError(
            "--measured and --task belong together: the number of continuations, and what judges them"
        )
    if args.measured is None:
        return run_explain(args)
    from delta_rlvr.commands.explain_measured import Continued
    from delta_rlvr.tasks import get_task

    return run_explain(args, Continued(get_task(args.task), args.measured, args.temperature))
