"""Read flags and a settings file into a `RunRequest`, as TRL does; and write the arguments in messages as flags of `train`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from transformers import HfArgumentParser
from trl import GRPOConfig

from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.commands import flags
from delta_rlvr.objectives import get_method
from delta_rlvr.training.options import BUILT_IN_DEFAULTS, COMMON_DEFAULTS, TrainOptions
from delta_rlvr.training.request import RunRequest, check_one_name_each, known_options
from delta_rlvr.yaml_files import read_yaml
from rlvr_graders.lines import each_once


class _Parser(HfArgumentParser):
    def __init__(self) -> None:
        usage = "delta-rlvr train [--config FILE.yaml] [--OPTION VALUE ...]"
        super().__init__((TrainOptions, DeltaTrainerConfig), prog="delta-rlvr train", usage=usage)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (`delta-rlvr train --help-all` lists the options)")

    def read(self, words: list[str], defaults: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return the values of the options in `words` or else in `defaults`, converted to their types, and the words left over."""
        for action in self._actions:
            action.default = defaults.get(action.dest, argparse.SUPPRESS)
        namespace, rest = self.parse_known_args(words)
        return dict(vars(namespace)), rest


def read_request(arguments: list[str], flags_only: Collection[str] = ()) -> RunRequest:
    """Read flags, and the YAML file of --config. Dashes and underscores are the same, and names may be abbreviated.
    `flags_only`: options of the command that a file cannot have."""
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--config=") else [word])]
    file, settings, parser = None, {}, _Parser()
    if "--config" in words:
        place = words.index("--config")
        if place + 1 == len(words):
            raise ValueError("--config: expected one argument, a YAML file")
        _, file = words[place : place + 2]
        del words[place : place + 2]
        settings = _read_settings(file, flags_only)
    if "--lr" in words or any(word.startswith("--lr=") for word in words):  # an abbreviation of others
        raise ValueError(f"there is no option --lr; {_hint('--lr', 'delta')}")
    given, rest = parser.read(words, {})
    try:
        from_file, _ = parser.read([], settings)
    except ValueError as error:
        raise ValueError(f"--config {file}: {error}") from None
    if rest:
        if rest[0].endswith((".yaml", ".yml")):
            raise ValueError(f"{rest[0]}: a settings file is given as --config {rest[0]}")
        if not rest[0].startswith("-"):
            raise ValueError(
                f"{rest[0]!r} belongs to no option: several names of one have commas between them, as in a,b"
            )
        hint = _hint(rest[0], str(given.get("method") or from_file.get("method") or "delta"))
        raise ValueError(f"there is no option {rest[0].partition('=')[0]}; {hint}")
    check_one_name_each(given)
    return RunRequest(given, file, from_file)


def _read_settings(path: str, flags_only: Collection[str]) -> dict[str, Any]:
    """Read the YAML file of --config, a mapping from options to values. As in TRL, `env` sets environment variables."""
    settings = read_yaml(Path(path), f"--config {path}")
    if not isinstance(settings, dict):
        raise ValueError(f"--config {path}: write one option per line, as in `steps: 100`")
    env = settings.pop("env", None) or {}
    if not isinstance(env, dict):
        raise ValueError(f"--config {path}: env sets variables, as in `env: {{HF_HOME: /data}}`")
    os.environ.update({str(name): str(value) for name, value in env.items()})
    names = [str(name).replace("-", "_") for name in settings]
    each_once(names, f"--config {path}")
    settings = dict(zip(names, settings.values(), strict=True))
    check_one_name_each(settings, f"--config {path}: ")
    for name in settings:
        if name in flags_only and name not in known_options():
            raise ValueError(f"--config {path}: {name} is given on the command line, as --{name}, and not in the file")
        if name not in known_options():
            hint = _hint(name, str(settings.get("method", "delta")))
            raise ValueError(f"--config {path}: there is no option {name!r}; {hint}")
    return settings


def _hint(word: str, method: str) -> str:
    """Suggest an option for one that `train` does not have."""
    name = word.lstrip("-").partition("=")[0].replace("-", "_")
    if name in {one.name for one in fields(get_method(method).rule)}:
        spec = f"{method}{'&' if '?' in method else '?'}{name}=VALUE"
        return f"settings of a method follow its name: --method '{spec}'"
    return flags.option_hint(name, {one: f"--{one}" for one in known_options()}, "delta-rlvr train --help-all")


def as_flags(text: str) -> str:
    """Return a message of the library with the options of `train` written as flags."""
    return flags.as_flags(text, {name: f"--{name}" for name in known_options()})


def print_all_options() -> None:
    """Print every option, TRL's included, with the defaults of the bundled policy."""
    parser = _Parser()
    parser.set_defaults(**COMMON_DEFAULTS, **BUILT_IN_DEFAULTS)
    trls = {one.name: one.default for one in fields(GRPOConfig)}
    for action in parser._actions:
        if action.dest in COMMON_DEFAULTS | BUILT_IN_DEFAULTS and (own := trls.get(action.dest)) != action.default:
            action.help = f"{action.help or ''} (TRL: {getattr(own, 'value', own)})"
    parser.description = (
        "Defaults are those for the bundled policy; `delta-rlvr train --help` has those for other models too."
    )
    argparse.ArgumentParser.print_help(parser)
