"""The request of a run: its settings as they were given. Comparisons, trials, resumed runs and advised commands change a request."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any

import torch

from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.bounds import check_types
from delta_rlvr.files import in_use, plain
from delta_rlvr.hints import did_you_mean
from delta_rlvr.models import DEFAULT_POLICY
from delta_rlvr.models.load import gguf_digest, is_gguf
from delta_rlvr.runs.layout import CONTENT, RUN, misfits
from delta_rlvr.runs.writer import ended_before_its_first_step
from delta_rlvr.specs import with_settings, without_settings
from delta_rlvr.tasks.contents import content_digest
from delta_rlvr.training.options import (
    BUILT_IN_DEFAULTS,
    COMMON_DEFAULTS,
    OF_EVAL_EVERY,
    OF_THE_TASK,
    TrainOptions,
    check_trackers,
)

DEFAULT_OUTPUT = Path("runs/train")
"""The default run folder; further runs go to runs/train-2, runs/train-3, ..."""

# What a resumed run does not restore: its place, settings that follow from others, and second names of settings.
_OF_ONE_START = {"resume", "accept_changed"}
NOT_RESTORED = _OF_ONE_START | {"output", "output_dir", "steps", "generation_batch_size", "logging_dir", "report"}
_OF_ANY_TYPE = {"method", "scale_rewards"}  # a rule object; true and false, in TRL's older words
_SAME_SETTING = {"steps": "max_steps", "output": "output_dir"}


@dataclass(frozen=True)
class RunRequest:
    """Settings by name: those of a settings file, and those given on top. The others have their defaults or, in a resumed run, the
    values that the run was started with."""

    given: Mapping[str, Any] = field(default_factory=dict)
    """Options of `TrainOptions` and `DeltaTrainerConfig` (every one of TRL's)."""
    file: str | None = None
    """The path of the settings file."""
    from_file: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> dict[str, Any]:
        """The settings of the file and those given, merged."""
        file = dict(self.from_file)
        # A given prompt replaces the file's, whether either is an option or a setting of the task.
        if self.given.keys() & {"template", "template_text"}:
            file = {name: value for name, value in file.items() if name not in OF_THE_TASK}
            if "task" in file:
                file["task"], _ = without_settings(file["task"], OF_THE_TASK)
        for pair in _SAME_SETTING.items():
            if self.given.keys() & set(pair):
                file = {name: value for name, value in file.items() if name not in pair}
        return {**file, **self.given}

    @property
    def settings(self) -> set[str]:
        """The names of the settings in `asked`, as `run.json` has them."""
        names = {_SAME_SETTING.get(name, name) for name in self.asked}
        return names | ({"task"} if names & set(OF_THE_TASK) else set())

    def but(self, **changes: Any) -> RunRequest:
        """Return the request with these settings changed."""
        return replace(self, given={**self.given, **changes})

    def without(self, *names: str) -> RunRequest:
        """Return the request without the given values of these settings."""
        return replace(self, given={key: one for key, one in self.given.items() if key not in names})

    def build(self) -> tuple[TrainOptions, DeltaTrainerConfig]:
        """Return the complete settings of the run, checked."""
        asked = self.asked
        for name in asked.keys() - known_options():
            raise ValueError(f"there is no setting {name!r}{did_you_mean(name, known_options())}")
        plain = {name: value for name, value in asked.items() if name not in _OF_ANY_TYPE}
        for kind in (TrainOptions, DeltaTrainerConfig):
            check_types(kind, plain)
        for source in (self.given, self.from_file):
            steps = source.get("steps", source.get("max_steps"))
            if (steps or 0) > 0 and source.get("num_train_epochs") is not None:
                raise ValueError("steps and num_train_epochs are two lengths of one run: give one of them")
        values = COMMON_DEFAULTS | _device_defaults()
        if asked.get("model") in (None, DEFAULT_POLICY):
            values |= BUILT_IN_DEFAULTS
            if asked.get("num_train_epochs") is not None:
                del values["max_steps"]  # it would override the requested epochs
        for name in ("output", "output_dir"):
            if asked.get(name) == "":
                raise ValueError(f"{name}='': give a folder")
        resume = bool(asked.get("resume"))
        folder = Path(asked.get("output") or asked.get("output_dir") or default_output(resume))
        if resume:
            values |= self._restored(stored_run(folder).get("settings") or {})
        values |= asked | {"output_dir": str(folder)}
        if asked.get("resume_from_checkpoint") is not None:
            raise ValueError(
                "resume_from_checkpoint is not used here: set `resume` to go on from the last checkpoint of `output`, or start "
                "another run with a checkpoint as `model`"
            )
        if values.get("eval_every") is not None:
            values |= OF_EVAL_EVERY | {"eval_steps": values["eval_every"]}
        elif values.get("load_best_model_at_end"):
            raise ValueError("load_best_model_at_end=True: give `eval_every` too, how often the score is taken")
        elif asked.get("eval_strategy", "no") != "no":
            raise ValueError(
                "eval_strategy is not used here: set `eval_every` to the steps between held-out scores during training"
            )
        if values.get("steps") is not None:
            values["max_steps"] = values["steps"]
        ours = {one.name for one in fields(TrainOptions)}
        options = TrainOptions(**{name: value for name, value in values.items() if name in ours})
        # Each setting in one place: these are now part of the task or one of TRL's options.
        options.task = with_settings(options.task, {name: getattr(options, name) for name in OF_THE_TASK})
        for name in (*OF_THE_TASK, *_SAME_SETTING):
            setattr(options, name, None)
        config = DeltaTrainerConfig(**{name: value for name, value in values.items() if name not in ours})
        if not config.temperature > 0:
            raise ValueError(
                f"temperature={config.temperature}: training samples its responses; give a positive number"
            )
        check_trackers(config.report_to)
        return options, config

    def _restored(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stored settings that are not in `asked`, as far as they are plain values."""
        known = known_options() - NOT_RESTORED - self.settings
        if "num_train_epochs" in self.asked:
            known.discard("max_steps")
        plain_kinds = (bool, int, float, str, NoneType)
        return {key: one for key, one in stored.items() if key in known and isinstance(one, plain_kinds)}

    def with_restored(self) -> RunRequest:
        """Return the request of a resumed run with the restored settings that are not defaults. Without `resume` it describes the
        same run."""
        options, config = self.build()
        settings, new_run = run_settings(options, config), run_settings(*self.but(resume=False).build())
        restored = {
            name: value
            for name, value in settings.items()
            if name in known_options() - NOT_RESTORED and value is not None and value != new_run[name]
        }
        given = stored_run(Path(str(config.output_dir))).get("given")
        if isinstance(given, list):  # older runs do not have the list
            restored = {name: value for name, value in restored.items() if name in given}
            if "task" in restored:  # written as it was given, as options or as settings of the task
                own_options = [name for name in OF_THE_TASK if name in given]
                restored["task"], taken = without_settings(restored["task"], own_options)
                restored |= taken
        return self.but(**{option_of(name): value for name, value in restored.items()})


def run_settings(options: TrainOptions, config: DeltaTrainerConfig) -> dict[str, Any]:
    """Return every setting of a run in one flat dict, as `run.json` keeps it."""
    settings = {**asdict(options), **config.to_dict()}
    if is_gguf(options.model):
        settings["model_sha256"] = gguf_digest(options.model)
    for name, spec in (("method", config.method), ("reward", options.reward), ("task", options.task)):
        if spec and (digest := content_digest(spec)):
            settings[f"{name}{CONTENT}"] = digest
    # Some stand in another setting: `steps` in `max_steps`, `template` in `task`.
    elsewhere = {*_OF_ONE_START, *_SAME_SETTING, *OF_THE_TASK}
    return {key: value for key, value in settings.items() if key not in elsewhere}


def default_output(resume: bool) -> Path:
    """Return the run folder if none was given: a new one, or the last one to resume."""
    numbers = [1]
    for folder in DEFAULT_OUTPUT.parent.glob(f"{DEFAULT_OUTPUT.name}-*"):
        tail = folder.name.removeprefix(f"{DEFAULT_OUTPUT.name}-")
        if tail.isdecimal():
            numbers.append(int(tail))

    def folder_of(number: int) -> Path:
        return DEFAULT_OUTPUT if number == 1 else DEFAULT_OUTPUT.with_name(f"{DEFAULT_OUTPUT.name}-{number}")

    last = max(numbers)
    taken = (folder_of(last) / RUN).exists() and not ended_before_its_first_step(folder_of(last))
    if resume:
        return folder_of(last)
    free = last + 1 if taken else last
    # Another run may have started there and written nothing yet. The processes of one run share its folder.
    while int(os.environ.get("WORLD_SIZE", "1")) == 1 and in_use(folder_of(free)):
        free += 1
    return folder_of(free)


def check_one_name_each(settings: Collection[str], where: str = "") -> None:
    """Refuse two names of one setting: one of them would win in silence."""
    for pair in _SAME_SETTING.items():
        if set(pair) <= set(settings):
            raise ValueError(f"{where}{' and '.join(pair)} are two names of one setting: give one of them")


def option_of(setting: str) -> str:
    """Return the option that sets this setting, as `train --help` names it."""
    return next((ours for ours, theirs in _SAME_SETTING.items() if theirs == setting), setting)


def difference_text(setting: str, before: Any, now: Any) -> str:
    """Return a sentence about a setting that differs from the value the run was started with."""
    if setting.endswith(CONTENT):
        return f"the file that `{option_of(setting.removesuffix(CONTENT))}` names has changed since"
    return f"`{option_of(setting)}` was {before} and is now {now}"


def differing(
    before: Mapping[str, Any], settings: Mapping[str, Any], but: Collection[str]
) -> dict[str, tuple[Any, Any]]:
    """Return the settings whose stored value differs from the present one, with both values."""
    now = plain(dict(settings))
    # None is filled in by the task when a run starts.
    return {
        name: (before[name], now[name])
        for name in sorted(before.keys() & now.keys() - set(but))
        if before[name] != now[name] and now[name] is not None
    }


def stored_run(folder: Path) -> dict[str, Any]:
    """Return the content of `run.json`; {} if there is none, which a later check reports."""
    try:
        info = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) and not misfits(info) else {}


def known_options() -> set[str]:
    """Return the names of all options, ours and TRL's."""
    return {one.name for kind in (TrainOptions, DeltaTrainerConfig) for one in fields(kind)}


def _device_defaults() -> dict[str, Any]:
    """Return the settings of training on the CPU in float32, if there is no accelerator."""
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        return {}
    return {"use_cpu": True, "bf16": False}
