"""Checks of a verl launch without starting it: settings, versions, lengths, memory, disk. Imports neither verl nor Ray."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from delta_rlvr.adapters.verl.checks import config_problems, config_remarks, select
from delta_rlvr.adapters.verl.settings import BLOCK, VerlSettings, read_settings
from delta_rlvr.doctor import sizes
from delta_rlvr.doctor.checklist import Checklist
from delta_rlvr.doctor.sizes import ModelShape, gigabytes
from delta_rlvr.doctor.versions import OURS, version_line, version_problems
from delta_rlvr.models import hub
from delta_rlvr.versions import installed_version
from delta_rlvr.words import counted
from delta_rlvr.yaml_files import KeyTwice, load_yaml

VALUE_HEAD = "AutoModelForCausalLMWithValueHead"
"""The class of TRL that verl 0.9 imports at its start."""


FORMATS = (
    "verl's settings one per line, as in `trainer.nnodes=2`; a launch line, `python -m verl.trainer.main_ppo ...`; or a YAML config "
    "with a block `delta:`"
)
"""What doctor reads of verl."""
_MAIN = "verl.trainer.main_ppo"
_EXTRAS = ("vllm", "sglang")
"""The rollout engines that verl has an extra for."""
_PACKAGES = {"trtllm": "tensorrt_llm"}
"""The packages of rollout engines with another name."""
_BLOCKS = (BLOCK, "actor_rollout_ref", "algorithm", "data", "reward", "trainer")
_OVERRIDE = re.compile(rf"[+~]{{0,2}}({'|'.join(_BLOCKS)})\.[\w.]+=")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")


def read_overrides(path: Path) -> list[str] | dict[str, Any] | None:
    """Read a file for verl: overrides, one per line as the launch scripts print them, a shell script with verl's launch line, or a
    config with verl's blocks. Return None for settings of `train`."""
    text = path.read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if any(_MAIN in line for line in lines) or any(line.endswith("\\") for line in lines):
        return _launched(path, lines)
    if lines and all(_OVERRIDE.match(line.strip("\"'")) for line in lines):
        return lines
    if any(line.lstrip("+").startswith(f"{BLOCK}.") and "=" in line for line in lines):
        return lines
    try:
        config = load_yaml(text, str(path))
    except KeyTwice:
        raise
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise ValueError(f"{path}: give settings of `train` (`steps: 100`), or, for verl, {FORMATS}")
    return config if any(isinstance(config.get(name), dict) for name in _BLOCKS) else None


def _launched(path: Path, lines: list[str]) -> list[str]:
    """Return the overrides of the launch line in a shell script."""
    script = "\n".join(lines).replace("\\\n", " ")
    values: dict[str, str] = dict(os.environ)
    unknown: list[str] = []

    def value(variable: re.Match[str]) -> str:
        name = variable[1] or variable[2]
        known = values.get(name) or variable[3]
        if known is None:
            unknown.append(variable[0])
        return known or ""

    for line in script.splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            if _MAIN not in line:
                continue
            raise ValueError(
                f"{path}: {line[:60]!r} cannot be read as a shell would ({error}): give {FORMATS}"
            ) from None
        place = next((at for at, word in enumerate(words) if word.endswith((_MAIN, "main_ppo.py"))), None)
        start = 0 if place is None else place + 1
        given = []
        for word in words[start:]:
            if re.fullmatch(r"[|&;<]+|\d?>.*", word):  # where the command ends: `| tee log`, `2>&1`
                break
            if word not in ("$@", "$*"):
                given.append(word)
        if place is None and not all(_OVERRIDE.match(word) for word in given):
            for word in words:
                name, equals, text = word.partition("=")
                if equals and name.isidentifier():
                    values[name] = _VARIABLE.sub(value, text)
            unknown.clear()  # it need not be one of the launch's
            continue
        if not given:
            continue
        overrides = [_VARIABLE.sub(value, word) for word in given]
        strange = [word for word in overrides if "=" not in word]
        if unknown or strange or "$" in "".join(overrides):
            what = ", ".join([*unknown, *strange]) or next(word for word in overrides if "$" in word)
            raise ValueError(
                f"{path}: {what} cannot be resolved without running the script: put the value in its place, or give {FORMATS}"
            )
        return overrides
    raise ValueError(f"{path}: it has no launch of verl with settings: give {FORMATS}")


