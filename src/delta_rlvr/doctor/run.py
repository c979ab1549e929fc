"""The checks of `delta-rlvr doctor` for a run of `train`."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer

from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.doctor import sizes
from delta_rlvr.doctor.checklist import Checklist
from delta_rlvr.doctor.sizes import ModelShape, gigabytes
from delta_rlvr.doctor.trial import STEPS, two_steps
from delta_rlvr.doctor.versions import OURS, version_line, version_problems
from delta_rlvr.evaluate.seeds import few_problems
from delta_rlvr.exit_codes import ExitCode
from delta_rlvr.files import locked
from delta_rlvr.models.load import adapter_base, check_model_name, load_pretrained
from delta_rlvr.runs.writer import check_is_ours
from delta_rlvr.specs import shown_spec
from delta_rlvr.tasks import get_task
from delta_rlvr.tasks.custom_reward import judged_by
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.training.heldout import heldout_problems
from delta_rlvr.training.options import TrainOptions
from delta_rlvr.training.problems import custom_or_task_reward, fit_context, training_problems
from delta_rlvr.training.request import RunRequest
from delta_rlvr.training.session import complete
from delta_rlvr.words import counted


def look_at_run(request: Callable[[], RunRequest], *, steps: bool, processes: int, checks: Checklist) -> ExitCode:
    """Make every check; return the exit code to use if one fails. `request` reads the settings. `steps`: whether to take two steps
    at the end. `processes`: how many will shard the model."""
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    asked_for = options = config = None
    with checks.of("settings"):
        asked_for = request()
        options, config = asked_for.build()
    _look_at_versions(config, checks)
    checks.saw("device", sizes.device_line())
    if asked_for is None or options is None or config is None:
        return ExitCode.BAD_INPUT
    judge = f", judged by {options.reward}" if options.reward else ""
    checks.saw("run", f"{config.method}, {options.model}{judge}")
    _look_at_folder(Path(str(config.output_dir)), checks)
    limit = config.max_completion_length
    asked = _look_at_data(options, config, checks)
    model = _look_at_model(options, checks)
    if model is not None and asked is not None:
        problems, heldout = asked
        with checks.of("lengths"):
            tokenizer = load_pretrained(AutoTokenizer, options.model)
            cut = fit_context(model, tokenizer, [*problems, *heldout], config, limit)
            context = getattr(model.get_text_config(), "max_position_embeddings", None)
            fits = f"a prompt and {config.max_completion_length} tokens of response fit the model's context"
            checks.saw("lengths", cut or fits + (f" of {context} tokens" if context else ""))
        planned = _planned_steps(config, len(problems))
        shape = ModelShape.of(model, options.lora_rank)
        _look_at_memory(shape, config, processes, checks)
        _look_at_disk(shape, config, planned, checks)
        if not checks.problems:
            if steps and processes == 1:
                # Scores before and after training use transformers' sampling: the time of vLLM does not predict theirs.
                scored = 0 if config.use_vllm else 2 * len(heldout) * options.eval_samples
                return _take_steps(asked_for, config, planned, scored, checks)
            why = "none were requested" if not steps else "doctor does not start several processes"
            checks.saw("two steps", f"not taken ({why}), so the time of the run is unknown")
    if checks.problems and steps:
        checks.saw("two steps", "not taken, because of the problems below")
    return ExitCode.BAD_INPUT


def _look_at_versions(config: DeltaTrainerConfig | None, checks: Checklist) -> None:
    vllm = config is not None and config.use_vllm
    # transformers declares its range of torch in an extra.
    problems = version_problems({OURS: "trl", "trl": "vllm" if vllm else None, "transformers": "torch"})
    for problem in problems:
        checks.wrong("versions", problem)
    if not problems:
        names = ("torch", "transformers", "trl", "accelerate", "peft", *(("vllm",) if vllm else ()))
        checks.saw("versions", f"{version_line(*names)} go together")


def _look_at_folder(folder: Path, checks: Checklist) -> None:
    with checks.of("folder"), locked(folder):  # which also tries to write there
        check_is_ours(folder)
        checks.saw("folder", f"{folder} is free")


def _look_at_data(
    options: TrainOptions, config: DeltaTrainerConfig, checks: Checklist
) -> tuple[list[Problem], list[Problem]] | None:
    """Return the training problems and the held-out ones."""
    with checks.of("data"):
        task = get_task(options.task, **judged_by(options.reward))
        complete(config, options, task, lambda text: checks.saw("settings", text))
        problems = training_problems(task, options, config)
        custom_or_task_reward(options, task, problems)
        heldout = heldout_problems(options, task)
        checks.saw("data", f"{shown_spec(options.task)}: {len(problems)} problems to train on, {len(heldout)} held out")
        if heldout and (rough := few_problems(len(heldout), options.eval_problems)):
            checks.saw("score", rough)
        return problems, heldout
    return None


def _look_at_model(options: TrainOptions, checks: Checklist) -> Any | None:
    with checks.of("model"):
        check_model_name(options.model)
        model = load_pretrained(AutoConfig, adapter_base(options.model) or options.model)
        checks.saw("model", f"{options.model} ({model.model_type})")
        return model
    return None


def _planned_steps(config: DeltaTrainerConfig, problems: int) -> int:
    if config.max_steps > 0:
        return config.max_steps
    batches = math.ceil(config.num_train_epochs * (problems // config.prompts_per_batch))
    return max(1, round(batches * config.updates_per_batch))


def _look_at_memory(shape: ModelShape, config: DeltaTrainerConfig, processes: int, checks: Checklist) -> None:
    """Compare the memory that is needed with what is free now. Activations and the sampler's cache are left to the two steps."""
    assert config.generation_batch_size is not None
    assert config.max_completion_length is not None
    state = sizes.state_bytes(shape, _moments(config)) // processes
    logits = sizes.logits_bytes(shape, config.per_device_train_batch_size * config.max_completion_length)
    stored = 0
    if config.resolved_method.rule.stores is not None:
        responses = config.generation_batch_size // config.world_size
        stored = sizes.store_bytes(shape, responses * config.max_completion_length, 2 if config.bf16 else 4)
    device = config.device
    free = sizes.free_memory(device)
    parts = (
        f"{shape.parameters / 1e6:,.1f} million parameters with gradients and optimizer {gigabytes(state)}; logits up to "
        f"{gigabytes(logits)}; stored hidden states up to {gigabytes(stored)}"
    )
    where = "GPU" if device.type == "cuda" else "machine"
    checks.saw("memory", f"{parts}; the {where} has {gigabytes(free)} free")
    share = "" if processes == 1 else f" on each of {processes} processes, sharded"
    if state + logits > free:
        checks.wrong(
            "memory",
            f"weights, gradients, optimizer and logits need {gigabytes(state + logits)}{share}, and {gigabytes(free)} are free: lower "
            f"`per_device_train_batch_size` ({config.per_device_train_batch_size}) or `max_completion_length` "
            f"({config.max_completion_length}), train a LoRA adapter (`lora_rank`), or shard over more `processes` (FSDP, ZeRO-3)",
        )
        return
    left = free - state - logits
    room = left if device.type != "cuda" else left // 2 + sizes.free_host_memory() // 2
    if stored > room:
        checks.wrong(
            "memory",
            f"stored hidden states may need {gigabytes(stored)}, and there is room for {gigabytes(room)}: make the rollout batch "
            f"smaller (`steps_per_generation`, now {config.steps_per_generation}) or spread it over more processes",
        )


