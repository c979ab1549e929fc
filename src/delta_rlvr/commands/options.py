"""The options of `delta-rlvr train`: ours, and every one of TRL's."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any

import torch
import yaml
from trl import TrlParser

from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.commands.names import check_trackers, train_option_hint
from delta_rlvr.files import plain
from delta_rlvr.models import DEFAULT_POLICY
from delta_rlvr.objectives import get_method
from delta_rlvr.runs.layout import CONTENT, RUN
from delta_rlvr.runs.writer import ended_before_its_first_step
from delta_rlvr.specs import with_settings, without_settings
from delta_rlvr.tasks import DEFAULT_TASK
from delta_rlvr.tasks.templates import TEMPLATES
from rlvr_graders.extract import EXTRACTORS

# What the bundled policy is trained with: found on plain DAPO, before any other method was run on it.
BUILT_IN_DEFAULTS: dict[str, Any] = {
    "max_steps": 80,
    "learning_rate": 5e-4,
    "lr_scheduler_type": "constant",
    "per_device_train_batch_size": 128,
    "num_generations": 8,
    "steps_per_generation": 2,
    "gradient_accumulation_steps": 1,
    "gradient_checkpointing": False,
    "save_steps": 20,
}

# What differs from TRL's defaults for everybody: the paper's sampling, and a line of metrics a step.
COMMON_DEFAULTS: dict[str, Any] = {
    "temperature": 1.0,
    "beta": 0.0,
    "logging_steps": 1,
    "disable_tqdm": True,
    "report_to": "none",
    "max_completion_length": None,  # the task's own
}
DEFAULT_OUTPUT = Path("runs/train")
"""Where runs go that were given no folder: the first one there, the next ones into runs/train-2, runs/train-3, ..."""


OF_THE_TASK = ("template", "template_text", "extract")
"""Options that become settings of the task."""


def _option(default: Any, words: str) -> Any:
    return field(default=default, metadata={"help": words})


@dataclass
class TrainOptions:
    """What to train and where to."""

    model: str = _option(
        DEFAULT_POLICY,
        "Policy: 'builtin' (bundled, tiny), 'smollm2-135m', a GGUF file, a folder, or a hub id.",
    )
    task: str = _option(
        DEFAULT_TASK,
        "Problems: a built-in task, reasoning-gym:NAME, a file (.jsonl, .jsonl.gz, .json, .csv, .parquet), or "
        "a hub data set (settings follow as ?key=value&...).",
    )
    template: str | None = _option(
        None,
        f"Prompt template for rows: {', '.join(TEMPLATES)} (default: math; paper_math is the authors' for base models).",
    )
    template_text: str | None = _option(
        None, "A prompt of your own for rows, with {question} where the question goes."
    )
    extract: str | None = _option(
        None,
        f"Where the answer stands in responses to --template_text: {', '.join(EXTRACTORS)} (default: where it asks for it).",
    )
    reward: str | None = _option(
        None,
        "Another judge than the task's grader: math-verify, or a function of your own as my.py:function or package.module:function "
        "(TRL's signature).",
    )
    steps: int | None = _option(None, "Optimizer steps (the same as --max_steps).")
    output: str | None = _option(None, "Run folder (the same as --output_dir).")
    resume: bool = _option(False, "Go on from the last whole checkpoint in the run folder.")
    train_problems: int | None = _option(
        None, "Training problems (default: as many as the steps need once each, or all there are)."
    )
    eval_problems: int = _option(200, "Held-out problems to score before and after training (0: none).")
    eval_samples: int = _option(4, "Samples per held-out problem.")
    overlong_buffer: int | None = _option(
        None, "DAPO's soft overlong penalty over the last so many tokens of the limit (default: off)."
    )
    overlong_factor: float = _option(1.0, "Largest overlong penalty.")
    lora_rank: int | None = _option(None, "Train a LoRA adapter of this rank instead of all weights.")
    report: bool = _option(True, "Write report.html at the end.")

    def __post_init__(self) -> None:
        counts = ("steps", "train_problems", "eval_problems", "eval_samples", "overlong_buffer", "lora_rank")
        for name in counts:
            value, least = getattr(self, name), 0 if name == "eval_problems" else 1
            if value is not None and value < least:
                raise ValueError(f"--{name} {value}: give {least} or more")


def parse_train_options(arguments: list[str]) -> tuple[TrainOptions, DeltaTrainerConfig]:
    """Flags, and a YAML file given with --config, in TRL's own manner. With --resume, what they do not say is what the run was started
    with."""
    arguments = _two_words(arguments)
    given = given_options(arguments)
    defaults = COMMON_DEFAULTS | device_defaults()
    if given.get("model") in (None, DEFAULT_POLICY):
        defaults |= BUILT_IN_DEFAULTS
        if given.get("num_train_epochs") is not None:
            del defaults["max_steps"]  # it would win over the epochs that were asked for
    resume = given.get("resume") not in (None, False, "false", "False")
    folder = given.get("output") or given.get("output_dir") or default_output(resume)
    defaults["output_dir"] = str(folder)
    if resume:
        defaults |= _restored(stored_settings(Path(str(folder))), given)
    options, config = _parse(arguments, defaults, given)
    if not config.temperature > 0:
        raise ValueError(
            f"--temperature {config.temperature}: responses are sampled in training; give a positive number"
        )
    if config.learning_rate < 0:
        raise ValueError(f"--learning_rate {config.learning_rate}: give 0 or more")
    check_trackers(config.report_to)
    return options, config


def _parse(
    arguments: list[str], defaults: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[TrainOptions, DeltaTrainerConfig]:
    parser = _parser()
    parser.set_defaults(**defaults)
    options, config, rest = parser.parse_args_and_config(arguments, return_remaining_strings=True)
    if rest:
        name = rest[0].lstrip("-").partition("=")[0]
        raise ValueError(f"there is no option {rest[0]}; {_hint(name, given.get('method') or 'delta')}")
    flags = settings_of_flags(arguments)
    # A prompt on the command line takes the place of the settings file's, whichever way either is written.
    replaced = flags.keys() & {"template", "template_text"}
    asked = {name: None if replaced and name not in flags else getattr(options, name) for name in OF_THE_TASK}
    if replaced and "task" not in flags:
        options.task, _ = without_settings(options.task, OF_THE_TASK)
    options.task = with_settings(options.task, asked)
    for name in asked:
        setattr(options, name, None)  # one place for each setting: these are part of the task now
    if options.steps is not None:
        config.max_steps, options.steps = options.steps, None
    if options.output is not None:
        config.output_dir, options.output = options.output, None
    return options, config


def default_output(resume: bool) -> Path:
    """The folder of a run that was given none: one of its own, or, to go on with, the last one that there is."""
    numbers = [1]
    for folder in DEFAULT_OUTPUT.parent.glob(f"{DEFAULT_OUTPUT.name}-*"):
        tail = folder.name.removeprefix(f"{DEFAULT_OUTPUT.name}-")
        if tail.isdecimal():
            numbers.append(int(tail))

    def folder_of(number: int) -> Path:
        return DEFAULT_OUTPUT if number == 1 else DEFAULT_OUTPUT.with_name(f"{DEFAULT_OUTPUT.name}-{number}")

    last = max(numbers)
    taken = (folder_of(last) / RUN).exists() and not ended_before_its_first_step(folder_of(last))
    return folder_of(last + 1 if taken and not resume else last)


# What a resumed run does not take over: where it is, what follows from other settings, and what says the same in another word.
NOT_RESTORED = {"output", "output_dir", "resume", "steps", "generation_batch_size", "logging_dir", "report"}
_SAME_SETTING = {"steps": "max_steps", "output": "output_dir"}


def flag_of(setting: str) -> str:
    """The option that sets it, as `train --help` names it."""
    return f"--{next((ours for ours, theirs in _SAME_SETTING.items() if theirs == setting), setting)}"


def told_difference(setting: str, before: Any, now: Any) -> str:
    """How a setting differs from what a run was started with."""
    if setting.endswith(CONTENT):
        return f"the file that {flag_of(setting.removesuffix(CONTENT))} names has changed since"
    return f"{flag_of(setting)} was {before} and is now {now}"


def differing(
    before: Mapping[str, Any], settings: Mapping[str, Any], but: Collection[str]
) -> dict[str, tuple[Any, Any]]:
    """The settings, by name, that a stored run was given otherwise than now, and both values."""
    now = plain(dict(settings))
    # What is None here is filled in by the task when a run starts.
    return {
        name: (before[name], now[name])
        for name in sorted(before.keys() & now.keys() - set(but))
        if before[name] != now[name] and now[name] is not None
    }


def stored_settings(folder: Path) -> dict[str, Any]:
    """The settings that a run was started with; {} where there is no run (a later check reports that)."""
    settings = stored_run(folder).get("settings")
    return dict(settings) if isinstance(settings, dict) else {}


def stored_run(folder: Path) -> dict[str, Any]:
    """What `run.json` holds; {} where there is none."""
    try:
        info = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def given_settings(arguments: list[str]) -> set[str]:
    """The settings, by the names that `run.json` has for them, that a command line or its settings file gives."""
    return _settings_of(given_options(arguments))


def _settings_of(options: Collection[str]) -> set[str]:
    names = {_SAME_SETTING.get(name, name) for name in options}
    return names | ({"task"} if names & set(OF_THE_TASK) else set())


def _restored(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings that the command line does not give, as far as options are made of plain values."""
    said = _settings_of(given)
    known = known_options() - NOT_RESTORED - said
    if "num_train_epochs" in said:
        known.discard("max_steps")
    kept = {name: value for name, value in stored.items() if name in known}
    return {
        name: value for name, value in kept.items() if isinstance(value, (bool, int, float, str, NoneType))
    }


