"""What `delta-rlvr measured-credit` measures, and on what."""

from __future__ import annotations

from dataclasses import dataclass

from delta_evidence.bench import FIPO_STEP, METHODS, Cells, option
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

    policies: tuple[str, ...] = option(
        (DEFAULT_POLICY,), "builtin, smollm2-135m, a folder or a hub id; a Llama, Qwen2 or Qwen3 model"
    )
    tasks: tuple[str, ...] = option(
        (DEFAULT_TASK,),
        "any tasks with verifiable rewards; worked solutions before a question are a setting of the task, as in 'TASK?shots=4'",
    )
    methods: tuple[str, ...] = option((), METHODS)
    batches: int = option(4, "rollout batches per policy and task")
    prompts: int = option(16, "prompts per batch")
    group: int = option(8, "responses per prompt")
    responses: int = option(12, "responses per batch whose tokens are measured")
    budget: int = option(1024, "continuations per measured response, on average")
    tolerance: float = option(
        TOLERANCE, "neighbouring tokens share one value where the sum of 1 - p between them is at most this"
    )
    update_batches: int = option(16, "batches whose updates are compared with the gradient; 0 for none")
    gradient_rollouts: int = option(512, "plain rollouts per prompt that the gradient is estimated from")
    max_tokens: int | None = option(None, "longest response (default: the task's own limit)")
    seed: int = option(0, "seed of prompts, samples and noise")
    learning_rate: float = option(5e-4, FIPO_STEP)
    temperature: float = option(1.0, "sampling temperature")
    dtype: str = option("float32", "precision of the matrix products", choices=("float32", "bfloat16"))
    rows_at_once: int = option(1024, "continuations sampled together")
    pass_rows: int = option(256, "responses of one forward and backward pass")
    served: str | None = None
    """The model's name on the server that continuations come from; None where they come from the policy in this process."""

    def __post_init__(self) -> None:
        self.check(responses=2, update_batches=0, gradient_rollouts=8, pass_rows=1, max_tokens=1)
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