def look_at_launch(given: list[str] | dict[str, Any], checks: Checklist) -> None:
    """Make every check of a verl launch."""
    for problem in version_problems({OURS: "verl", "verl": None}):
        checks.wrong("versions", problem)
    if _trl_is_in_the_way():
        checks.wrong(
            "versions",
            f"TRL {installed_version('trl')} is installed beside verl, which needs TRL's {VALUE_HEAD} and does not start without it: "
            "install delta-rlvr[verl] and delta-rlvr[trl] into separate environments",
        )
    config = _whole(given, checks)
    if config is None:
        return
    checks.saw("versions", version_line("verl", "ray", "torch", "transformers"))
    _look_at_rollouts(str(select(config, "actor_rollout_ref.rollout.name", "vllm")), checks)
    settings = None
    if isinstance(given, dict) and not isinstance(given.get(BLOCK), dict):
        checks.wrong(
            "settings", f"the block `{BLOCK}` is missing: write `{BLOCK}: {{method: delta}}` beside verl's blocks"
        )
    else:
        with checks.of("settings"):
            settings = read_settings(config.get(BLOCK))
    if settings is not None:
        for problem in config_problems(config, settings):
            checks.wrong("settings", problem)
        for remark in config_remarks(config, settings):
            checks.saw("remark", remark)
        checks.saw("settings", f"method {settings.method.name}")
    _look_at_machine(config, checks)
    _look_at_data(config, checks)
    shape = _shape(config, checks)
    if shape is not None:
        _look_at_sizes(config, settings, shape, checks)
    checks.saw("steps", "not taken: they need verl's cluster. A launch with trainer.total_training_steps=2 takes two")


def _look_at_rollouts(engine: str, checks: Checklist) -> None:
    """Check that the rollout engine is installed. Other versions than those pinned in verl's extra are only reported."""
    package = _PACKAGES.get(engine, engine)
    if installed_version(package) is None:
        remedy = (
            f': pip install "verl[{engine}]"'
            if engine in _EXTRAS
            else f', and verl has no extra that installs it: set {" or ".join(_EXTRAS)}, as in pip install "verl[{_EXTRAS[0]}]"'
        )
        checks.wrong("rollouts", f"actor_rollout_ref.rollout.name={engine}: {package} is not installed{remedy}")
        return
    others = version_problems({"verl": package}) if installed_version("verl") else []
    checks.saw("rollouts", "; ".join([version_line(package), *others]))


def _trl_is_in_the_way() -> bool:
    """Return whether a TRL is installed that no longer has the class that verl needs, without importing TRL."""
    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None:
        return False
    return VALUE_HEAD not in Path(spec.origin).read_text(encoding="utf-8")


def _whole(given: list[str] | dict[str, Any], checks: Checklist) -> dict[str, Any] | None:
    """Return the given settings merged over verl's defaults, or alone if verl is not installed."""
    spec = importlib.util.find_spec("verl")
    if spec is None or spec.origin is None:
        return given if isinstance(given, dict) else _nested(given)
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    GlobalHydra.instance().clear()
    folder = Path(spec.origin).parent / "trainer" / "config"
    try:
        with initialize_config_dir(str(folder), version_base=None):
            config: Any = compose("ppo_trainer", overrides=given if isinstance(given, list) else [])
        if isinstance(given, dict):
            OmegaConf.set_struct(config, False)
            config = OmegaConf.merge(config, given)
        whole: Any = OmegaConf.to_container(config, resolve=True)
    except (HydraException, ValueError) as error:
        cause = error.__cause__ or error
        checks.wrong("settings", f"verl refuses the settings: {' '.join(str(cause).split())}")
        return None
    return dict(whole)


def _nested(overrides: list[str]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for line in overrides:
        path, _, value = line.lstrip("+~").partition("=")
        *parts, last = path.split(".")
        place = config
        for part in parts:
            place = place.setdefault(part, {})
        place[last] = load_yaml(value, line)
    return config


def _look_at_machine(config: Mapping[str, Any], checks: Checklist) -> None:
    wanted = select(config, "trainer.n_gpus_per_node", 8)
    checks.saw("device", sizes.device_line())
    if select(config, "trainer.device") == "cpu":
        return
    if torch.cuda.device_count() < wanted:
        checks.wrong(
            "device",
            f"trainer.n_gpus_per_node={wanted}, and this node has {torch.cuda.device_count()} GPUs: run doctor on a node of the "
            "cluster, or set it to what a node has",
        )


def _files(config: Mapping[str, Any], name: str) -> list[Path]:
    files = select(config, name, [])
    return [Path(str(one)).expanduser() for one in ([files] if isinstance(files, str) else files)]


def _look_at_data(config: Mapping[str, Any], checks: Checklist) -> None:
    present: list[str] = []
    for name in ("data.train_files", "data.val_files"):
        paths = _files(config, name)
        missing = [str(path) for path in paths if not path.exists()]
        if missing:
            checks.wrong(
                "data", f"{name}: {', '.join(missing)} does not exist; recipes/verl/prepare_data.py makes such a file"
            )
        present += [str(path) for path in paths if path.exists()]
    if present:
        checks.saw("data", ", ".join(dict.fromkeys(present)))


def _shape(config: Mapping[str, Any], checks: Checklist) -> ModelShape | None:
    from transformers import AutoConfig

    name = str(select(config, "actor_rollout_ref.model.path", ""))
    try:
        with hub.little_patience():
            model = AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0] if Path(name).expanduser().exists() else hub.reason(error)
        checks.wrong("model", f"actor_rollout_ref.model.path={name} cannot be read: {why}")
        return None
    shape = ModelShape.of(model)
    checks.saw("model", f"{name}: {shape.parameters / 1e6:,.1f} million parameters")
    return shape