def _parser() -> TrlParser:
    kinds: Any = (TrainOptions, DeltaTrainerConfig)
    return TrlParser(
        kinds, prog="delta-rlvr train", usage="delta-rlvr train [--config FILE.yaml] [--OPTION VALUE ...]"
    )


def _two_words(arguments: list[str]) -> list[str]:
    """--config=FILE as --config FILE, the only form that TRL knows."""
    split = (word.split("=", 1) if word.startswith("--config=") else [word] for word in arguments)
    return [part for words in split for part in words]


def given_options(arguments: list[str]) -> dict[str, Any]:
    """What the flags, and else the YAML file behind --config, set."""
    return settings_of_file(arguments) | settings_of_flags(arguments)


def settings_of_file(arguments: list[str]) -> dict[str, Any]:
    """What the YAML file behind --config sets, where there is one."""
    words = _two_words(arguments)
    if "--config" not in words:
        return {}
    place = words.index("--config")
    if place + 1 == len(words):
        raise ValueError("--config: expected one argument, a YAML file")
    return _read_settings(words[place + 1])


def settings_of_flags(arguments: list[str]) -> dict[str, Any]:
    """What the flags set. The parser itself reads them: it takes dashes for underscores, and shortened names."""
    words = _two_words(arguments)
    if "--config" in words:
        place = words.index("--config")
        words = words[:place] + words[place + 2 :]
    parser = _parser()
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return dict(vars(parser.parse_known_args(words)[0]))


