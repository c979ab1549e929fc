"""`delta-rlvr explain`: show which tokens of your own rollouts would get the credit, and which changed the chance of success."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_rlvr.report.rollout_files import FORMATS, Rollout, RolloutFileError, read_rollouts
from delta_rlvr.terminal import plain_warnings
from delta_rlvr.words import comma_list

if TYPE_CHECKING:
    from delta_rlvr.credit import CreditStream
    from delta_rlvr.report.explained import Forward, Measured

METHODS = ("delta", "dapo-ft", "grpo")
"""Whose weights are shown when none are named."""

GIVEN = ("hidden", "head", "groups", "logps", "entropy", "tokens")
"""What a rule may need here: one forward pass over texts gives it. Labels of decisive tokens come from the file, where it has them."""


Measure = Callable[[Any, Any, Sequence[Rollout], Sequence["Forward"]], "Measured"]
"""From a policy, its tokenizer, rollouts and passes over them: credit and standard error of each token of each response
(`explain_measured` has one that measures by continuations)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`delta-rlvr explain --model M --rollouts FILE`"""
    parser.description = "Which tokens of given rollouts would get the credit."
    add = parser.add_argument
    add("--model", required=True, help='"builtin", a folder, or a name that transformers can load')
    add("--rollouts", required=True, metavar="FILE", help=f"{FORMATS}; docs/report.md has the keys")
    add("--reward_key", metavar="NAME", help="which reward, where the file has several")
    add("--output", default="explain.html", help="the page to write (default: %(default)s)")
    add("--title", help="the page's title")
    add("--temperature", type=float, default=1.0, help="what the rollouts were sampled with")
    add("--chat", action="store_true", help="put prompts into the tokenizer's chat template")
    add(
        "--methods",
        "--method",
        default=",".join(METHODS),
        help="methods whose weights to show, with commas, the first one first; settings after '?', a rule of your own as "
        "my_rules.py:MyRule (default: %(default)s)",
    )
    add(
        "--measured",
        type=int,
        metavar="N",
        help="measure the credit of tokens too, with N continuations per response on average, such as 256 (docs/measured.md)",
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
        raise ValueError(
            "--measured and --task belong together: the number of continuations, and what judges them"
        )
    measure = None
    if args.measured is not None:
        from delta_evidence.commands.explain_measured import Continued
        from delta_rlvr.tasks import get_task

        measure = Continued(get_task(args.task), args.measured, args.temperature)
    replaced = _check_output(Path(args.output))
    with plain_warnings(partial(print, file=sys.stderr)):
        page = explain(
            args.model,
            args.rollouts,
            args.output,
            methods=comma_list(args.methods),
            temperature=args.temperature,
            chat=args.chat,
            title=args.title,
            reward_key=args.reward_key,
            measure=measure,
        )
    print(f"{page} (the page that was there is replaced)" if replaced else page)
    return 0


def _check_output(path: Path) -> bool:
    """Whether a page of ours stands there already; anything else is not written over."""
    from delta_rlvr.report.page import PAGE_MARK

    if path.is_file() and PAGE_MARK in path.read_bytes():
        return True
    if path.exists():
        raise ValueError(
            f"--output {path} is there already, and is no page of explain or report: give another --output"
        )
    return False


def explain(
    model: str,
    rollouts_file: str | Path,
    output: str | Path,
    *,
    methods: Sequence[str] = METHODS,
    temperature: float = 1.0,
    chat: bool = False,
    title: str | None = None,
    megabytes: float = 20.0,
    reward_key: str | None = None,
    measure: Measure | None = None,
) -> Path:
    """Write the page of the token weights that a policy's next update would give these rollouts.

    `methods`: whose weights; the first one's are shown first. `rollouts_file`: any format that `report.rollout_files` reads. `chat`
    puts a prompt that is text into the tokenizer's chat template as the user's turn. `temperature` is the one the rollouts were sampled
    with. `reward_key` names the reward where a file has several. With `measure` the view shows measured credit beside the weights.
    """
    import torch

    from delta_rlvr.commands.explain_forward import forward
    from delta_rlvr.credit.rule import check_needs
    from delta_rlvr.credit.stream import streams_for
    from delta_rlvr.models.load import load_policy
    from delta_rlvr.objectives import get_method
    from delta_rlvr.report.explained import Explained

    chosen = {name: get_method(name) for name in methods}
    if not chosen:
        raise ValueError("methods: name at least one")
    every = read_rollouts(rollouts_file, reward_key)
    advantages, groups = advantages_and_groups(every)
    # A response without a token has a part in its group's mean and none in the view.
    kept = [place for place, rollout in enumerate(every) if rollout.response or rollout.ids]
    rollouts = [every[place] for place in kept]
    advantages, groups = [advantages[place] for place in kept], [groups[place] for place in kept]
    given = [*GIVEN, "decisive"] if all(rollout.decisive is not None for rollout in rollouts) else GIVEN
    source = Path(rollouts_file).name
    for name, method in chosen.items():
        check_needs(method.rho, given, f"explain with {source}", name)
    policy, tokenizer = load_policy(model)
    policy.eval().to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type]
    passes = [forward(policy, tokenizer, rollout, temperature, chat) for rollout in rollouts]
    rules = {name: method.rho for name, method in chosen.items()}
    head = policy.get_output_embeddings().weight
    streams = streams_for(rules.values(), head=head, temperature=temperature)
    _add(streams, rollouts, passes, labelled=any("decisive" in rule.needs for rule in rules.values()))
    earned = torch.tensor(advantages, dtype=torch.float64, device=head.device)
    numbers = torch.tensor(groups, device=head.device)
    records = {
        name: next(stream for stream in streams if stream.reads(rule)).solve(
            earned, groups=numbers, rule=rule
        )
        for name, rule in rules.items()
    }
    return Explained(
        model=model,
        source=source,
        temperature=temperature,
        method=next(iter(chosen.values())),
        rollouts=rollouts,
        without_tokens=len(every) - len(rollouts),
        passes=passes,
        advantages=advantages,
        groups=groups,
        records=records,
        measured=None if measure is None else measure(policy, tokenizer, rollouts, passes),
    ).write_page(output, title, megabytes)


def advantages_and_groups(rollouts: Sequence[Rollout]) -> tuple[list[float], list[int]]:
    """Each rollout's advantage, and its group's number in order of appearance. The engine's own advantages, where the file has all of
    them; else relative to the group."""
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(rollout.group, len(numbers)) for rollout in rollouts]
    known = [rollout.advantage for rollout in rollouts if rollout.advantage is not None]
    if len(known) == len(rollouts):
        return known, groups
    import torch

    from delta_rlvr.objectives import group_advantages

    rewards = torch.tensor([rollout.reward for rollout in rollouts], dtype=torch.float64)
    advantages = torch.zeros_like(rewards)
    for number in range(len(numbers)):
        members = torch.tensor(groups) == number
        own = rewards[members]
        if len(own) > 1:
            advantages[members] = group_advantages(own, len(own))
    return advantages.tolist(), groups


def _add(
    streams: Sequence[CreditStream], rollouts: Sequence[Rollout], passes: Sequence[Forward], labelled: bool
) -> None:
    """Hand every response to every stream; `labelled`: with the labels of its decisive tokens."""
    import torch

    from delta_rlvr.commands.explain_forward import OTHER_TOKENIZER

    for rollout, reading in zip(rollouts, passes, strict=True):
        arrays: dict[str, Any] = {"tokens": reading.ids, "entropy": reading.entropy}
        if labelled:
            if reading.decisive is None:
                raise RolloutFileError(f"{rollout.where}: {OTHER_TOKENIZER}")
            arrays["decisive"] = reading.decisive
        lengths = torch.tensor([len(reading.ids)], device=reading.ids.device)
        for stream in streams:
            stream.add(reading.hidden, reading.logps, lengths=lengths, **arrays)
