"""The problems of a run in TRL's form: rows of a data set, and the task's grader as a reward function."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow
from datasets import Dataset

from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.bounds import MOST
from delta_rlvr.models.prompts import room_needed
from delta_rlvr.specs import shown_spec, split_spec
from delta_rlvr.tasks import Problem, Task
from delta_rlvr.tasks.custom_reward import CustomReward, custom_function
from delta_rlvr.tasks.problem_set import ProblemSet
from delta_rlvr.tasks.templates import MATH
from delta_rlvr.training.options import TrainOptions
from delta_rlvr.words import counted
from rlvr_graders import RewardFunction, Verdict
from rlvr_graders.functions import Columns

_PART = 1000  # problems converted at a time: rows as Python objects need much memory


class TaskReward(RewardFunction):
    """The task's grader as a reward function of TRL."""

    def __init__(self, task: Task, problems: Mapping[str, Problem]):
        super().__init__("correct")
        self.task = task
        self.problems = problems

    def judge(self, completions: list[str], lengths: list[int] | None, columns: Columns) -> list[Verdict]:
        return self.task.grade_batch([self.problems[name] for name in columns["id"]], completions)


def training_problems(task: Task, options: TrainOptions, config: DeltaTrainerConfig) -> list[Problem]:
    """Return the training problems: the requested number; by default one for each prompt of the run, or all there are if fewer."""
    count = options.train_problems
    if count is None and config.max_steps > 0:
        count = min(math.ceil(config.max_steps / config.updates_per_batch) * config.prompts_per_batch, MOST)
        if isinstance(task, ProblemSet):
            count = min(count, len(task.train))
    problems = task.problems("train", count, config.seed)
    if len(problems) < config.prompts_per_batch:
        smaller = " ".join(f"{name}={size}" for name, size in config.smaller_batch(len(problems)).items())
        kept = len(task.heldout) if isinstance(task, ProblemSet) else 0
        held_out = f" ({kept} more held out)" if kept else ""
        more = f"{'train_problems=' if options.train_problems else 'a task with '}{config.prompts_per_batch}"
        raise ValueError(
            f"{shown_spec(options.task)}: {counted(len(problems), 'training problem')}{held_out} cannot fill a batch of "
            f"{config.prompts_per_batch} prompts (steps_per_generation x per_device_train_batch_size / num_generations): "
            f"give {f'{smaller}, or ' if smaller else ''}{more} or more"
        )
    return problems


def custom_or_task_reward(options: TrainOptions, task: Task, problems: Sequence[Problem]) -> TaskReward | CustomReward:
    """Return the reward of training: the function that `reward` names, or the task's grader."""
    by_id = {problem.id: problem for problem in problems}
    function = custom_function(options.reward)
    if function is None:
        return TaskReward(task, by_id)
    reward = CustomReward(function)
    reward.problems = by_id
    reward.check(problems[0], training=True)
    return reward


def default_prompt(spec: str, problems: Sequence[Problem]) -> str | None:
    """Return a sentence about the default template, if rows are used and no prompt was chosen. It shows nowhere else."""
    _, settings = split_spec(spec)
    question = problems[0].meta.get("question")
    if settings.keys() & {"template", "template_text", "shots"} or not isinstance(question, str):
        return None
    shown = MATH.fill("{question}").replace("\n", "\\n")
    return (
        f"prompt: the template {MATH.name!r}, as none was chosen: {shown} (`template` or `template_text` gives another)"
    )


def fit_context(
    model_config: Any, tokenizer: Any, problems: Sequence[Problem], config: DeltaTrainerConfig, limit: int | None
) -> str | None:
    """Check that prompts and responses fit the model's context. `limit` is the requested response length. Without one, the task's
    own length is cut to what fits, and a sentence about it is returned."""
    assert config.max_completion_length is not None
    prompts = (problem.prompt for problem in problems)
    room = room_needed(model_config, tokenizer, prompts, config.max_completion_length)
    if room is None:
        return None
    if room.left < 1:
        begun = str(max((problem.prompt for problem in problems), key=lambda prompt: len(str(prompt))))[:60]
        raise ValueError(
            f"the longest prompt ({begun!r}...) has {room.prompt} tokens and the model's context {room.context}: nothing is left for a "
            "response; leave out long problems, or use a model with a longer context"
        )
    if limit is not None:
        raise ValueError(
            f"max_completion_length={limit}: the longest prompt has {room.prompt} tokens and the model's context {room.context}, so a "
            f"response may have at most {room.left}"
        )
    cut = (
        f"responses may have {room.left} tokens instead of the task's {config.max_completion_length}: the model's context is "
        f"{room.context} tokens, and the longest prompt takes {room.prompt} (`max_completion_length` sets a shorter limit)"
    )
    config.max_completion_length = room.left
    return cut


def data_set(problems: Sequence[Problem]) -> Dataset:
    """Return the problems as a data set for TRL. Answers become text, since a column has one type. The fingerprint is computed here:
    `datasets` would copy everything for it."""
    parts = (problems[start : start + _PART] for start in range(0, len(problems), _PART))
    table = pyarrow.concat_tables(
        (pyarrow.Table.from_pylist([_row(problem) for problem in part]) for part in parts), promote_options="default"
    )
    named = hashlib.sha256("\0".join(problem.id for problem in problems).encode())
    return Dataset(table, fingerprint=named.hexdigest()[:16])


def _row(problem: Problem) -> dict[str, Any]:
    prompt = problem.prompt if isinstance(problem.prompt, str) else list(map(dict, problem.prompt))
    answer = problem.answer if isinstance(problem.answer, str) else json.dumps(problem.answer, default=str)
    return {"prompt": prompt, "id": problem.id, "answer": answer}
