"""The help texts of train, doctor and compare. They are written out here because importing TRL's options takes seconds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from delta_rlvr.models import DEFAULT_POLICY
from delta_rlvr.tasks import DEFAULT_TASK
from delta_rlvr.tasks.templates import TEMPLATES
from rlvr_graders.extract import EXTRACTORS

TRAIN = """usage: delta-rlvr train [--config FILE.yaml] [--OPTION VALUE ...]

Trains a language model with reinforcement learning from verifiable rewards.
Without options it trains the bundled tiny policy on the built-in task: a few
minutes on a laptop's CPU.

common options (in brackets: the default; after a semicolon: the default for the
bundled policy)
  --model NAME        {default_policy} (bundled, the default), smollm2-135m, a folder,
                      a GGUF file, or a hub id
  --task NAME         {default_task} (the default), another built-in task,
                      reasoning-gym:NAME, a file (.jsonl, .jsonl.gz, .json,
                      .csv, .parquet), or a hub data set; settings follow as
                      ?key=value&key=value
  --method NAME       delta (the default), dapo, grpo, ...: `delta-rlvr methods`
                      lists them. Settings follow the name:
                      'delta?lambda_min=0.5&lambda_max=1.5'. Your own rule is
                      my_rules.py:MyRule
  --reward PLACE      in place of the task's grader: math-verify, or a custom
                      reward function as my.py:function or
                      package.module:function, with TRL's signature
                      (docs/tasks.md)
  --steps N           optimizer steps (give it, or --num_train_epochs; 80)
  --learning_rate X   step size (1e-06; 0.0005)
  --num_generations N
                      responses per prompt (8; 8)
  --per_device_train_batch_size N
                      responses per pass (8; 128)
  --gradient_accumulation_steps N
                      passes per step (1; 1)
  --max_completion_length N
                      longest response, in tokens (the task's own, or what the
                      context leaves)
  --seed N            random seed (42)
  --output DIR        run folder (runs/train, and for the next runs
                      runs/train-2, runs/train-3, ...)
  --resume            resume from the last complete checkpoint in the folder;
                      options that are not given keep their values
  --report_to wandb   trackers, as in TRL (none)
data
  --template NAME     prompt template for rows of a file or data set:
                      {templates}
  --template_text TEXT
                      a custom prompt, with {{question}} where the question goes.
                      It asks for \\boxed{{}}, 'Answer: X' or '#### X'; otherwise
                      --extract says where the answer stands:
                      {extractors}
  --train_problems N  training problems (as many as the steps need, or all)
how to train
  --steps_per_generation N
                      passes per rollout batch (as many as a step has; 2)
  --num_iterations N  epochs over each rollout batch (1)
  --temperature X     sampling temperature (1)
  --lora_rank N       train a LoRA adapter of this rank (all weights)
  --overlong_buffer N
                      DAPO's soft overlong penalty over the last N tokens (none)
scores, checkpoints and page
  --eval_problems N, --eval_samples N
                      held-out score before and after: problems (200), samples
                      per problem (4)
  --eval_every N      also score every N steps, and save a checkpoint at the
                      best score so far (none)
  --eval_temperature X, --eval_greedy
                      sampling temperature of the score (that of the training;
                      0: greedy); score greedily as well
  --save_steps N      steps between checkpoints (500; 20)
  --rollouts_every N, --rollout_groups N
                      rollouts kept for the token view: steps between dumps
                      (10), prompts per dump (4)
  --show_methods NAMES
                      further methods whose weights the token view shows,
                      separated by commas

Every option of TRL's GRPOConfig works here and in the YAML file;
`delta-rlvr train --help-all` lists them.
Several processes (docs/training.md):
  torchrun --nproc_per_node N -m delta_rlvr train ...
"""

DOCTOR = """usage: delta-rlvr doctor [CONFIG] [--no-steps] [--processes N]
                         [OPTION OF train ...]

Checks a run before it starts: do the installed versions go together, are model
and data there, do prompts and responses fit the context, do weights, optimizer,
logits and stored hidden states fit the memory and checkpoints the disk? Then it
takes two real steps in a folder that is deleted afterwards, and estimates how
long the run will take. Nothing is written elsewhere.

  CONFIG         a settings file of train (YAML), or of verl: a config with a
                 `delta` block, a script with its launch line, or its
                 overrides, one per line, as from
                 DRY_RUN=1 bash recipes/verl/qwen3_8b_base.sh delta > launch.txt
                 No steps are taken for verl
  --no-steps     only check; take no steps
  --processes N  the run will use N processes that shard the model (FSDP,
                 ZeRO-3): sizes are per process, and no steps are taken

Every option of `delta-rlvr train` works here too, except --resume. It ends with
"ready" (exit code 0) or with a numbered list of what to change (exit code 2; 1
where the steps failed).
"""

COMPARE = """usage: delta-rlvr compare --methods NAME,NAME[,...] [--seeds N]
                          [--learning-rates X,Y,...] [OPTION OF train ...]

Makes the same training run for each method and seed, and ends with one table:
the held-out score of each method, its difference to the first method in points,
and a test paired by seed. You can interrupt it and start it again with the same
options: finished runs are kept, and an unfinished one is resumed from its last
complete checkpoint.

  --methods NAMES    methods, separated by commas; the others are compared with
                     the first
  --seeds N          number of seeds, counted up from --seed (default: 3; 6 or
                     more to tell two methods apart)
  --learning-rates RATES
                     such as 5e-6,1e-5,2e-5: every method first runs at each
                     rate, and is then compared at its best one
  --tuning-seeds N   seeds for that choice, counted up from --seed + 1000
                     (default: 1)
  --pass-at K        the k of pass@k (default: --eval_samples)
  --output DIR       folder of the runs (default: runs/compare)
  --parallel N       runs at a time, each a process with its own GPU, or sharing
                     one (default: as many as there are GPUs)
  --list             print the command of each run, for a job array, and the
                     command that compares them
  --only K           make only run K of that list
  --without-signal   continue although the rewards of a run never differ, which
                     otherwise stops the comparison

Methods are compared by the sampled score; the greedy score, pass@k and entropy
are reported too (--eval_greedy false leaves out the greedy score). All runs
start from the same weights, which are scored once.

Every option of `delta-rlvr train` works here too, except --method and --resume.
"""


def train_help() -> str:
    return TRAIN.format(
        default_policy=DEFAULT_POLICY,
        default_task=DEFAULT_TASK,
        templates=_listed(TEMPLATES),
        extractors=_listed(EXTRACTORS),
    )


def _listed(names: Iterable[str]) -> str:
    """Return the names, separated by commas and wrapped under the second column."""
    indent = " " * 22
    lines = textwrap.fill(", ".join(names), 80, break_on_hyphens=False, initial_indent=indent, subsequent_indent=indent)
    return lines.lstrip()
