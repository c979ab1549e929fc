"""The studies that the page is made of, as paired differences to their baselines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from delta_evidence.leaderboard import BASELINE, BY_ARM, MODELS
from delta_evidence.learning.outcome import RUNS, Outcome, read_outcomes
from delta_evidence.learning.protocol import Protocol, read_protocols
from delta_evidence.learning.table import StudyTable, study_table
from delta_rlvr.tasks import BUILT_IN
from delta_rlvr.yaml_files import read_yaml

EXAMPLE = "example"
"""The annotated protocol."""
_TASKS = {"small_word_problems.jsonl": "word problems", "gsm8k": "GSM8K"}


@dataclass(frozen=True)
class KeptStudy:
    """A study of the list, with its outcomes."""

    name: str
    protocol: Protocol
    outcomes: Sequence[Outcome]
    committed: str | None = None
    """The commit that brought the protocol, before the runs."""
    note: str = ""

    @cached_property
    def table(self) -> StudyTable:
        return study_table(self.protocol, self.outcomes)

    @property
    def finished(self) -> list[Outcome]:
        return [one for one in self.outcomes if one.diverged is None]

    @property
    def model(self) -> str:
        return MODELS.get(self.protocol.model, self.protocol.model)

    @property
    def real(self) -> bool:
        """Of a language model, not of a policy that was made for its task."""
        return any(task.partition("?")[0] not in BUILT_IN for task in self.protocol.tasks)

    @property
    def rate(self) -> str:
        usual = self.protocol.training.learning_rate
        rates = {self.protocol.settings(arm).learning_rate or usual for arm in self.protocol.arms}
        return BY_ARM if len(rates) > 1 else f"{rates.pop():g}".replace("e-0", "e-")

    def pairs(self, arm: str) -> Iterator[Pair]:
        """The arm's finished runs with DAPO's of the same task and seed."""
        finished = {(one.run.task, one.run.seed, one.run.arm): one for one in self.finished}
        for (task, seed, name), own in finished.items():
            base = finished.get((task, seed, BASELINE))
            if name == arm != BASELINE and base is not None:
                yield Pair(short_task(task), seed, own, base)


@dataclass(frozen=True)
class Pair:
    """Two runs of one task and one seed."""

    task: str
    seed: int
    own: Outcome
    base: Outcome

    @property
    def over_training(self) -> float:
        return statistics.fmean(self.own.curve) - statistics.fmean(self.base.curve)

    @property
    def at_the_end(self) -> float:
        assert self.own.after is not None
        assert self.base.after is not None
        return self.own.after - self.base.after

    @property
    def log_entropy(self) -> float:
        """How much lower or higher the entropy is, on average over training, in its logarithm."""
        return statistics.fmean(math.log(a / b) for a, b in zip(self.own.entropy, self.base.entropy, strict=True))


def short_task(task: str) -> str:
    """The task as a sentence names it."""
    name = Path(task.partition("?")[0].rpartition(":")[2]).name
    return next((short for key, short in _TASKS.items() if name.startswith(key)), name)


def read_studies(evidence: Path) -> list[KeptStudy]:
    """The studies of evidence/studies.yaml."""
    listed = read_yaml(evidence / "studies.yaml", "studies.yaml")
    return [_read(evidence, **entry) for entry in listed]


def kept_studies(evidence: Path) -> list[KeptStudy]:
    """All studies with outcomes, declared or not."""
    results = evidence / "results"
    return [_read(evidence, str(place.parent.relative_to(results))) for place in sorted(results.rglob(RUNS))]


def waiting(evidence: Path) -> list[str]:
    """Protocols without outcomes; one shows the keys alone."""
    names = sorted(path.stem for path in (evidence / "protocols").glob("*.yaml"))
    return [name for name in names if name != EXAMPLE and not (evidence / "results" / name).exists()]


def _read(evidence: Path, study: str, committed: str | None = None, note: str = "") -> KeptStudy:
    path = evidence / "protocols" / f"{study.partition('/')[0]}.yaml"
    protocols = {protocol.name: protocol for protocol in read_protocols(path)}
    if study not in protocols:
        raise ValueError(f"studies.yaml: {path} has no study {study!r}; it has {', '.join(protocols)}")
    training = protocols[study].training
    outcomes = [_counted(one, training.prompts * training.group) for one in read_outcomes(evidence / "results" / study)]
    if not outcomes:
        raise ValueError(f"studies.yaml: {evidence / 'results' / study} has no outcomes")
    return KeptStudy(study, protocols[study], outcomes, committed, note)


def _counted(outcome: Outcome, responses: int) -> Outcome:
    """With accuracies that are counts of right responses again: they are kept with four digits, and exact tests go by counts."""
    return replace(outcome, curve=[round(value * responses) / responses for value in outcome.curve])