def _read_settings(path: str) -> dict[str, Any]:
    """The YAML file of --config: a mapping from options to values."""
    try:
        settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--config {path}: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f" (line {place.line + 1}: {getattr(error, 'problem', error)})" if place else ""
        raise ValueError(f"--config {path} is not YAML{where}") from error
    if not isinstance(settings, dict):
        raise ValueError(f"--config {path}: write one option per line, as in `steps: 100`")
    for name in settings:
        if name not in known_options() | {"env"}:
            hint = _hint(str(name), str(settings.get("method", "delta")))
            raise ValueError(f"--config {path}: there is no option {name!r}; {hint}")
    return settings


def known_options() -> set[str]:
    """Every option, ours and TRL's, by name."""
    return {field.name for kind in (TrainOptions, DeltaTrainerConfig) for field in fields(kind)}


def _hint(name: str, method: str) -> str:
    settings = {one.name for one in fields(get_method(method).rule)}
    return train_option_hint(name, known_options(), method, settings)


def device_defaults() -> dict[str, Any]:
    """Without an accelerator train on the CPU, in float32."""
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        return {}
    return {"use_cpu": True, "bf16": False}


def print_all_options() -> None:
    """Every option there is, TRL's included, with the defaults of the bundled policy."""
    parser = _parser()
    parser.set_defaults(**COMMON_DEFAULTS, **device_defaults(), **BUILT_IN_DEFAULTS)
    parser.description = (
        "Defaults are those of a run of the bundled policy; `delta-rlvr train --help` has both."
    )
    argparse.ArgumentParser.print_help(parser)
