"""The problems of a run, as TRL takes them: rows of a data set, and the task's judgement as a reward function."""

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

_PART = 1000  # problems that are rows and table at once


class TaskReward(RewardFunction):
    """A task's own judgement, as TRL calls it."""

    def __init__(self, task: Task, problems: Mapping[str, Problem]):
        super().__init__("correct")
        self.task = task
        self.problems = problems

    def judge(self, completions: list[str], lengths: list[int] | None, columns: Columns) -> list[Verdict]:
        return self.task.grade_batch([self.problems[name] for name in columns["id"]], completions)


def training_problems(task: Task, options: TrainOptions, config: DeltaTrainerConfig) -> list[Problem]:
    """The problems asked for; else one for each prompt of the run, or all there are where that is fewer."""
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
    """What judges responses in training: the function that `reward` names, or the task itself."""
    by_id = {problem.id: problem for problem in problems}
    function = custom_function(options.reward)
    if function is None:
        return TaskReward(task, by_id)
    reward = CustomReward(function)
    reward.problems = by_id
    reward.check(problems[0], training=True)
    return reward


def default_prompt(spec: str, problems: Sequence[Problem]) -> str | None:
    """A sentence about the prompt of rows for which nobody chose one: it is part of what is trained, and not seen otherwise."""
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
    """Keep prompts and responses within the model's context. `limit` is the length that was asked for; without one the task's own is
    cut to what fits, and a sentence says so. What cannot fit is refused."""
    assert config.max_completion_length is not None
    prompts = (problem.prompt for problem in problems)
    room = room_needed(model_config, tokenizer, prompts, config.max_completion_length)
    if room is None:
        return None
    if room.left < 1:
        begun = str(max((problem.prompt for problem in problems), key=lambda prompt: len(str(prompt))))[:60]
        raise ValueError(
            f"the longest prompt ({begun!r}...) has {room.prompt} tokens and the model's context {room.context}: nothing is left for a "
            "response; leave long problems out, or take a model with a longer context"
        )
    if limit is not None:
        raise ValueError(
            f"max_completion_length={limit}: the longest prompt has {room.prompt} tokens and the model's context {room.context}, so a "
            f"response may have {room.left} at most"
        )
    cut = (
        f"responses may have {room.left} tokens instead of the task's {config.max_completion_length}: the model's context is "
        f"{room.context} tokens, and the longest prompt takes {room.prompt} (`max_completion_length` sets a shorter limit)"
    )
    config.max_completion_length = room.left
    return cut


def data_set(problems: Sequence[Problem]) -> Dataset:
    """The problems as TRL's data set. Answers stay as text: rows must be of one type. In parts, and with a fingerprint of our own:
    `datasets` makes one by copying everything."""
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
