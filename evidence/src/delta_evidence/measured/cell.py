"""One policy on one task: its rollouts, every method's weights on them, and how these agree with measured credit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from delta_evidence.bench import PlannedBatch
from delta_evidence.judging import knows_decisive
from delta_evidence.measured.agreement import LABELS, Labels, planted_agreement
from delta_evidence.measured.continuations import Response
from delta_evidence.measured.estimate import MeasuredCredit
from delta_evidence.measured.settings import MeasuredSettings
from delta_evidence.planted.conditions import CLEAN
from delta_evidence.planted.updates import method_weights
from delta_evidence.rollouts import Batch, Collector, Rollouts
from delta_evidence.weighing import BatchWeigher
from delta_rlvr.models.token_texts import token_texts
from delta_rlvr.objectives import mixed_share
from delta_rlvr.tasks import Task


class Cell:
    """A policy that can be sampled from, and a task."""

    def __init__(self, settings: MeasuredSettings, policy: str, task_name: str, task: Task, collector: Collector):
        self.settings, self.policy, self.task_name, self.task = settings, policy, task_name, task
        self.collector = collector
        self.continuing = replace(collector, sampler=collector.sampler.another())
        """For continuations: batches of another size must not cost rollouts their memory."""
        self.decisive = knows_decisive(task)
        self.methods = settings.compared(self.decisive)
        self.limit = settings.max_tokens or task.max_tokens
        """Longest response."""

    def __str__(self) -> str:
        return f"{self.policy}, {self.task_name}"

    def batch(self, stream: int = 0, start: int = 0, *, decisive: bool = False) -> Batch:
        """Prompts from number `start` on, with the draws of a stream of their own."""
        settings = self.settings
        problems = self.task.problems("train", settings.prompts, seed=settings.seed, start=start)
        return Batch(self.task, problems, settings.seed + stream, self.limit, decisive=decisive)

    def collect(self, number: int, stream: int = 0, start: int = 0) -> Rollouts:
        """A rollout batch, with its decisive tokens where the task knows them."""
        settings = self.settings
        return self.collector.collect(
            [self.batch(stream, start, decisive=self.decisive)],
            group=settings.group,
            number=number,
            temperature=settings.temperature,
            ragged=True,
        )[0]

    def weights(self, rollouts: Rollouts, number: int) -> dict[str, Float[Tensor, "batch time"]]:
        """Every method's; all one where no response has an advantage."""
        if not bool((rollouts.advantages != 0).any()):
            return {method.name: torch.ones_like(rollouts.logps) for method in self.methods}
        policy, settings = self.collector.policy, self.settings
        return method_weights(
            policy,
            BatchWeigher(rollouts, policy.head[0].detach(), number=number),
            self.methods,
            learning_rate=settings.learning_rate,
            rows_at_once=settings.pass_rows,
        )

    def agreement(
        self, unit: PlannedBatch, rollouts: Rollouts, rows: Sequence[int], credits: Sequence[MeasuredCredit]
    ) -> dict[str, Any]:
        """Every method's weights on a rollout batch compared with the credit of its measured responses, which stand in `rows`."""
        facts: dict[str, Any] = {
            "accuracy": rollouts.correct.mean().item(),
            "mixed_groups": mixed_share(rollouts.correct, self.settings.group).item(),
        }
        records: list[dict[str, Any]] = []
        if rows:
            with self.collector.phases("weights"):
                weights = self.weights(rollouts, unit.number)
            labels = Labels(rollouts, rows, credits)
            facts |= labels.facts()
            if self.decisive:
                right = rollouts.correct[list(rows)].tolist()
                facts |= planted_agreement([_decisive(rollouts, row) for row in rows], right, credits)
            agreements = {name: labels.agreement(rho) for name, rho in weights.items()}
            records = [
                {"method": name, "condition": CLEAN, **measures}
                for name, measures in ({LABELS: labels.reliability()} | agreements).items()
            ]
        return {**asdict(unit), "facts": facts, "records": records}

    def measured_tokens(
        self, rollouts: Rollouts, rows: Sequence[int], responses: Sequence[Response], credits: Sequence[MeasuredCredit]
    ) -> list[dict[str, Any]]:
        """The measured responses, token by token."""
        return [
            {
                "row": row,
                "group": int(rollouts.groups[row]),
                "prompt": str(rollouts.problems[row].prompt),
                "response": rollouts.texts[row],
                "reward": response.reward,
                "tokens": token_texts(self.collector.tokenizer, response.tokens),
                "entropy": rollouts.entropy[row][rollouts.mask[row]].tolist(),
                **({"decisive": _decisive(rollouts, row).astype(int).tolist()} if self.decisive else {}),
                **credit.as_lists(),
            }
            for row, response, credit in zip(rows, responses, credits, strict=True)
        ]


def _decisive(rollouts: Rollouts, row: int) -> Any:
    """A flag per valid token of a response."""
    assert rollouts.decisive is not None
    return rollouts.decisive[row][rollouts.mask[row]].cpu().numpy()
