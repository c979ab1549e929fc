"""Where problems come from: built in, files, the hub, generators; and the policy that is bundled."""

from delta_rlvr.tasks.models import DEFAULT_POLICY, load_policy, resolve_model
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.registry import BUILT_IN, DEFAULT_TASK, get_task
from delta_rlvr.tasks.sources.rows import load_problems
from delta_rlvr.tasks.task import Task, decisive_tokens, flag_tokens, token_spans

__all__ = [
    "BUILT_IN",
    "DEFAULT_POLICY",
    "DEFAULT_TASK",
    "Problem",
    "Task",
    "decisive_tokens",
    "flag_tokens",
    "get_task",
    "load_policy",
    "load_problems",
    "resolve_model",
    "token_spans",
]
