"""Measured credit for rollouts from anywhere: continuations from the policy that explains them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from delta_evidence.judging import Asked, Judge
from delta_evidence.measured.bench import check_verifiable
from delta_evidence.measured.continuations import Response, StackContinuations, checked_reward
from delta_evidence.measured.measure import TOLERANCE, check_budget, measure
from delta_evidence.phases import Phases, ProgressLines
from delta_evidence.rollouts import make_collector
from delta_rlvr.report.explained import Forward
from delta_rlvr.report.rollout_files import Rollout, RolloutFileError
from delta_rlvr.tasks import Problem, Task


class Continued:
    """Measures credit by continuations from the policy that explains the rollouts."""

    def __init__(self, task: Task, budget: int, temperature: float):
        check_budget(budget, TOLERANCE, "measured")
        check_verifiable(task)
        self.task, self.budget, self.temperature = task, budget, temperature

    def __call__(
        self, policy: Any, tokenizer: Any, rollouts: Sequence[Rollout], passes: Sequence[Forward]
    ) -> list[tuple[Sequence[float], Sequence[float]]]:
        device = policy.get_output_embeddings().weight.device
        phases = Phases(device=device, tell=lambda line: print(line, file=sys.stderr))
        progress = ProgressLines(phases)
        with Judge(tokenizer) as judge, progress, phases("continuations"):
            responses = {0: self._responses(judge, rollouts, passes)}
            collector = make_collector(
                policy, tokenizer, runs=1, one_line=self.task.one_line, judge=judge, device=device
            )
            credits = measure(
                responses,
                StackContinuations(collector, self.task, responses, seed=0, temperature=self.temperature),
                budget=self.budget,
                tolerance=TOLERANCE,
                planned=lambda chunks: progress.begin(f"{len(rollouts)} responses", chunks),
                done=progress.advance,
            )[0]
        return [(one.credit.tolist(), one.error.tolist()) for one in credits]

    def _responses(self, judge: Judge, rollouts: Sequence[Rollout], passes: Sequence[Forward]) -> list[Response]:
        """The rollouts with their problems, judged as their continuations will be."""
        like = self.task.problems("train", 1)[0]
        problems = [_problem(like, rollout) for rollout in rollouts]
        ids = [reading.ids.tolist() for reading in passes]
        (judged,) = judge([Asked(self.task, problems, 1, ids)])
        for rollout, verdict in zip(rollouts, map(checked_reward, judged.correct), strict=True):
            if verdict != rollout.reward:
                raise RolloutFileError(
                    f"{rollout.where}: its reward is {rollout.reward:g}, but {self.task.name} gives it {verdict:g} for the answer "
                    f"{rollout.answer!r}: measured credit is credit for that verdict, so name the task that gave the rewards"
                )
        return [
            Response(
                problem,
                reading.prompt_ids,
                tokens,
                -np.expm1(np.minimum(reading.logps.double().cpu().numpy(), 0.0)),
                rollout.reward,
                max(self.task.max_tokens, len(tokens)),
            )
            for problem, rollout, reading, tokens in zip(problems, rollouts, passes, ids, strict=True)
        ]


def _problem(like: Problem, rollout: Rollout) -> Problem:
    """A problem like the task's own, but for prompt and answer."""
    if rollout.answer is None:
        raise RolloutFileError(f"{rollout.where} has no answer: --measured judges continuations by it")
    entry = like.meta.get("entry")  # what a generator's own scoring reads
    meta = like.meta if entry is None else {**like.meta, "entry": {**entry, "answer": rollout.answer}}
    return replace(like, id=rollout.where, prompt=rollout.prompt, answer=rollout.answer, meta=meta)
