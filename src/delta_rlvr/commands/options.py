"""The options of `delta-rlvr train`: ours, and every one of TRL's."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from trl import TrlParser

from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.objectives import METHODS
from delta_rlvr.tasks import DEFAULT_POLICY, DEFAULT_TASK

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
    "output_dir": "runs/train",
}


@dataclass
class TrainOptions:
    """What to train and where to."""

    model: str = field(
        default=DEFAULT_POLICY,
        metadata={"help": "Policy: 'builtin' (bundled, tiny), 'smollm2-135m', a folder, or a hub id."},
    )
    task: str = field(
        default=DEFAULT_TASK,
        metadata={
            "help": "Problems: a built-in task, reasoning-gym:NAME, a .jsonl file, or a hub data set "
            "(settings follow as ?key=value&...)."
        },
    )
    template: str | None = field(
        default=None,
        metadata={"help": "Prompt template for rows, e.g. 'boxed' (the paper's); default: the task's own."},
    )
    steps: int | None = field(default=None, metadata={"help": "Optimizer steps (the same as --max_steps)."})
    output: str | None = field(default=None, metadata={"help": "Run folder (the same as --output_dir)."})
    resume: bool = field(
        default=False, metadata={"help": "Go on from the last whole checkpoint in the run folder."}
    )
    train_problems: int | None = field(
        default=None, metadata={"help": "Training problems (default: as many as the steps need, once each)."}
    )
    eval_problems: int = field(
        default=200, metadata={"help": "Held-out problems to score before and after training (0: none)."}
    )
    eval_samples: int = field(default=4, metadata={"help": "Samples a held-out problem."})
    rollouts_every: int = field(
        default=10, metadata={"help": "Steps between sampled rollout dumps (0: none)."}
    )
    rollout_groups: int = field(default=4, metadata={"help": "Prompts in a rollout dump (0: all)."})
    overlong_buffer: int | None = field(
        default=None,
        metadata={
            "help": "DAPO's soft overlong penalty over the last so many tokens of the limit (default: off)."
        },
    )
    overlong_factor: float = field(default=1.0, metadata={"help": "Largest overlong penalty."})
    lora_rank: int | None = field(
        default=None, metadata={"help": "Train a LoRA adapter of this rank instead of all weights."}
    )
    report: bool = field(default=True, metadata={"help": "Write report.html at the end."})


def parse_train_options(arguments: list[str]) -> tuple[TrainOptions, DeltaTrainerConfig]:
    """Flags, and a YAML file given with --config, in TRL's own manner."""
    parser = _parser()
    defaults = COMMON_DEFAULTS | device_defaults()
    if _given(arguments, "model", DEFAULT_POLICY) == DEFAULT_POLICY:
        defaults |= BUILT_IN_DEFAULTS
    parser.set_defaults(**defaults)
    options, config = parser.parse_args_and_config(arguments)
    if options.template is not None:
        options.task += f"{'&' if '?' in options.task else '?'}template={options.template}"
    if options.steps is not None:
        config.max_steps = options.steps
    if options.output is not None:
        config.output_dir = options.output
    return options, config


def _parser() -> TrlParser:
    kinds: Any = (TrainOptions, DeltaTrainerConfig)
    return TrlParser(kinds, prog="delta-rlvr train")


def _given(arguments: list[str], name: str, default: str) -> str:
    """What a flag, or the YAML file behind --config, says of one option."""
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    peek.add_argument("--config")
    peek.add_argument(f"--{name}")
    known, _ = peek.parse_known_args(arguments)
    if getattr(known, name) is not None:
        return getattr(known, name)
    if known.config is None:
        return default
    try:
        settings = yaml.safe_load(Path(known.config).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"--config {known.config}: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"--config {known.config} is not YAML: {error}") from error
    return (settings or {}).get(name, default) if isinstance(settings, dict) else default


def device_defaults() -> dict[str, Any]:
    """Without an accelerator train on the CPU, in float32."""
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        return {}
    return {"use_cpu": True, "bf16": False}


HELP = """usage: delta-rlvr train [--config FILE.yaml] [--OPTION VALUE ...]

Trains a language model with reinforcement learning from verifiable rewards. Without options it trains the bundled tiny
policy on the built-in task: a few minutes on a laptop's CPU.

what to train
  --model NAME        {default_policy} (bundled, the default), smollm2-135m, a folder, or a hub id
  --task NAME         {default_task} (the default), another built-in task, reasoning-gym:NAME, problems.jsonl, or a hub data set
  --template NAME     prompt template for rows of a file or data set
  --method NAME       {methods}
how
  --steps N           optimizer steps                         --seed N            seed of everything
  --learning_rate X   step size                               --num_generations N responses a prompt
  --per_device_train_batch_size N, --gradient_accumulation_steps N, --steps_per_generation N, --num_iterations N
  --max_completion_length N                                   --temperature X     sampling temperature
  --lambda_min X, --lambda_max X, --refinements K, --proxy P, --scope batch|group      DelTA's own settings
  --lora_rank N       train a LoRA adapter                    --overlong_buffer N DAPO's soft overlong penalty
where to
  --output DIR        run folder (default: runs/train)        --resume            go on from its last whole checkpoint
  --save_steps N      steps between checkpoints               --report_to wandb   trackers, as in TRL
  --eval_problems N, --eval_samples N                         held-out score before and after
  --rollouts_every N, --rollout_groups N                      what the token view is made from

Every option of TRL's GRPOConfig works here and in the YAML file; `delta-rlvr train --help-all` lists them.
Several GPUs or processes: torchrun --nproc_per_node N -m delta_rlvr train ...   (or accelerate launch, see docs/training.md)
"""


def print_help(everything: bool) -> None:
    if everything:
        argparse.ArgumentParser.print_help(_parser())
        return
    names = list(METHODS)
    lines = [", ".join(names[i : i + 8]) for i in range(0, len(names), 8)]
    told = (",\n" + " " * 22).join(lines)
    sys.stdout.write(HELP.format(default_policy=DEFAULT_POLICY, default_task=DEFAULT_TASK, methods=told))
