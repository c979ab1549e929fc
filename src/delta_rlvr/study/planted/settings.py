"""What `delta-rlvr credit-bench` measures, and on what."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from delta_rlvr.files import dump, write_json
from delta_rlvr.objectives import Method
from delta_rlvr.study.planted.methods import bench_method, every_method
from delta_rlvr.tasks import BUILT_IN, DEFAULT_POLICY

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
class BenchSettings:
    """What is measured, on what. Two runs with the same settings give the same numbers on one machine."""

    policies: tuple[str, ...] = (DEFAULT_POLICY, "confident")
    """`builtin`, a continuation of it (`policies.VARIANTS`), or whatever `load_policy` takes."""
    tasks: tuple[str, ...] = tuple(BUILT_IN)
    """Tasks that know their decisive tokens."""
    methods: tuple[str, ...] = ()
    """None given: every one there is."""
    stability: tuple[str, ...] = STABILITY
    """Those of them that are also measured under noise, sparse and shuffled rewards, and by length."""
    batches: int = 4
    """Independent rollout batches of each policy and task."""
    prompts: int = 32
    """Prompts a batch."""
    group: int = 8
    """Responses a prompt (G)."""
    seed: int = 0
    """Of prompts, samples and noise. Random weights have their own, as in "delta-random?seed=1"."""
    deep_batches: int = 2
    """Batches of each policy and task with the costly measures too: updates against the oracle's, and stability."""
    update_prompts: int = 16
    """Prompts of such a batch that count in its update (a backward pass a method)."""
    agreement_tokens: int = 1000
    """Tokens of the first batch whose full gradients are taken (0: none)."""
    learning_rate: float = 5e-4
    """Of the one DAPO step after which FIPO's weights are taken."""
    temperature: float = 1.0
    """Of sampling."""
    shots: int = 0
    """Worked solutions before each question, for policies that were never shown the task; a response is then one line."""
    rows_at_once: int = 256
    """Responses in one forward and backward pass."""

    def __post_init__(self) -> None:
        check_least(
            self,
            batches=1,
            prompts=2,
            group=2,
            seed=0,
            deep_batches=0,
            update_prompts=1,
            agreement_tokens=0,
            shots=0,
            rows_at_once=1,
        )
        check_cells(self)
        for spec in (*self.methods, *self.stability):
            bench_method(spec)

    @property
    def compared(self) -> list[Method]:
        """All methods; the baselines are always included."""
        given = list(self.methods) or every_method()
        return [bench_method(spec) for spec in dict.fromkeys([BASELINE, RIVAL, *given, REFERENCE])]

    @property
    def units(self) -> list[Unit]:
        """Every rollout batch, policy by policy."""
        return units_of(self)

    @property
    def perturbed(self) -> list[Method]:
        """Those that are also measured under other rewards and by length; not FIPO, which would need a step under each."""
        wanted = {RIVAL, *self.stability}
        return [one for one in self.compared if one.name in wanted and not one.surrogate.reweighs]


@dataclass(frozen=True)
class Unit:
    """One rollout batch."""

    policy: str
    task: str
    number: int
    """From 0, within its policy and task."""

    @property
    def path(self) -> Path:
        """Its file in the folder."""
        name = f"{quote(self.task, safe='')}-{self.number}.json"
        return Path("batches") / quote(self.policy, safe="") / name


def check_same_settings(path: Path, settings: Mapping[str, Any], free: Collection[str]) -> None:
    """Refuse a folder whose settings differ in more than the `free` ones: results of two kinds must not stand in one table. Leave
    ours there."""
    now = json.loads(dump(settings))
    if path.is_file():
        before = json.loads(path.read_text())
        other = [
            f"{key} was {before.get(key)!r} and is now {now[key]!r}"
            for key in sorted(now.keys() - set(free))
            if before.get(key) != now[key]
        ]
        if other:
            raise ValueError(
                f"{path.parent} has batches of other settings ({'; '.join(other)}): use those, or give another --output"
            )
    write_json(path, now)


class Cells(Protocol):
    """What the settings of both benchmarks have: policies x tasks, with some rollout batches each."""

    @property
    def policies(self) -> tuple[str, ...]: ...
    @property
    def tasks(self) -> tuple[str, ...]: ...
    @property
    def batches(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def learning_rate(self) -> float: ...


def check_least(settings: Cells, **least: int) -> None:
    """Refuse a number that is too small, naming it."""
    for name, smallest in least.items():
        if getattr(settings, name) < smallest:
            raise ValueError(f"{name}={getattr(settings, name)}: give at least {smallest}")


def check_cells(settings: Cells) -> None:
    """Refuse cells that are missing or come twice, and what cannot be sampled or stepped with."""
    for name, chosen in (("policies", settings.policies), ("tasks", settings.tasks)):
        if not chosen:
            raise ValueError(f"{name}: give at least one")
        if len(set(chosen)) != len(chosen):
            raise ValueError(f"{name}={', '.join(chosen)}: one comes twice")
    if not (settings.temperature > 0 and settings.learning_rate > 0):
        raise ValueError("temperature and learning_rate must be positive")


def units_of(settings: Cells) -> list[Unit]:
    """Every rollout batch, policy by policy."""
    return [
        Unit(policy, task, number)
        for policy in settings.policies
        for task in settings.tasks
        for number in range(settings.batches)
    ]
