"""What `delta-rlvr credit-bench` measures, and on what."""

from __future__ import annotations

from dataclasses import dataclass

from delta_evidence.bench import FIPO_STEP, METHODS, Cells, option
from delta_evidence.methods import bench_method, every_method
from delta_rlvr.models import DEFAULT_POLICY
from delta_rlvr.objectives import Method
from delta_rlvr.tasks import BUILT_IN

BASELINE, RIVAL, REFERENCE = "dapo", "surprise", "oracle-only"
"""What updates are compared with; the weight that any other has to beat at finding tokens; perfect credit."""

STABILITY = (
    "surprise",
    "entropy",
    "dapo-ft",
    "delta",
    "delta-topk",
    "delta?proxy=topk_hidden&scope=group&refinements=0",
    "delta?proxy=head&scope=group&refinements=0",
    "delta-context",
    "delta-sharpness",
    "delta-random",
)
"""Methods whose weights are also taken under other rewards."""


@dataclass(frozen=True)
class PlantedSettings(Cells):
    """What is measured, on what. Two runs with the same settings give the same numbers on one machine."""

    policies: tuple[str, ...] = option(
        (DEFAULT_POLICY, "confident"),
        "builtin; confident and sharp, which are made from it by a short seeded continuation (confident?seed=9 for another draw); "
        "a folder; smollm2-135m; a hub id",
    )
    tasks: tuple[str, ...] = option(tuple(BUILT_IN), "built-in tasks, settings after '?'")
    methods: tuple[str, ...] = option((), METHODS)
    stability: tuple[str, ...] = STABILITY
    """Those of them that are also measured under noise, sparse and shuffled rewards, and by length."""
    batches: int = option(4, "rollout batches per policy and task")
    prompts: int = option(32, "prompts per batch")
    group: int = option(8, "responses per prompt")
    seed: int = option(0, "seed of prompts, samples and noise")
    deep_batches: int = 2
    """Batches of each policy and task with the costly measures too: updates against the oracle's, and stability."""
    update_prompts: int = 16
    """Prompts of such a batch that count in its update (a backward pass a method)."""
    agreement_tokens: int = 1000
    """Tokens of the first batch whose full gradients are taken (0: none)."""
    learning_rate: float = option(5e-4, FIPO_STEP)
    temperature: float = option(1.0, "sampling temperature")
    shots: int = option(
        0,
        "worked solutions before each question, for a policy that was never shown the task; a response is then one line",
    )
    rows_at_once: int = option(256, "responses in one forward and backward pass; fewer take less memory")

    def __post_init__(self) -> None:
        self.check(deep_batches=0, update_prompts=1, agreement_tokens=0, shots=0)
        for spec in self.stability:
            bench_method(spec)

    @property
    def compared(self) -> list[Method]:
        """All methods; the baselines are always included."""
        given = list(self.methods) or every_method()
        return [bench_method(spec) for spec in dict.fromkeys([BASELINE, RIVAL, *given, REFERENCE])]

    @property
    def perturbed(self) -> list[Method]:
        """Those that are also measured under other rewards and by length; not FIPO, which would need a step under each."""
        wanted = {RIVAL, *self.stability}
        return [one for one in self.compared if one.name in wanted and not one.surrogate.reweighs]
