"""`delta-rlvr doctor`: check whether a run can start and fits, and estimate its time. Ends with "ready" or what to change."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from delta_rlvr.commands.parser import CommandParser
from delta_rlvr.doctor.checklist import Checklist
from delta_rlvr.exit_codes import ExitCode
from delta_rlvr.terminal import plain_warnings


@plain_warnings(lambda text: print(text, file=sys.stderr))
def run(arguments: list[str]) -> int:
    """The subcommand. TRL's and verl's parts are imported only when needed: the two live in separate environments."""
    own, rest = own_options(arguments)
    checks = Checklist()
    code = _look_at_launch(own.config, rest, checks) if own.config else None
    if code is None:
        from delta_rlvr.commands.options import as_flags, read_request
        from delta_rlvr.doctor.run import look_at_run

        checks.wording = as_flags
        words = [*(["--config", own.config] if own.config else []), *rest]
        code = look_at_run(lambda: read_request(words), steps=not own.no_steps, processes=own.processes, checks=checks)
    print(checks.verdict())
    return code if checks.problems else ExitCode.DONE


def _look_at_launch(config: str, words: list[str], checks: Checklist) -> ExitCode | None:
    """Check a launch of verl; return None where the file is not verl's."""
    from delta_rlvr.doctor.verl import look_at_launch, read_overrides

    launch = read_overrides(Path(config))
    if launch is None:
        return None
    if words and isinstance(launch, dict):
        raise ValueError(f"{words[0]}: settings can be added only to a file of overrides; write this one into {config}")
    look_at_launch([*launch, *words] if isinstance(launch, list) else launch, checks)
    return ExitCode.BAD_INPUT


def own_options(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Split the words into options of doctor (the config file may stand alone) and options of `train` or verl's overrides."""
    # What follows another option is its value.
    words = list(arguments)
    for place, (before, word) in enumerate(zip(("--no-steps", *words), arguments, strict=False)):
        if before == "--no-steps" and not word.startswith("-"):
            words.insert(place, "--config")
            break
    parser = CommandParser(prog="delta-rlvr doctor", add_help=False, allow_abbrev=False)
    parser.add_argument("--config")
    parser.add_argument("--no-steps", action="store_true")
    parser.add_argument("--processes", type=int, default=1)
    own, rest = parser.parse_known_args(words)
    if own.config is not None and not Path(own.config).is_file():
        raise FileNotFoundError(f"{own.config}: there is no such file; give a settings file, or options of train")
    if own.processes < 1:
        raise ValueError(f"--processes {own.processes}: give 1 or more")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(
            "doctor runs as one process: start it without torchrun or accelerate launch, with --processes N"
        )
    if "--resume" in rest:
        raise ValueError("--resume: doctor checks new runs only; leave it out")
    return own, rest
