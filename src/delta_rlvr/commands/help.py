"""What `--help` shows. Apart from the options themselves, which only TRL knows and takes seconds to import."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from delta_rlvr.objectives.methods import all_methods
from delta_rlvr.rewards.extract import EXTRACTORS
from delta_rlvr.tasks import DEFAULT_POLICY, DEFAULT_TASK
from delta_rlvr.tasks.templates import TEMPLATES

TRAIN = """usage: delta-rlvr train [--config FILE.yaml] [--OPTION VALUE ...]

Trains a language model with reinforcement learning from verifiable rewards. Without options it trains the
bundled tiny policy on the built-in task: a few minutes on a laptop's CPU.

what to train
  --model NAME            {default_policy} (bundled, the default), smollm2-135m, a GGUF file, a folder, or a hub id
  --task NAME             {default_task} (the default), another built-in task, reasoning-gym:NAME,
                          a file (.jsonl, .jsonl.gz, .json, .csv, .parquet), or a hub data set; settings follow
                          as ?key=value&key=value
  --template NAME         prompt template for rows of a file or data set: {templates}
  --template_text TEXT    a prompt of your own, with {{question}} where the question goes; it asks for \\boxed{{}},
                          'Answer: X' or '#### X', or --extract says where the answer stands: {extractors}
  --reward PLACE          a reward function of your own in the place of the task's grader: my.py:function or
                          package.module:function, with TRL's signature (docs/tasks.md)
  --train_problems N      training problems (default: as many as the steps need, or all there are)
  --method NAME           {methods}
                          (`delta-rlvr methods` says what each is). Settings follow the name, as in
                          'delta?lambda_min=0.5&lambda_max=1.5'; a rule of your own is my_rules.py:MyRule
  --show_methods NAMES    methods whose weights the token view shows beside it (with commas)
how
  --steps N               optimizer steps
  --seed N                seed of everything
  --learning_rate X       step size
  --num_generations N     responses a prompt
  --per_device_train_batch_size N, --gradient_accumulation_steps N, --steps_per_generation N, --num_iterations N
                          responses a pass, passes a step, passes a rollout batch, times over a rollout batch
  --max_completion_length N   longest response, in tokens
  --temperature X         sampling temperature
  --lora_rank N           train a LoRA adapter
  --overlong_buffer N     DAPO's soft overlong penalty
where to
  --output DIR            run folder (default: runs/train)
  --resume                go on from its last whole checkpoint
  --save_steps N          steps between checkpoints
  --report_to wandb       trackers, as in TRL
  --eval_problems N, --eval_samples N
                          held-out score before and after
  --rollouts_every N, --rollout_groups N
                          what the token view is made from

Every option of TRL's GRPOConfig works here and in the YAML file; `delta-rlvr train --help-all` lists them.
Several processes: torchrun --nproc_per_node N -m delta_rlvr train ...   (see docs/training.md)
"""

COMPARE = """usage: delta-rlvr compare --methods NAME,NAME[,...] [--seeds N] [--output DIR] [OPTION OF train ...]

The same training run for each method and seed, one after another, then one table: held-out accuracy by method,
the difference to the first method in points, and a test paired by seed. Interrupt it and start it again with the same
options: finished runs are kept, an unfinished one goes on from its last whole checkpoint.

  --methods NAMES         with commas; the first one is what the others are compared with
  --seeds N               how many seeds, from --seed upwards (default: 3; 6 or more to tell two methods apart)
  --output DIR            folder of the runs (default: runs/compare)

Every option of `delta-rlvr train` works here too, but for --method and --resume.
"""


def train_help() -> str:
    return TRAIN.format(
        default_policy=DEFAULT_POLICY,
        default_task=DEFAULT_TASK,
        methods=_listed(all_methods()),
        templates=_listed(TEMPLATES, first=46),
        extractors=_listed(EXTRACTORS, first=58),
    )


def _listed(names: Iterable[str], first: int = 0) -> str:
    """Names with commas, broken into lines under the second column; `first`: how much of the first line is taken."""
    lines = textwrap.fill(", ".join(names), 84, break_on_hyphens=False, initial_indent=" " * first)
    return lines.lstrip().replace("\n", "\n" + " " * 26)
