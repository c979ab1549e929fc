"""The subcommands `report` and `explain`: arguments, and what they run."""

from __future__ import annotations

import argparse
from pathlib import Path

from delta_rlvr.report.explain import METHODS as EXPLAINED
from delta_rlvr.report.explain import explain
from delta_rlvr.report.page import TOKEN_MEGABYTES, write_report


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """`delta-rlvr report RUN [RUN ...] --output report.html`"""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="folder of a run; several are overlaid and compared"
    )
    parser.add_argument(
        "--output", default=None, help="the page to write (default: report.html in the first run)"
    )
    parser.add_argument("--title", default=None, help="the page's title")
    parser.add_argument(
        "--megabytes",
        type=float,
        default=TOKEN_MEGABYTES,
        help="room for the token view (default: %(default)s)",
    )
    parser.add_argument(
        "--shade-by",
        default="",
        help="more methods whose weights the token view can show, with commas, such as surprise or my_rules.py:MyRule; they must "
        "need no hidden states, and look at the rollouts that the run kept",
    )


def run_report(args: argparse.Namespace) -> Path:
    output = args.output or Path(args.runs[0]) / "report.html"
    return write_report(
        args.runs, output, title=args.title, megabytes=args.megabytes, shade_by=_names(args.shade_by)
    )


def add_explain_arguments(parser: argparse.ArgumentParser) -> None:
    """`delta-rlvr explain --model M --rollouts FILE`"""
    parser.add_argument(
        "--model", required=True, help='"builtin", a folder, or a name that transformers can load'
    )
    parser.add_argument(
        "--rollouts", required=True, help="JSON Lines with prompt, response, reward and optionally group"
    )
    parser.add_argument("--output", default="explain.html", help="the page to write (default: %(default)s)")
    parser.add_argument("--title", default=None, help="the page's title")
    parser.add_argument("--temperature", type=float, default=1.0, help="what the rollouts were sampled with")
    parser.add_argument("--chat", action="store_true", help="put prompts into the tokenizer's chat template")
    parser.add_argument(
        "--methods",
        "--method",
        default=",".join(EXPLAINED),
        help="methods whose weights to show, with commas, the first one first; settings after '?', a rule of your own as "
        "my_rules.py:MyRule (default: %(default)s)",
    )


def run_explain(args: argparse.Namespace) -> Path:
    return explain(
        args.model,
        args.rollouts,
        args.output,
        methods=_names(args.methods),
        temperature=args.temperature,
        chat=args.chat,
        title=args.title,
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
