"""What `delta-rlvr measured-credit` measures, and on what."""

from __future__ import annotations

from dataclasses import dataclass

from delta_evidence.bench import Cells
from delta_evidence.measured.measure import TOLERANCE, check_budget
from delta_evidence.methods import bench_method, every_method
from delta_evidence.planted.settings import BASELINE, RIVAL
from delta_rlvr.models import DEFAULT_POLICY
from delta_rlvr.objectives import Method
from delta_rlvr.tasks import DEFAULT_TASK

PLAIN = (RIVAL, "entropy")
"""1 - p and entropy as weights: what any credit has to beat."""


@dataclass(frozen=True)
class MeasuredSettings(Cells):
    """What is measured, on what. Two runs with the same settings give the same numbers on one machine."""

    policies: tuple[str, ...] = (DEFAULT_POLICY,)
    """Whatever `load_policy` takes and can be stacked."""
    tasks: tuple[str, ...] = (DEFAULT_TASK,)
    """Any tasks with verifiable rewards."""
    methods: tuple[str, ...] = ()
    """None given: every one there is that can be given what it needs."""
    batches: int = 4
    """Independent rollout batches of each policy and task whose tokens are measured."""
    prompts: int = 16
    """Prompts a batch."""
    group: int = 8
    """Responses a prompt (G)."""
    responses: int = 12
    """Responses of a batch whose tokens are measured: of groups with both outcomes, as many right as wrong ones where there are."""
    budget: int = 1024
    """Continuations of a measured response, on average."""
    tolerance: float = TOLERANCE
    """Tokens between which the sum of 1 - p is at most this share their value."""
    update_batches: int = 16
    """Rollout batches of one set of prompts whose updates are compared with the gradient (0: none)."""
    gradient_rollouts: int = 512
    """Plain rollouts of each of these prompts behind the gradient of the expected reward."""
    max_tokens: int | None = None
    """Longest response; None for the task's own limit."""
    seed: int = 0
    """Of prompts, rollouts and continuations."""
    learning_rate: float = 5e-4
    """Of the one DAPO step after which FIPO's weights are taken."""
    temperature: float = 1.0
    """Of sampling."""
    dtype: str = "float32"
    """Of the matrix products."""
    rows_at_once: int = 1024
    """Continuations that are sampled together."""
    pass_rows: int = 256
    """Responses in one forward and backward pass."""
    served: str | None = None
    """The model's name on the server that continuations come from; None where they come from the policy in this process."""

    def __post_init__(self) -> None:
        self.check(responses=2, update_batches=0, gradient_rollouts=8, pass_rows=1)
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens={self.max_tokens}: give at least 1")
        if self.update_batches == 1:
            raise ValueError("update_batches=1: give 0, or at least 2, which tell bias from variance")
        check_budget(self.budget, self.tolerance)

    def compared(self, decisive: bool) -> list[Method]:
        """All methods, the baselines included; `decisive`: whether the task can tell its decisive tokens."""
        named = [bench_method(spec) for spec in self.methods]
        if not decisive and (needing := [one.name for one in named if "decisive" in one.rho.needs]):
            raise ValueError(f"{needing[0]} needs a task that knows its decisive tokens: leave it out")
        every = named or [bench_method(spec) for spec in every_method()]
        known = [one for one in every if decisive or "decisive" not in one.rho.needs]
        always = [bench_method(spec) for spec in (BASELINE, *PLAIN)]
        return list({one.name: one for one in (*always, *known)}.values())
