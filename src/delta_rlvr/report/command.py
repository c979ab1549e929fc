"""The subcommands `report` and `explain`: arguments, and what they run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from delta_rlvr.report.explain import METHODS as EXPLAINED
from delta_rlvr.report.explain import Measure, explain
from delta_rlvr.report.page import TOKEN_MEGABYTES, write_report
from delta_rlvr.report.rollout_files import FORMATS
from delta_rlvr.runs import read_run
from delta_rlvr.runs.layout import RUN


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """`delta-rlvr report RUN [RUN ...] --output report.html`"""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="folder of a run, or a folder of runs such as a comparison's; several runs are compared",
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
        runs_below(args.runs),
        output,
        title=args.title,
        megabytes=args.megabytes,
        shade_by=_names(args.shade_by),
    )


def runs_below(folders: Sequence[str]) -> list[Path]:
    """The folders that are runs; for one that only holds runs (a comparison's), those runs, in the order in which they were begun."""
    runs: list[Path] = []
    for folder in map(Path, folders):
        inside = [] if (folder / RUN).exists() else [file.parent for file in folder.glob(f"*/{RUN}")]
        runs += sorted(inside, key=_begun) or [folder]
    return runs


def _begun(folder: Path) -> tuple[str, str]:
    return str(read_run(folder).info.get("started", "")), folder.name


def add_explain_arguments(parser: argparse.ArgumentParser) -> None:
    """`delta-rlvr explain --model M --rollouts FILE`"""
    parser.add_argument(
        "--model", required=True, help='"builtin", a folder, or a name that transformers can load'
    )
    parser.add_argument(
        "--rollouts",
        required=True,
        metavar="FILE",
        help=f"{FORMATS}; docs/report.md has the keys",
    )
    parser.add_argument(
        "--reward_key", default=None, metavar="NAME", help="which reward, where the file has several"
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


def run_explain(args: argparse.Namespace, measure: Measure | None = None) -> Path:
    return explain(
        args.model,
        args.rollouts,
        args.output,
        methods=_names(args.methods),
        temperature=args.temperature,
        chat=args.chat,
        title=args.title,
        reward_key=args.reward_key,
        measure=measure,
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
