"""Rollouts of a model before training, for the scripts beside this file."""

from __future__ import annotations

from torch import Tensor

from delta_evidence.judging import Judge
from delta_evidence.rollouts import Batch, Rollouts, make_collector
from delta_rlvr.models import load_policy
from delta_rlvr.tasks import get_task

TASK = "reasoning-gym:chain_sum?min_terms=3&max_terms=3&min_digits=1&max_digits=1&shots=4&working=true&max_tokens=64"
"""Running totals of short sums: the task of smollm2-chain-sum-controls-200.yaml."""
GROUP = 8
"""Responses to a prompt, at T = 1."""


def untrained_rollouts(
    model_name: str,
    task_name: str,
    *,
    seed: int,
    prompts: int,
    max_tokens: int | None,
    at_once: int,
    device: str = "cpu",
    pass_rows: int,
) -> tuple[list[Rollouts], Tensor]:
    """Batches of `at_once` prompts (of `prompts` in all), and the model's LM head. `max_tokens`: None takes the task's; `pass_rows`:
    responses of one old-log-prob pass."""
    model, tokenizer = load_policy(model_name)
    task = get_task(task_name)
    problems = task.problems("train", prompts, seed)
    with Judge(tokenizer, 1) as judge:
        collector = make_collector(
            model, tokenizer, runs=1, one_line=task.one_line, judge=judge, device=device, rows_at_once=pass_rows
        )
        made = []
        for number, first in enumerate(range(0, prompts, at_once)):
            batch = Batch(task, problems[first : first + at_once], seed, max_tokens or task.max_tokens)
            made += collector.collect([batch], group=GROUP, number=number, ragged=task.one_line)
        return made, collector.policy.head[0]
