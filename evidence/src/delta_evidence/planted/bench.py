"""Planted credit: rollouts on tasks that know their decisive tokens, weighed by every method and measured, one file a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any
from urllib.parse import quote

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import AutoConfig

from delta_evidence.bench import Bench, PlannedBatch
from delta_evidence.judging import Judge, knows_decisive
from delta_evidence.methods import PROXIES, SCOPES
from delta_evidence.planted.conditions import CLEAN, PERTURBED, perturbed_advantages
from delta_evidence.planted.measures import (
    batch_facts,
    drift,
    length_terciles,
    measure_weights,
    small_sample,
    weight_spread,
)
from delta_evidence.planted.policies import get_continuation, is_variant, make_variant
from delta_evidence.planted.proxy_agreement import full_gradients, proxy_agreement
from delta_evidence.planted.settings import BASELINE, REFERENCE, PlantedSettings
from delta_evidence.planted.updates import cosines, method_weights, take_rows, update_vectors
from delta_evidence.rollouts import Batch, Collector, Rollouts, make_collector
from delta_evidence.shots import with_shots
from delta_evidence.stack.policy import StackedPolicy
from delta_evidence.weighing import BatchWeigher
from delta_rlvr.credit import Delta
from delta_rlvr.files import write_json
from delta_rlvr.models import load_policy
from delta_rlvr.models.load import adapter_base, load_pretrained
from delta_rlvr.tasks import get_task

TERCILES = ("shortest third", "middle third", "longest third")

# Floats that full gradients of a sample, or updates of several methods, may take at once.
_GRADIENT_FLOATS = 1 << 29


@dataclass
class CreditBench(Bench[PlantedSettings]):
    """Runs a benchmark into a folder, one file per rollout batch."""

    _loaded: tuple[str, Collector] | None = None

    def prepare(self) -> None:
        """Refuse tasks without planted credit, policies that cannot be made, and a folder of other settings; leave ours there."""
        for name in self.settings.tasks:
            if not knows_decisive(get_task(name)):
                raise ValueError(f"task {name!r} does not know its decisive tokens: use a built-in one")
        for name in filter(is_variant, self.settings.policies):
            get_continuation(name)
        for name in dict.fromkeys(unit.policy for unit in self.missing()):
            if not is_variant(name):
                load_pretrained(AutoConfig, adapter_base(name) or name)
        # More batches, tasks or policies go on from what is there, and so do smaller passes, which change no more than the rounding
        # of sums.
        self.keep_settings(
            free=("policies", "tasks", "batches", "rows_at_once"), methods=[one.name for one in self.settings.compared]
        )

    def measure_and_keep(self, unit: PlannedBatch) -> dict[str, Any]:
        """Measure one rollout batch of one policy on one task, and write its file, whole or not at all."""
        settings = self.settings
        collector = self._collector(unit.policy)
        policy, rollouts = collector.policy, self._collect(collector, unit)
        records: list[dict[str, Any]] = []
        if bool((rollouts.advantages != 0).any()):
            weigher = BatchWeigher(rollouts, policy.head[0].detach(), number=unit.number)
            weights = method_weights(
                policy,
                weigher,
                settings.compared,
                learning_rate=settings.learning_rate,
                rows_at_once=settings.rows_at_once,
            )
            own = {one.name for one in settings.compared if not (one.rho.constant or one.surrogate.reweighs)}
            deep = unit.number < settings.deep_batches
            updates = self._cosines(policy, rollouts, weights) if deep else {}
            records = [
                {
                    "method": name,
                    "condition": CLEAN,
                    **measure_weights(rho, rollouts, rollouts.advantages),
                    **(weight_spread(rho, rollouts) if name in own else {}),
                    **updates.get(name, {}),
                }
                for name, rho in weights.items()
            ]
            records += self._stability(weigher, weights, unit.number) if deep else []
        document = {
            **asdict(unit),
            "seed": settings.seed,
            "facts": batch_facts(rollouts, settings.group),
            "records": records,
            "agreement": self._agreement(policy, rollouts) if unit.number == 0 else [],
        }
        write_json(self.folder / unit.path, document, indent=None)
        return document

    def _collect(self, collector: Collector, unit: PlannedBatch) -> Rollouts:
        settings = self.settings
        task = with_shots(get_task(unit.task), settings.shots)
        start = unit.number * settings.prompts
        problems = task.problems("train", settings.prompts, seed=settings.seed, start=start)
        batch = Batch(task, problems, settings.seed, task.max_tokens, decisive=True)
        return collector.collect([batch], group=settings.group, number=unit.number, temperature=settings.temperature)[0]

    def _collector(self, name: str) -> Collector:
        """Of one policy; the last one is kept."""
        if self._loaded is None or self._loaded[0] != name:
            self.say(f"policy {name}")
            model, tokenizer = self._get_policy(name)
            collector = make_collector(
                model, tokenizer, runs=1, one_line=self.settings.shots > 0, judge=Judge(tokenizer), device=self.device
            )
            self._loaded = name, collector
        return self._loaded[1]

    def _get_policy(self, name: str) -> tuple[Any, Any]:
        """A policy; one that has to be made is kept in the folder."""
        place = self.folder / "policies" / quote(name, safe="")
        if not is_variant(name):
            return load_policy(name)
        if not (place / "complete").exists():
            self.say(f"making {name}: a minute or so")
            model, tokenizer = make_variant(name)
            model.save_pretrained(place)
            tokenizer.save_pretrained(place)
            (place / "complete").touch()  # last: a torn folder is made again
        return load_policy(str(place))

    def _cosines(
        self, policy: StackedPolicy, rollouts: Rollouts, weights: dict[str, Float[Tensor, "batch time"]]
    ) -> dict[str, dict[str, float]]:
        """Each update's cosine with the oracle's, and how far that is from the baseline's."""
        rows = ((rollouts.groups < self.settings.update_prompts) & (rollouts.advantages != 0)).nonzero()[:, 0]
        if not len(rows):
            return {}
        some = take_rows(rollouts, rows)

        def updates(names: Sequence[str]) -> Float[Tensor, "method parameters"]:
            chosen = [weights[name][rows] for name in names]
            return update_vectors(policy, some, chosen, rows_at_once=self.settings.rows_at_once)

        reference = updates([REFERENCE])[0]
        at_once = max(1, _GRADIENT_FLOATS // len(reference))
        names = list(weights)
        cosine: dict[str, float] = {}
        for start in range(0, len(names), at_once):
            part = names[start : start + at_once]
            cosine |= zip(part, cosines(updates(part), reference), strict=True)
        return {name: {"cosine": own, "cosine_gain": own - cosine[BASELINE]} for name, own in cosine.items()}

    def _stability(
        self, weigher: BatchWeigher, clean: dict[str, Float[Tensor, "batch time"]], number: int
    ) -> list[dict[str, Any]]:
        settings, rollouts = self.settings, weigher.rollouts
        chosen = settings.perturbed
        records = []
        for condition in PERTURBED:
            moved = perturbed_advantages(condition, rollouts, group=settings.group, seed=settings.seed, number=number)
            if not bool((moved != 0).any()):
                continue
            both = rollouts.mask & ((moved != 0) & (rollouts.advantages != 0))[:, None]
            for method in chosen:
                rho = weigher.weights(method.rho, moved)
                records.append(
                    {
                        "method": method.name,
                        "condition": condition,
                        **measure_weights(rho, rollouts, moved),
                        **drift(rho[both], clean[method.name][both]),
                    }
                )
        for name, rows in zip(TERCILES, length_terciles(rollouts), strict=True):
            part = torch.where(rows, rollouts.advantages, 0.0)
            records += [
                {"method": method.name, "condition": name, **measure_weights(clean[method.name], rollouts, part)}
                for method in chosen
            ]
        return records

    def _agreement(self, policy: StackedPolicy, rollouts: Rollouts) -> list[dict[str, Any]]:
        if not any(isinstance(one.rule, Delta) for one in self.settings.compared):
            return []  # nobody asked for a rule that has a proxy
        parameters = sum(parameter.numel() for parameter in policy.parameters())
        rows = small_sample(rollouts, min(self.settings.agreement_tokens, _GRADIENT_FLOATS // parameters))
        if not len(rows):
            return []
        sample = take_rows(rollouts, rows)
        gradients, head = full_gradients(policy, sample), policy.head[0].detach()
        return [
            {
                "proxy": proxy,
                "scope": scope,
                "refinements": refinements,
                "tokens": int(sample.mask.sum()),
                **asdict(agreement),
            }
            for scope, refinements in product(SCOPES, (0, 1))
            for proxy, agreement in proxy_agreement(
                gradients,
                sample,
                head,
                Delta(scope=scope, refinements=refinements),  # type: ignore[arg-type]
                PROXIES,
            ).items()
        ]
