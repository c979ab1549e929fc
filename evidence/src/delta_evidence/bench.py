"""What both credit benchmarks share: cells of policies and tasks, and a folder with a file per rollout batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from delta_evidence.checks import at_least, unchanged_contents
from delta_evidence.methods import bench_method
from delta_rlvr.files import dump, write_json

Say = Callable[[str], None]


def option(default: Any, words: str, choices: Collection[str] | None = None) -> Any:
    """A setting that is an option of the command line, with its help."""
    return field(default=default, metadata={"help": words, "choices": choices})


METHODS = (
    "methods by name, settings after '?' as in 'delta?proxy=head&scope=group&refinements=0', and oracle, oracle-wide, oracle-only "
    "(default: all, with every proxy and scope)"
)
FIPO_STEP = "learning rate of the DAPO step after which FIPO's weights are taken"


@dataclass(frozen=True)
class PlannedBatch:
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


class Cells:
    """What the settings of both benchmarks have in common: policies x tasks, with some rollout batches each."""

    policies: tuple[str, ...]
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    batches: int
    temperature: float
    learning_rate: float

    @property
    def units(self) -> list[PlannedBatch]:
        """Every rollout batch, policy by policy."""
        cells = product(self.policies, self.tasks, range(self.batches))
        return [PlannedBatch(policy, task, number) for policy, task, number in cells]

    def check(self, **least: int) -> None:
        """Refuse numbers that are too small, cells that are missing or come twice, and what cannot be sampled or stepped with."""
        at_least(self, batches=1, prompts=2, group=2, seed=0, rows_at_once=1, **least)
        for name, chosen in (("policies", self.policies), ("tasks", self.tasks)):
            if not chosen:
                raise ValueError(f"{name}: give at least one")
            if len(set(chosen)) != len(chosen):
                raise ValueError(f"{name}={', '.join(chosen)}: one comes twice")
        if not (self.temperature > 0 and self.learning_rate > 0):
            raise ValueError("temperature and learning_rate must be positive")
        for spec in self.methods:
            bench_method(spec)


S = TypeVar("S", bound=Cells)


@dataclass
class Bench(Generic[S]):
    """A benchmark and its folder: what is there is not measured again."""

    settings: S
    folder: Path
    device: str = "cpu"
    say: Say = lambda _: None

    def keep_settings(self, free: Collection[str], **instead: Any) -> None:
        """Refuse a folder whose settings differ in more than the `free` ones: results of two kinds must not stand in one table.
        Leave ours there, some as they are given `instead`."""
        path = self.folder / "settings.json"
        now = json.loads(dump({**asdict(self.settings), **instead}))  # type: ignore[call-overload]
        before: Mapping[str, Any] = read(path) if path.is_file() else {}
        earlier = before.get("contents", {})
        specs = {spec: spec for spec in (*self.settings.tasks, *self.settings.methods)}
        now["contents"] = earlier | unchanged_contents(specs, earlier, f"the batches of {self.folder}")
        if before:
            other = [
                f"{key} was {before.get(key)!r} and is now {now[key]!r}"
                for key in sorted(now.keys() - {*free, "contents"})
                if before.get(key) != now[key]
            ]
            if other:
                raise ValueError(
                    f"{self.folder} has batches of other settings ({'; '.join(other)}): use those, or measure all anew into "
                    "another --output"
                )
        write_json(path, now)

    def missing(self) -> list[PlannedBatch]:
        """The batches that are not in the folder yet."""
        return [unit for unit in self.settings.units if not (self.folder / unit.path).is_file()]

    def documents(self) -> list[dict[str, Any]]:
        """What was measured, of the batches that are planned and there."""
        paths = [self.folder / unit.path for unit in self.settings.units]
        return [read(path) for path in paths if path.is_file()]


def read(path: Path) -> Any:
    """A file of a benchmark."""
    return json.loads(path.read_text())
