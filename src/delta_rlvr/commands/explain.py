"""`delta-rlvr explain`: show which tokens of given rollouts would get credit, and which changed the chance of success."""

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
    parser.description = "Shows which tokens of given rollouts would get the credit."
    add = parser.add_argument
    add("--model", required=True, help='"builtin", a folder, or a name that transformers can load')
    add("--rollouts", required=True, metavar="FILE", help=f"{FORMATS}; docs/report.md has the keys")
    add("--reward_key", metavar="NAME", help="key or column of the reward, where the file has several")
    add("--prompt_key", metavar="NAME", help="key or column of the prompt")
    add("--response_key", metavar="NAME", help="key or column of the response")
    add("--output", default="explain.html", help="the page to write (default: %(default)s)")
    add("--title", help="the page's title")
    add("--temperature", type=float, default=1.0, help="temperature at which the rollouts were sampled")
    add("--chat", action="store_true", help="apply the tokenizer's chat template to the prompts")
    add(
        "--methods",
        "--method",
        default="delta,dapo-ft,grpo",
        help="methods whose weights to show, separated by commas; the page opens with the first. Settings follow after '?'; a user "
        "rule is my_rules.py:MyRule (default: %(default)s)",
    )
    add(
        "--measured",
        type=int,
        metavar="N",
        help="also measure the credit of tokens, with N continuations per response on average, such as 256 (evidence/docs/studies.md)",
    )
    add(
        "--task",
        metavar="T",
        help="with --measured: the task whose grader compares continuations with the `answer` of their line",
    )


def run(args: argparse.Namespace) -> int:
    from transformers.utils import logging

    logging.disable_progress_bar()  # it would stay on the screen
    if (args.measured is None) != (args.task is None):
        raise ValueError(
            "--measured (how many continuations) and --task (which judges them) belong together: give both"
        )
    measure = None
    if args.measured is not None:
        from delta_evidence.commands.explain_measured import Continued
        from delta_rlvr.tasks import get_task

        measure = Continued(get_task(args.task), args.measured, args.temperature)
    from delta_rlvr.report.explain import explain
    from delta_rlvr.report.page import replaces_page

    replaced = replaces_page(Path(args.output))
    with plain_warnings(partial(print, file=sys.stderr)):
        explained = explain(
            args.model,
            args.rollouts,
            methods=comma_list(args.methods),
            temperature=args.temperature,
            chat=args.chat,
            reward_key=args.reward_key,
            prompt_key=args.prompt_key,
            response_key=args.response_key,
            measure=measure,
        )
        page = explained.write_page(args.output, args.title)
    if explained.note:
        print(explained.note, file=sys.stderr)
    print(f"{page} (replaces the page that was there)" if replaced else page)
    return 0