def _look_at_sizes(
    config: Mapping[str, Any], settings: VerlSettings | None, shape: ModelShape, checks: Checklist
) -> None:
    prompt, response = (select(config, f"data.max_{part}_length", 0) for part in ("prompt", "response"))
    if shape.context is not None and prompt + response > shape.context:
        checks.wrong(
            "lengths",
            f"data.max_prompt_length={prompt} and data.max_response_length={response} are {prompt + response} tokens, and the model's "
            f"context has {shape.context}: lower one of them",
        )
    else:
        checks.saw("lengths", f"prompt {prompt} + response {response} of {shape.context} tokens")
    stored = 0
    if settings is not None and settings.method.rule.stores is not None:
        prompts = select(config, "data.train_batch_size", 0)
        each = select(config, "actor_rollout_ref.rollout.n", 1)
        stored = sizes.store_bytes(shape, prompts * each * response, 2)
    tokens = select(config, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu", prompt + response)
    _look_at_memory(config, shape, tokens, stored, checks)
    _look_at_disk(config, shape, checks)


def _look_at_memory(config: Mapping[str, Any], shape: ModelShape, tokens: int, stored: int, checks: Checklist) -> None:
    """Report the memory per rank. `tokens`: of one pass. `stored`: bytes of hidden states over all ranks."""
    ranks = select(config, "trainer.nnodes", 1) * select(config, "trainer.n_gpus_per_node", 8)
    state = sizes.state_bytes(shape) // ranks
    checks.saw(
        "memory",
        f"per rank of {ranks}: weights, gradients and optimizer {gigabytes(state)}; logits of {tokens} tokens up to "
        f"{gigabytes(sizes.logits_bytes(shape, tokens))} (less with fused kernels); stored hidden states up to "
        f"{gigabytes(stored // ranks)}, on the GPU and then in host memory",
    )
    if torch.cuda.is_available():
        free = torch.cuda.mem_get_info(0)[0]
        if state > free:
            checks.wrong(
                "memory",
                f"the weights, gradients and optimizer of a rank need {gigabytes(state)}, and a GPU has {gigabytes(free)} free: "
                "more ranks (trainer.nnodes), or actor_rollout_ref.actor.fsdp_config.optimizer_offload=True",
            )


def _look_at_disk(config: Mapping[str, Any], shape: ModelShape, checks: Checklist) -> None:
    count, each = _checkpoints(config), sizes.checkpoint_bytes(shape)
    free = sizes.free_disk(Path(str(select(config, "trainer.default_local_dir", "."))))
    if count is None:
        checks.saw(
            "disk",
            f"{gigabytes(each)} per checkpoint, {gigabytes(free)} free; how many there will be cannot be known, since the rows of "
            "data.train_files cannot be counted here",
        )
        return
    need = count * each
    text = f"{counted(count, 'checkpoint')} of {gigabytes(each)}: {gigabytes(need)} of {gigabytes(free)} free"
    checks.fits("disk", need, free, text, "set trainer.max_actor_ckpt_to_keep, or a larger trainer.save_freq")


def _checkpoints(config: Mapping[str, Any]) -> int | None:
    """Return how many checkpoints will be on the disk at most, or None if the number of steps cannot be known."""
    every = select(config, "trainer.save_freq", -1)
    if every <= 0:
        return 0
    kept = select(config, "trainer.max_actor_ckpt_to_keep", 0)
    steps = _steps(config)
    if steps is None:
        return kept if kept > 0 else None
    saved = math.ceil(steps / every)  # the last step is always saved
    return min(saved, kept) if kept > 0 else saved


def _steps(config: Mapping[str, Any]) -> int | None:
    """Return verl's number of steps, before it leaves out long prompts; None where the rows of the data cannot be counted."""
    steps = select(config, "trainer.total_training_steps")
    if steps is not None:
        return int(steps)
    rows = _rows(_files(config, "data.train_files"))
    if rows is None:
        return None
    most = select(config, "data.train_max_samples", -1)
    rows = min(rows, most) if most > 0 else rows
    return rows // max(1, select(config, "data.train_batch_size", 1024)) * select(config, "trainer.total_epochs", 30)


def _rows(paths: list[Path]) -> int | None:
    """Return the number of rows of Parquet files from their metadata; None if there is no file or one cannot be read."""
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        return None
    try:
        return sum(parquet.read_metadata(path).num_rows for path in paths) if paths else None
    except (ArrowInvalid, OSError):
        return None
