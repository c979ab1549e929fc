"""Tasks: verifiable problems and their graders. Problems are built in, or come from files, the hub or generators."""

from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.registry import BUILT_IN, DEFAULT_TASK, get_task
from delta_rlvr.tasks.sources.rows import load_problems
from delta_rlvr.tasks.task import Task, decisive_tokens, flag_tokens, token_spans

__all__ = [
    "BUILT_IN",
    "DEFAULT_TASK",
    "Problem",
    "Task",
    "decisive_tokens",
    "flag_tokens",
    "get_task",
    "load_problems",
    "token_spans",
]
