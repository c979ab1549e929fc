"""What a run of a study is, and what all runs of a stack share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints


@dataclass(frozen=True)
class TrainingSettings:
    """What all runs of a stack share. The defaults are those of `delta-rlvr train` with the bundled policy."""

    steps: int = 80
    """Optimizer steps."""
    prompts: int = 32
    """Prompts per rollout batch."""
    group: int = 8
    """Responses per prompt (G)."""
    updates: int = 2
    """Optimizer steps per rollout batch."""
    split: Literal["responses", "prompts"] = "responses"
    """What the updates divide between them: responses in random order, as TRL does, or whole prompts, as verl does (long prompts are
    then read once for all of their responses)."""
    learning_rate: float = 5e-4
    """AdamW's, constant; no weight decay."""
    max_grad_norm: float = 1.0
    """Gradient clipping, run by run."""
    temperature: float = 1.0
    """Of sampling, and of the policy that is trained."""
    max_tokens: int | None = None
    """Longest response; None for the task's own limit."""
    continuations: int = 128
    """Continuations of a response, on average, for arms whose weights need measured credit; no others make any."""

    def __post_init__(self) -> None:
        for name in ("steps", "prompts", "updates", "max_tokens"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: give at least 1")
        if self.group < 2:
            raise ValueError(f"group={self.group}: a group's advantage needs at least 2 responses")
        if self.steps % self.updates:
            raise ValueError(f"steps={self.steps}: give a multiple of updates={self.updates}")
        if self.split not in get_args(get_type_hints(TrainingSettings)["split"]):
            raise ValueError(f"split={self.split!r}: choose responses or prompts")
        divided = self.prompts * (self.group if self.split == "responses" else 1)
        if divided % self.updates:
            raise ValueError(f"updates={self.updates}: {divided} {self.split} do not split evenly")
        if not (self.learning_rate > 0 and self.max_grad_norm > 0 and self.temperature > 0):
            raise ValueError("learning_rate, max_grad_norm and temperature must be positive")

    @property
    def batches(self) -> int:
        """Rollout batches of a run."""
        return self.steps // self.updates


@dataclass(frozen=True)
class Run:
    """One policy's training: what is trained on, how tokens are weighed, and the seed."""

    task: str
    arm: str
    seed: int
    reward_noise: float = 0.0
    """Share of the verdicts that training sees flipped."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: give at least 0")
        if not 0 <= self.reward_noise < 0.5:
            raise ValueError(f"reward_noise={self.reward_noise}: give a share below one half")
