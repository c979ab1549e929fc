"""The options of a run beside TRL's, and the defaults that differ from TRL's. Imports neither torch nor TRL."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from delta_rlvr.bounds import COUNT, HOTTEST, MOST, Bounds, check_bounds
from delta_rlvr.models import DEFAULT_POLICY
from delta_rlvr.tasks import DEFAULT_TASK
from delta_rlvr.tasks.templates import TEMPLATES
from rlvr_graders.extract import EXTRACTORS

# Defaults for the bundled policy. They were tuned with plain DAPO, before any other method was run on it.
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

# Defaults for every policy that differ from TRL's: the paper's sampling, and metrics at every step.
COMMON_DEFAULTS: dict[str, Any] = {
    "temperature": 1.0,
    "beta": 0.0,
    "logging_steps": 1,
    "disable_tqdm": True,
    "report_to": "none",
    "max_completion_length": None,  # the task's own
}

OF_EVAL_EVERY: dict[str, Any] = {
    "eval_strategy": "steps",
    "num_generations_eval": 1,  # TRL's own evaluation is not run and must not limit the batch size
    "metric_for_best_model": "eval_accuracy",
    "greater_is_better": True,
}
"""Settings with which transformers calls for the held-out score during training and keeps the best checkpoint by it."""

OF_THE_TASK = ("template", "template_text", "extract")
"""Options that are settings of the task."""


_BOUNDS = {
    **dict.fromkeys(("steps", "train_problems", "eval_every", "eval_samples", "overlong_buffer", "lora_rank"), COUNT),
    "eval_problems": Bounds(0, MOST),
    "eval_temperature": Bounds(0, HOTTEST),
}


def _option(default: Any, words: str) -> Any:
    return field(default=default, metadata={"help": words})


@dataclass
class TrainOptions:
    """Our options of a run, beside TRL's."""

    model: str = _option(
        DEFAULT_POLICY, "Policy: 'builtin' (bundled, tiny), 'smollm2-135m', a GGUF file, a folder, or a hub id."
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
    template_text: str | None = _option(None, "A custom prompt for rows, with {question} where the question goes.")
    extract: str | None = _option(
        None,
        f"Where the answer stands in responses to --template_text: {', '.join(EXTRACTORS)} (default: where the prompt asks for it).",
    )
    reward: str | None = _option(
        None,
        "Reward in place of the task's grader: math-verify, or a custom function as my.py:function or package.module:function "
        "(TRL's signature).",
    )
    steps: int | None = _option(None, "Optimizer steps (the same as --max_steps).")
    output: str | None = _option(None, "Run folder (the same as --output_dir).")
    resume: bool = _option(False, "Resume from the last complete checkpoint in the run folder.")
    accept_changed: bool = _option(
        False,
        "With --resume: resume with another reward, or an edited file of the rule, the reward or the problems; run.json records it.",
    )
    train_problems: int | None = _option(
        None, "Number of training problems (default: one for each prompt of the run, or all there are)."
    )
    eval_problems: int = _option(200, "Held-out problems to score before and after training (0: none).")
    eval_every: int | None = _option(
        None, "Also take the held-out score every N steps, and save a checkpoint at the best score so far."
    )
    eval_samples: int = _option(4, "Samples per held-out problem.")
    eval_temperature: float | None = _option(
        None, "Temperature of the held-out score (default: that of the training; 0: greedy, one sample each)."
    )
    eval_greedy: bool = _option(False, "Also score held-out problems greedily, one response each.")
    overlong_buffer: int | None = _option(
        None, "DAPO's soft overlong penalty over the last N tokens before the limit (default: off)."
    )
    overlong_factor: float = _option(1.0, "Largest overlong penalty.")
    lora_rank: int | None = _option(None, "Train a LoRA adapter of this rank instead of all weights.")
    report: bool = _option(True, "Write report.html at the end.")

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)
        if self.eval_every and not self.eval_problems:
            raise ValueError(f"eval_every={self.eval_every} needs held-out problems: give `eval_problems`, 1 or more")
        if not math.isfinite(self.overlong_factor):
            raise ValueError(f"overlong_factor={self.overlong_factor}: give a finite number")


_TRACKERS = ("wandb", "tensorboard", "trackio", "mlflow", "comet_ml")


def check_trackers(report_to: str | list[str] | None) -> None:
    """Refuse a tracker that is not installed, before anything is loaded."""
    for name in [report_to] if isinstance(report_to, str) else report_to or []:
        alone = name == "tensorboard" and find_spec("tensorboardX") is not None
        if name in _TRACKERS and find_spec(name) is None and not alone:
            raise ValueError(f"report_to={name!r}: it is not installed; pip install {name.replace('_', '-')}")
