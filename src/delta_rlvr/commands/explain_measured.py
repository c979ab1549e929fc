"""Measured credit for rollouts from anywhere: continuations from the policy that explains them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from delta_rlvr.report.explain import Forward
from delta_rlvr.report.rollout_files import Rollout, RolloutFileError
from delta_rlvr.study.judging import Judge
from delta_rlvr.study.learning.progress import Progress
from delta_rlvr.study.measured.bench import check_verifiable
from delta_rlvr.study.measured.continuations import Response, StackContinuations, checked_reward
from delta_rlvr.study.measured.measure import TOLERANCE, check_budget, measure
from delta_rlvr.study.phases import Phases
from delta_rlvr.study.rollouts import make_collector
from delta_rlvr.tasks import Problem, Task


class Continued:
    """Measures credit by continuations from the policy that explains the rollouts."""

    def __init__(self, task: Task, budget: int, temperature: float):
        check_budget(budget, TOLERANCE)
        check_verifiable(task)
        self.task, self.budget, self.temperature = task, budget, temperature

    def __call__(
        self, policy: Any, tokenizer: Any, rollouts: Sequence[Rollout], passes: Sequence[Forward]
    ) -> list[tuple[Sequence[float], Sequence[float]]]:
        device = policy.get_output_embeddings().weight.device
        like = self.task.problems("train", 1)[0]
        responses = {
            0: [self._response(like, rollout, found) for rollout, found in zip(rollouts, passes, strict=True)]
        }
        phases = Phases(device=device)
        progress = Progress(lambda line: print(line, file=sys.stderr), phases)
        with Judge(tokenizer) as judge, progress, phases("continuations"):
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

    def _response(self, like: Problem, rollout: Rollout, found: Forward) -> Response:
        """The rollout with its problem, which is like the task's own but for prompt and answer."""
        if rollout.answer is None:
            raise RolloutFileError(f"{rollout.where} has no answer: --measured judges continuations by it")
        entry = like.meta.get("entry")
        meta = like.meta if entry is None else {**like.meta, "entry": {**entry, "answer": rollout.answer}}
        problem = replace(like, id=rollout.where, prompt=rollout.prompt, answer=rollout.answer, meta=meta)
        text = rollout.response or "".join(found.texts)
        verdict = checked_reward(self.task.grade(problem, text).score)
        if verdict != rollout.reward:
            raise RolloutFileError(
                f"{rollout.where}: its reward is {rollout.reward:g}, but {self.task.name} gives it {verdict:g} for the answer "
                f"{rollout.answer!r}: measured credit is credit for that verdict, so name the task that gave the rewards"
            )
        ids = found.ids.tolist()
        return Response(
            problem,
            found.prompt_ids,
            ids,
            -np.expm1(np.minimum(found.logps.double().cpu().numpy(), 0.0)),
            verdict,
            max(self.task.max_tokens, len(ids)),
        )
