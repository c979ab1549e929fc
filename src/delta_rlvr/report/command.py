"""The subcommands `report` and `explain`: arguments, and what they run."""

from __future__ import annotations

import argparse
from pathlib import Path

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


def run_report(args: argparse.Namespace) -> Path:
    output = args.output or Path(args.runs[0]) / "report.html"
    return write_report(args.runs, output, title=args.title, megabytes=args.megabytes)


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
    parser.add_argument("--proxy", default="output_row", choices=("output_row", "topk_hidden", "head"))
    parser.add_argument("--scope", default="batch", choices=("batch", "group"))
    parser.add_argument(
        "--refinements", type=int, default=1, help="refinement steps, K (default: %(default)s)"
    )
    parser.add_argument("--lambda-min", type=float, default=0.8)
    parser.add_argument("--lambda-max", type=float, default=1.2)


def run_explain(args: argparse.Namespace) -> Path:
    from delta_rlvr.credit import DeltaConfig
    from delta_rlvr.report.explain import explain

    config = DeltaConfig(
        lambda_min=args.lambda_min,
        lambda_max=args.lambda_max,
        refinements=args.refinements,
        proxy=args.proxy,
        scope=args.scope,
    )
    return explain(
        args.model,
        args.rollouts,
        args.output,
        config=config,
        temperature=args.temperature,
        chat=args.chat,
        title=args.title,
    )
