"""How a benchmark's question becomes a prompt: the templates of `tasks`, and two that only benchmarks need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.templates import Template

Style = Literal["chat", "plain"]

DESCRIBED_FUNCTION = Template(
    "described_function",
    "Write the Python function that this text asks for; the assertion shows its name and its arguments.\n\n"
    "{question}\n\n"
    "Think step by step, and give the whole function with its imports in one ```python code block at the end.",
    grader="code",
    extract="code_block",
)
"""MBPP+. Ours; the paper gives none."""
STARTED_CLASS = Template(
    "started_class",
    "{question}\n\nThink step by step, and give the whole class, completed, with its imports in one ```python code "
    "block at the end.",
    grader="code",
    extract="code_block",
)
"""Those problems of LiveCodeBench that begin a `class Solution`: the question holds the beginning. Ours, too."""


def with_style(problems: Sequence[Problem], style: Style) -> tuple[Problem, ...]:
    """The problems as plain text, or as one message of a user; problems that are chats already stay."""
    if style == "plain":
        return tuple(problems)
    return tuple(
        replace(problem, prompt=[{"role": "user", "content": problem.prompt}])
        if isinstance(problem.prompt, str)
        else problem
        for problem in problems
    )
