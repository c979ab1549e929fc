"""Planted credit: rollouts on tasks that know their decisive tokens, weighed by every method and measured, one file a batch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
from jaxtyping import Float
from torch import Tensor

from delta_rlvr.credit import DeltaConfig
from delta_rlvr.evaluate.local_sampler import end_tokens
from delta_rlvr.objectives import FutureClip
from delta_rlvr.runs.files import atomic, dump
from delta_rlvr.study.conditions import CLEAN, PERTURBED
from delta_rlvr.study.contenders import PROXIES, SCOPES, Contender, Weigher, every_contender, get_contender
from delta_rlvr.study.judging import Judge
from delta_rlvr.study.labelled import batch_facts, length_terciles, measure_weights, small_sample
from delta_rlvr.study.measures import drift
from delta_rlvr.study.policies import get_policy
from delta_rlvr.study.rollouts import Batch, Collector, Rollouts
from delta_rlvr.study.sampling import StackedSampler
from delta_rlvr.study.shots import line_ends, with_shots
from delta_rlvr.study.stacked import StackedPolicy
from delta_rlvr.study.updates import (
    cosines,
    full_gradient_agreement,
    take_rows,
    update_vectors,
    weights_after_a_step,
)
from delta_rlvr.tasks import BUILT_IN, DEFAULT_POLICY, get_task

TERCILES = ("shortest third", "middle third", "longest third")
BASELINE, REFERENCE = "dapo", "oracle-only"

LENGTH_TASKS = tuple(f"long-filler?filler={number}&max_tokens=160" for number in range(5))
"""The same sums with ever more talk between the steps."""

# Full gradients of a sample may take this many floats.
_GRADIENT_FLOATS = 1 << 29

STABILITY = (
    "surprise",
    "entropy",
    "dapo-ft",
    "delta",
    "delta-topk",
    "delta?proxy=topk_hidden&scope=group&refinements=0",
    "delta?proxy=head&scope=group&refinements=0",
    "delta-random",
)
"""Contenders whose weights are also taken under other rewards."""


@dataclass(frozen=True)
class BenchSettings:
    """What is measured, on what. Two runs with the same settings give the same numbers on one machine."""

    policies: tuple[str, ...] = (DEFAULT_POLICY, "confident")
    """Names of `get_policy`."""
    tasks: tuple[str, ...] = tuple(BUILT_IN)
    """Tasks that know their decisive tokens."""
    methods: tuple[str, ...] = ()
    """Contenders; none given: every one there is."""
    stability: tuple[str, ...] = STABILITY
    """Those of them that are also measured under noise, sparse and shuffled rewards, and by length."""
    length_tasks: tuple[str, ...] = LENGTH_TASKS
    """Tasks of growing length, measured with the first policy alone and kept out of the averages."""
    batches: int = 4
    """Independent rollout batches of each policy and task."""
    prompts: int = 32
    """Prompts a batch."""
    group: int = 8
    """Responses a prompt (G)."""
    seed: int = 0
    """Of prompts, samples, noise and random weights."""
    deep_batches: int = 2
    """Batches of each policy and task with the costly measures too: updates against the oracle's, and stability."""
    update_prompts: int = 16
    """Prompts of such a batch that count in its update (a backward pass a method)."""
    agreement_tokens: int = 600
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
        for name, least in (
            ("batches", 1),
            ("prompts", 2),
            ("group", 2),
            ("deep_batches", 0),
            ("update_prompts", 1),
            ("agreement_tokens", 0),
            ("shots", 0),
            ("rows_at_once", 1),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: give at least {least}")
        for name in ("policies", "tasks"):
            if not getattr(self, name):
                raise ValueError(f"{name}: give at least one")
            if len(set(getattr(self, name))) != len(getattr(self, name)):
                raise ValueError(f"{name}={', '.join(getattr(self, name))}: one comes twice")
        for spec in (*self.methods, *self.stability):
            get_contender(spec)

    @property
    def contenders(self) -> list[Contender]:
        """Everybody; the baseline and the oracle are always there, since the updates are told against them."""
        given = list(self.methods) or every_contender()
        return [get_contender(spec) for spec in dict.fromkeys([BASELINE, *given, REFERENCE])]

    @property
    def stable_contenders(self) -> list[Contender]:
        """Those that are also measured under other rewards and by length."""
        return [contender for contender in self.contenders if contender.name in self.stability]


@dataclass(frozen=True)
class Unit:
    """One rollout batch."""

    policy: str
    task: str
    number: int

    @property
    def path(self) -> Path:
        """Its file in the folder."""
        return (
            Path("batches") / quote(self.policy, safe="") / f"{quote(self.task, safe='')}-{self.number}.json"
        )


Say = Callable[[str], None]


class CreditBench:
    """Runs a benchmark into a folder, one file a rollout batch: what is there is not measured again."""

    def __init__(
        self, settings: BenchSettings, folder: Path, *, device: str = "cpu", say: Say = lambda _: None
    ):
        self.settings, self.folder, self.say = settings, folder, say
        self.device = torch.device(device)
        self._policy: tuple[str, StackedPolicy, Collector] | None = None

    def plan(self) -> list[Unit]:
        """Every batch, policy by policy."""
        settings = self.settings
        return [
            Unit(policy, task, number)
            for policy in settings.policies
            for task in (*settings.tasks, *(settings.length_tasks if policy == settings.policies[0] else ()))
            for number in range(settings.batches if task in settings.tasks else settings.deep_batches)
        ]

    def prepare(self) -> None:
        """Refuse a folder with batches of other settings, and leave ours there."""
        _check_same_settings(self.folder / "settings.json", self.settings)

    def missing(self) -> list[Unit]:
        """The batches that are not in the folder yet."""
        return [unit for unit in self.plan() if not (self.folder / unit.path).is_file()]

    def documents(self) -> list[dict[str, Any]]:
        """What was measured, of the batches that are planned and there."""
        return [
            json.loads((self.folder / unit.path).read_text())
            for unit in self.plan()
            if (self.folder / unit.path).is_file()
        ]

    def measure_and_keep(self, unit: Unit) -> dict[str, Any]:
        """Measure a batch and write its file, whole or not at all."""
        document = self.measure(unit)
        with atomic(self.folder / unit.path) as file:
            file.write(dump(document).encode())
        return document

    def measure(self, unit: Unit) -> dict[str, Any]:
        """One rollout batch of one policy on one task."""
        settings = self.settings
        averaged = unit.task in settings.tasks
        deep = unit.number < settings.deep_batches
        policy, rollouts = self._collect(unit)
        signal = bool((rollouts.advantages != 0).any())
        weigher = Weigher(
            rollouts,
            policy.head[0].detach(),
            seed=settings.seed,
            number=unit.number,
            temperature=settings.temperature,
        )
        chosen = settings.contenders if averaged else settings.stable_contenders
        weights = self._weights(policy, weigher, chosen) if signal else {}
        records: list[dict[str, Any]] = [
            {"method": name, "condition": CLEAN.name, **measure_weights(rho, rollouts, rollouts.advantages)}
            for name, rho in weights.items()
        ]
        if deep and averaged and signal:
            found = self._cosines(policy, rollouts, weights)
            for record in records:
                record |= found[record["method"]]
        if deep and signal:
            records += self._stability(weigher, weights, unit.number)
        agreement = self._agreement(policy, rollouts) if averaged and unit.number == 0 else []
        return {
            **dataclasses.asdict(unit),
            "facts": batch_facts(rollouts, settings.group),
            "records": records,
            "agreement": agreement,
        }

    def _collect(self, unit: Unit) -> tuple[StackedPolicy, Rollouts]:
        settings = self.settings
        policy, collector = self._load(unit.policy)
        task = with_shots(get_task(unit.task), settings.shots)
        start = unit.number * settings.prompts
        problems = task.problems("train", settings.prompts, seed=settings.seed, start=start)
        rollouts = collector.collect(
            [Batch(task, problems, settings.seed, task.max_tokens, decisive=True)],
            group=settings.group,
            number=unit.number,
            temperature=settings.temperature,
        )
        return policy, rollouts[0]

    def _load(self, name: str) -> tuple[StackedPolicy, Collector]:
        if self._policy is None or self._policy[0] != name:
            self.say(f"policy {name}")
            model, tokenizer = get_policy(name)
            stack = StackedPolicy.from_model(model, 1).to(self.device)
            ends = end_tokens(model, tokenizer) | (line_ends(tokenizer) if self.settings.shots else set())
            sampler = StackedSampler(stack, ends=ends, pad=tokenizer.pad_token_id)
            collector = Collector(stack, sampler, tokenizer, judge=Judge(tokenizer))
            self._policy = name, stack, collector
        return self._policy[1], self._policy[2]

    def _weights(
        self, policy: StackedPolicy, weigher: Weigher, contenders: Sequence[Contender]
    ) -> dict[str, Float[Tensor, "batch time"]]:
        weights = {}
        for contender in contenders:
            if contender.later:
                assert isinstance(contender.method.surrogate, FutureClip)
                weights[contender.name] = weights_after_a_step(
                    policy,
                    weigher.rollouts,
                    contender.method.surrogate,
                    learning_rate=self.settings.learning_rate,
                    rows_at_once=self.settings.rows_at_once,
                    temperature=self.settings.temperature,
                )
            else:
                weights[contender.name] = weigher.weights(contender)
        return weights

    def _cosines(
        self, policy: StackedPolicy, rollouts: Rollouts, weights: dict[str, Float[Tensor, "batch time"]]
    ) -> dict[str, dict[str, float]]:
        """Each update's cosine with the oracle's, and how far that is from the baseline's."""
        rows = ((rollouts.groups < self.settings.update_prompts) & (rollouts.advantages != 0)).nonzero()[:, 0]
        if not len(rows):
            return {name: {} for name in weights}
        updates = update_vectors(
            policy,
            take_rows(rollouts, rows),
            [rho[rows] for rho in weights.values()],
            rows_at_once=self.settings.rows_at_once,
            temperature=self.settings.temperature,
        )
        places = {name: place for place, name in enumerate(weights)}
        found = cosines(updates, updates[places[REFERENCE]])
        base = found[places[BASELINE]]
        return {
            name: {"cosine": found[place], "cosine_gain": found[place] - base}
            for name, place in places.items()
        }

    def _stability(
        self, weigher: Weigher, clean: dict[str, Float[Tensor, "batch time"]], number: int
    ) -> list[dict[str, Any]]:
        settings, rollouts = self.settings, weigher.rollouts
        chosen = settings.stable_contenders
        records = []
        for condition in PERTURBED:
            moved = condition.advantages(rollouts, group=settings.group, seed=settings.seed, number=number)
            if not bool((moved != 0).any()):
                continue
            both = rollouts.mask & ((moved != 0) & (rollouts.advantages != 0))[:, None]
            for contender in chosen:
                rho = weigher.weights(contender, moved)
                change = drift(rho[both], clean[contender.name][both])
                records.append(
                    {
                        "method": contender.name,
                        "condition": condition.name,
                        **measure_weights(rho, rollouts, moved),
                        **dataclasses.asdict(change),
                    }
                )
        for name, rows in zip(TERCILES, length_terciles(rollouts), strict=True):
            part = torch.where(rows, rollouts.advantages, 0.0)
            records += [
                {
                    "method": contender.name,
                    "condition": name,
                    **measure_weights(clean[contender.name], rollouts, part),
                }
                for contender in chosen
            ]
        return records

    def _agreement(self, policy: StackedPolicy, rollouts: Rollouts) -> list[dict[str, Any]]:
        parameters = sum(parameter.numel() for parameter in policy.parameters())
        rows = small_sample(rollouts, min(self.settings.agreement_tokens, _GRADIENT_FLOATS // parameters))
        if not len(rows):
            return []
        sample = take_rows(rollouts, rows)
        configs = [
            DeltaConfig(scope=scope, refinements=refinements)  # type: ignore[arg-type]
            for scope in SCOPES
            for refinements in (0, 1)
        ]
        found = full_gradient_agreement(
            policy, sample, configs=configs, proxies=PROXIES, temperature=self.settings.temperature
        )
        return [
            {
                "proxy": proxy,
                "scope": config.scope,
                "refinements": config.refinements,
                "tokens": int(sample.mask.sum()),
                **dataclasses.asdict(agreement),
            }
            for config, by_proxy in zip(configs, found, strict=True)
            for proxy, agreement in by_proxy.items()
        ]


def _check_same_settings(path: Path, settings: BenchSettings) -> None:
    """Batches of other settings must not stand in one table."""
    now = json.loads(dump(dataclasses.asdict(settings)))
    if path.is_file():
        before = json.loads(path.read_text())
        # Only what decides a batch's numbers must agree: more batches, tasks or policies go on from what is there.
        free = {"policies", "tasks", "batches", "length_tasks"}
        other = [
            f"{key} was {before.get(key)!r} and is now {now[key]!r}"
            for key in sorted(now.keys() - free)
            if before.get(key) != now[key]
        ]
        if other:
            raise ValueError(
                f"{path.parent} has batches of other settings ({'; '.join(other)}): use those, or give another --output"
            )
    with atomic(path) as file:
        file.write(dump(now, indent=1).encode())
