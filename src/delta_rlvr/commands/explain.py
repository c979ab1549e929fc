"""`delta-rlvr explain`: show which tokens of your own rollouts would get the credit, and which changed the chance of success."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from delta_rlvr.report.rollout_files import FORMATS
from delta_rlvr.terminal import plain_warnings
from delta_rlvr.words import comma_list


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`delta-rlvr explain --model M --rollouts FILE`"""
    parser.description = "Which tokens of given rollouts would get the credit."
    add = parser.add_argument
    add("--model", required=True, help='"builtin", a folder, or a name that transformers can load')
    add("--rollouts", required=True, metavar="FILE", help=f"{FORMATS}; docs/report.md has the keys")
    add("--reward_key", metavar="NAME", help="which reward, where the file has several")
    add("--prompt_key", metavar="NAME", help="what your lines or columns call the prompt")
    add("--response_key", metavar="NAME", help="what they call the response")
    add("--output", default="explain.html", help="the page to write (default: %(default)s)")
    add("--title", help="the page's title")
    add("--temperature", type=float, default=1.0, help="what the rollouts were sampled with")
    add("--chat", action="store_true", help="put prompts into the tokenizer's chat template")
    add(
        "--methods",
        "--method",
        default="delta,dapo-ft,grpo",
        help="methods whose weights to show, with commas, the first one first; settings after '?', a rule of your own as "
        "my_rules.py:MyRule (default: %(default)s)",
    )
    add(
        "--measured",
        type=int,
        metavar="N",
        help="measure the credit of tokens too, with N continuations per response on average, such as 256 (evidence/docs/studies.md)",
    )
    add(
        "--task",
        metavar="T",
        help="with --measured: the task whose grader judges continuations against the `answer` of their line",
    )


def run(args: argparse.Namespace) -> int:
    """The subcommand."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # the bundled policy loads in no time, and its bar would stay on the screen
    if (args.measured is None) != (args.task is None):
        raise ValueError("--measured and --task belong together: the number of continuations, and what judges them")
    measure = None
    if args.measured is not None:
        from delta_evidence.commands.explain_measured import Continued
        from delta_rlvr.tasks import get_task

        measure = Continued(get_task(args.task), args.measured, args.temperature)
    from delta_rlvr.report.explain import explain
    from delta_rlvr.report.page import replaces_page

    replaced = replaces_page(Path(args.output))
    with plain_warnings(partial(print, file=sys.stderr)):
        page = explain(
            args.model,
            args.rollouts,
            methods=comma_list(args.methods),
            temperature=args.temperature,
            chat=args.chat,
            reward_key=args.reward_key,
            prompt_key=args.prompt_key,
            response_key=args.response_key,
            measure=measure,
        ).write_page(args.output, args.title)
    print(f"{page} (the page that was there is replaced)" if replaced else page)
    return 0