def _moments(config: DeltaTrainerConfig) -> int:
    """Return the bytes of optimizer state per trained parameter."""
    return sizes.optimizer_bytes(str(getattr(config.optim, "value", config.optim)))


def _look_at_disk(shape: ModelShape, config: DeltaTrainerConfig, steps: int, checks: Checklist) -> None:
    saves = 0
    if config.save_strategy == "steps":
        every = config.save_steps if config.save_steps >= 1 else max(1, math.ceil(config.save_steps * steps))
        saves = math.ceil(steps / every)
    elif config.save_strategy == "epoch":
        saves = math.ceil(config.num_train_epochs)
    kept = min(saves, config.save_total_limit or saves)
    each = sizes.checkpoint_bytes(shape, _moments(config))
    # A new checkpoint is written before the oldest is deleted.
    need = (kept + (kept < saves)) * each + 4 * shape.trained
    free = sizes.free_disk(Path(str(config.output_dir)))
    free_of = f"{gigabytes(need)} of {gigabytes(free)} free"
    text = f"{counted(kept, 'checkpoint')} of {gigabytes(each)} and the model: {free_of}"
    remedy = "set `save_total_limit`, or a larger `save_steps`, or another `output`"
    checks.fits("disk", need, free, text, remedy)


def _take_steps(
    request: RunRequest, config: DeltaTrainerConfig, steps: int, scored: int, checks: Checklist
) -> ExitCode:
    """Take two steps and report the time and memory of the run. `steps`: of the whole run. `scored`: held-out responses in all."""
    print(f"taking {STEPS} steps ...", end="\r" if sys.stdout.isatty() else "\n", flush=True)
    try:
        trial = two_steps(request, config)
    except Exception as error:
        if os.environ.get("DELTA_RLVR_TRACEBACK"):
            raise
        hint = ""
        if isinstance(error, torch.OutOfMemoryError):
            hint = (
                ": lower `per_device_train_batch_size` or `max_completion_length`, or set gradient_checkpointing=True"
            )
        lines = str(error).strip().splitlines() or [type(error).__name__]
        checks.wrong("two steps", f"the two steps failed: {lines[0]}{hint} (DELTA_RLVR_TRACEBACK=1 shows where)")
        return ExitCode.FAILED
    heldout, rest = "", "held-out scores and checkpoints"
    if scored:
        heldout = f", the held-out scores before and after about {_time(trial.response_seconds * scored)}"
        rest = "checkpoints"
    checks.saw(
        "two steps",
        f"{trial.seconds:.1f} s per step, peak memory {gigabytes(trial.peak)}; {counted(steps, 'step')} "
        f"{'takes' if steps == 1 else 'take'} about {_time(trial.seconds * steps)}"
        f"{heldout} ({rest} not counted)",
    )
    if trial.note:
        checks.wrong("signal", trial.note)
    return ExitCode.BAD_INPUT


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
