"""The problems of a run, as TRL takes them: rows of a data set, and the task's judgement as a reward function."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.commands.options import TrainOptions
from delta_rlvr.rewards import RewardFunction, Verdict
from delta_rlvr.tasks import Problem, Task
from delta_rlvr.tasks.problem_set import ProblemSet


class TaskReward(RewardFunction):
    """A task's own judgement, as TRL calls it."""

    def __init__(self, task: Task, problems: Mapping[str, Problem]):
        super().__init__("correct")
        self.task = task
        self.problems = problems

    def judge(
        self, completions: list[str], lengths: list[int] | None, columns: Mapping[str, Any]
    ) -> list[Verdict]:
        return self.task.grade_batch([self.problems[name] for name in columns["id"]], completions)


def training_problems(task: Task, options: TrainOptions, config: DeltaTrainerConfig) -> list[Problem]:
    """The problems asked for; else one for each prompt of the run, or all there are where that is fewer."""
    count = options.train_problems
    if count is None and config.max_steps > 0:
        count = math.ceil(config.max_steps / config.updates_per_batch) * config.prompts_per_batch
        if isinstance(task, ProblemSet):
            count = min(count, len(task.train))
    problems = task.problems("train", count, config.seed)
    if len(problems) < config.prompts_per_batch:
        raise ValueError(
            f"task {options.task!r}: {len(problems)} training problems are too few for a batch of "
            f"{config.prompts_per_batch} prompts (steps_per_generation x responses a pass / num_generations): "
            "give more, or make the batch smaller"
        )
    return problems


def row(problem: Problem) -> dict[str, Any]:
    """A problem as a row of TRL's data set. The answer stays as text: rows must be of one type."""
    prompt = (
        problem.prompt if isinstance(problem.prompt, str) else [dict(message) for message in problem.prompt]
    )
    answer = problem.answer if isinstance(problem.answer, str) else json.dumps(problem.answer, default=str)
    return {"prompt": prompt, "id": problem.id, "answer": answer}
