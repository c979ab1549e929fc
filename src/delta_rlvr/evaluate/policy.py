"""Score a model that is in memory: what training calls before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delta_rlvr.evaluate.local_sampler import LocalSampler
from delta_rlvr.evaluate.questions import Grade, Questions
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.runner import Progress, run_evaluation
from delta_rlvr.evaluate.settings import EvaluationSettings
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.registry import grade_problem


def evaluate_policy(
    model: Any,
    tokenizer: Any,
    problems: Sequence[Problem],
    samples: int = 4,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_tokens: int = 128,
    seed: int = 0,
    *,
    grade: Grade | None = None,
    batch_size: int = 64,
    progress: Progress | None = None,
    name: str = "heldout",
    label: str = "in memory",
) -> EvaluationResult:
    """Sample and grade `problems` with a transformers model and its tokenizer.

    `result.summary()` is what `run.json` keeps; two results of the same problems go to `compare_results`. The same seed gives two
    states of a model the same random numbers, which makes their difference less noisy. Prompts are used as they are: text as text,
    messages through the chat template. `grade` (a task's own) judges; without it the problem's grader does.
    """
    settings = EvaluationSettings(
        samples=samples, max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed
    )
    description = {"title": name, "source": {"problems": "in memory"}}
    questions = Questions(name, tuple(problems), description, grade or grade_problem)
    sampler = LocalSampler(model, tokenizer, settings, batch_size=batch_size)
    return run_evaluation([questions], sampler, settings, model={"name": label}, progress=progress)
