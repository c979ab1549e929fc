"""A study as it is written down before it is run: one YAML file, from which every run follows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from delta_evidence.checks import at_least
from delta_evidence.judging import knows_decisive
from delta_evidence.learning.heldout import HeldoutSettings
from delta_evidence.weighing import study_method
from delta_rlvr.files import is_number, plain
from delta_rlvr.hints import did_you_mean
from delta_rlvr.models import DEFAULT_POLICY
from delta_rlvr.tasks import get_task
from delta_rlvr.yaml_files import OnceLoader, read_yaml


class _Loader(OnceLoader):
    """With the numbers of YAML 1.2: version 1.1 reads 1e-3 as text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)
_REQUIRED = {
    "question": ", one line that the study answers",
    "tasks": ", as in `tasks: [phrased-sums]`",
    "arms": " with a number of seeds each, as in `arms: {dapo: 4, delta: 4}`",
}
"""What to write for keys that a file must have."""


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
        at_least(self, steps=1, prompts=1, updates=1, max_tokens=1)
        if self.group < 2:
            raise ValueError(f"group={self.group}: a group's advantage needs at least 2 responses")
        if self.steps % self.updates:
            raise ValueError(f"steps={self.steps}: give a multiple of updates={self.updates}")
        if self.split not in ("responses", "prompts"):
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
class ArmSettings:
    """What an arm has of its own; its name alone is the method, with the settings of the study."""

    method: str | None = None
    """As `study_method` takes it; None where the arm's name is the method."""
    learning_rate: float | None = None
    """None for that of the training."""
    entropy_bonus: float = 0.0
    """Times the mean entropy per token, taken off the loss; below 0 it is a penalty."""

    def __post_init__(self) -> None:
        if self.learning_rate is not None and self.learning_rate <= 0:
            raise ValueError(f"learning_rate={self.learning_rate:g}: give more than 0")


@dataclass(frozen=True)
class Run:
    """One policy's training: what is trained on, how tokens are weighed, and the seed."""

    task: str
    arm: str
    seed: int
    reward_noise: float = 0.0
    """Share of the verdicts that training sees flipped."""

    def __post_init__(self) -> None:
        at_least(self, seed=0)
        if not 0 <= self.reward_noise < 0.5:
            raise ValueError(f"reward_noise={self.reward_noise}: give a share below one half")


@dataclass(frozen=True)
class BatchesTo:
    """Rollout batches until a run's accuracy, averaged over five batches, first reaches this value."""

    batches_to: float

    def __post_init__(self) -> None:
        if not isinstance(self.batches_to, int | float) or not 0 < self.batches_to <= 1:
            raise ValueError(f"batches_to={self.batches_to!r}: give an accuracy above 0, at most 1")


@dataclass(frozen=True)
class HeldoutOver:
    """Held-out accuracy at this temperature, averaged over all times at which it was scored (`heldout.also`)."""

    temperature: float


EndPoint = Literal["held_out", "over_training"] | BatchesTo | HeldoutOver
"""What decides a study: held-out accuracy at the end or over training, mean accuracy over all rollout batches, or how soon an accuracy
is reached."""


@dataclass(frozen=True)
class Primary:
    """The one comparison that the study was made for; tested alone, outside of Holm's family."""

    arm: str
    task: str | tuple[str, ...]
    """One task, or several for one test over the pairs (task and seed) of all of them."""
    end_point: EndPoint = "held_out"

    def __post_init__(self) -> None:
        named = ("held_out", "over_training")
        if not isinstance(self.end_point, BatchesTo | HeldoutOver) and self.end_point not in named:
            raise ValueError(
                f"end_point={self.end_point!r}: choose held_out, over_training, {{temperature: 0}} (held-out over training) or "
                "{batches_to: 0.5} (with an accuracy of yours)"
            )

    @property
    def tasks(self) -> tuple[str, ...]:
        return (self.task,) if isinstance(self.task, str) else self.task


@dataclass(frozen=True)
class Protocol:
    """What is trained on what, how often, and what will be compared."""

    name: str
    question: str
    """What the study is to find out, in a sentence."""
    tasks: tuple[str, ...]
    arms: Mapping[str, int]
    """Number of seeds by arm. Seeds count from `first_seed`, so arms share theirs."""
    arm_settings: Mapping[str, ArmSettings] = field(default_factory=dict, metadata={"written": False})
    """As they are written under `arms`: of the arms that are more than a method's name."""
    baseline: str = "dapo"
    model: str = DEFAULT_POLICY
    """As `load_policy` takes it. Whoever runs the study may say where it lies on their machine."""
    model_sha256: str | None = None
    """Of a GGUF file: no other weights are taken."""
    first_seed: int = 0
    seeds_in_turn: int | None = None
    """So many seeds of each task in turn, so that a study that is stopped has as many of every task; None for all of a task at once."""
    reward_noise: float = 0.0
    """Share of the verdicts that training sees flipped; held-out scores never are."""
    primary: Primary | None = None
    retired: Mapping[str, str] = field(default_factory=dict)
    """Arms that this version cannot run, each with what it was: their outcomes are read, and no run of them is made."""
    training: TrainingSettings = field(default_factory=TrainingSettings)
    heldout: HeldoutSettings = field(default_factory=HeldoutSettings)
    folder: Path | None = field(default=None, metadata={"written": False})
    """Where its file lies, and rules beside it."""

    def __post_init__(self) -> None:
        if not self.tasks or not self.arms:
            raise ValueError(f"protocol {self.name!r}: give at least one task and one arm")
        at_least(self, seeds_in_turn=1)
        if self.baseline not in self.arms:
            raise ValueError(f"protocol {self.name!r}: the baseline {self.baseline!r} is not among its arms")
        for arm, seeds in self.arms.items():
            if not isinstance(seeds, int) or seeds < 1:
                raise ValueError(f"protocol {self.name!r}: arms.{arm} is a number of seeds, not {seeds!r}")
        if self.primary is not None:
            for name, known in ((self.primary.arm, self.arms), *((task, self.tasks) for task in self.primary.tasks)):
                if name not in known:
                    raise ValueError(
                        f"protocol {self.name!r}: the primary comparison's {name!r} is not among the arms and tasks"
                        f"{did_you_mean(name, known)}"
                    )
            end_point, scored = self.primary.end_point, [one.temperature for one in self.heldout.also]
            if isinstance(end_point, HeldoutOver) and end_point.temperature not in scored:
                raise ValueError(
                    f"protocol {self.name!r}: the primary comparison is at temperature {end_point.temperature}, and heldout.also "
                    f"scores at {', '.join(map(str, scored)) or 'none'}"
                )
        for decoding in self.heldout.also:
            if late := [batch for batch in decoding.after if batch > self.training.batches]:
                raise ValueError(
                    f"protocol {self.name!r}: heldout.also asks for a score after batch {late[0]}; there are {self.training.batches}"
                )
        # The table of kept outcomes needs neither rules nor problems: whoever runs the protocol is told which file is not there.
        there = [arm for arm in self.arms if arm not in self.retired and not missing_rule(self.method(arm))]
        knowing = [arm for arm in there if "decisive" in study_method(self.method(arm)).rule.needs]
        for name in self.tasks:
            try:
                task = get_task(name)
            except FileNotFoundError:
                continue
            if knowing and not knows_decisive(task):
                raise ValueError(
                    f"protocol {self.name!r}: task {name!r} does not know its decisive tokens; leave {', '.join(knowing)} out"
                )

    def settings(self, arm: str) -> ArmSettings:
        """An arm's own."""
        return self.arm_settings.get(arm, ArmSettings())

    def method(self, arm: str) -> str:
        """What the arm weighs by. A rule's file is sought beside the protocol, then in the working directory."""
        spec = self.settings(arm).method or arm
        file = _rule_file(spec)
        return str(self.folder / spec) if self.folder and file and (self.folder / file).is_file() else spec

    def as_dict(self) -> dict[str, Any]:
        """As it is kept beside the outcomes."""
        values = asdict(self)
        del values["folder"]
        return dict(plain(values))

    def runs(self) -> list[Run]:
        """Task by task and, within one, seed by seed, so that a study that is stopped has the same seeds of every arm."""
        most = max(self.arms.values())
        turn = self.seeds_in_turn or most
        return [
            Run(task, arm, self.first_seed + number, self.reward_noise)
            for first in range(0, most, turn)
            for task in self.tasks
            for number in range(first, min(first + turn, most))
            for arm, seeds in self.arms.items()
            if number < seeds
        ]


def missing_rule(spec: str) -> bool:
    """Whether the method is a rule whose file is not there."""
    file = _rule_file(spec)
    return file is not None and not file.expanduser().is_file()


def _rule_file(spec: str) -> Path | None:
    file = spec.partition("?")[0].rpartition(":")[0]
    return Path(file) if file.endswith(".py") else None


def read_protocols(path: Path) -> list[Protocol]:
    """The protocols of a YAML file: one, or one for each of its `variants`, which say what they change.

    Unknown keys are refused: a misspelt setting would otherwise be a default.
    """
    written = read_yaml(path, str(path), _Loader)
    if not isinstance(written, dict):
        raise ValueError(f"{path}: a protocol is a mapping, as in `tasks: [phrased-sums]`")
    written = {"name": path.stem, **written}
    variants = written.pop("variants", None)
    if variants is None:
        return [_protocol(written, path)]
    if not isinstance(variants, dict) or not variants:
        raise ValueError(f"{path}: variants are a mapping from names to what they change")
    return [
        _protocol(
            _merged(written, changes or {}, f"{path}: variants.{name}") | {"name": f"{written['name']}/{name}"},
            path,
            f": variants.{name}",
        )
        for name, changes in variants.items()
    ]


def _merged(base: Mapping[str, Any], changes: Any, where: str) -> dict[str, Any]:
    """The base with its changes; `training` and `heldout` are changed key by key."""
    if not isinstance(changes, dict):
        raise ValueError(f"{where}: give key: value pairs")
    merged = dict(base)
    for key, value in changes.items():
        inner = key in ("training", "heldout") and isinstance(value, dict)
        merged[key] = {**merged.get(key, {}), **value} if inner else value
    return merged


def _protocol(written: dict[str, Any], path: Path, place: str = "") -> Protocol:
    where = f"{path}{place}"
    arms = written.get("arms", {})
    if not isinstance(arms, dict):
        raise ValueError(f"{where}: arms have a number of seeds each, as in `arms: {{dapo: 4, delta: 4}}`")
    own = {arm: dict(given) for arm, given in arms.items() if isinstance(given, dict)}
    seeds = {arm: given.pop("seeds", None) for arm, given in own.items()}
    settings = {arm: _build(ArmSettings, given, f"{where}: arms.{arm}") for arm, given in own.items()}
    if arms:
        written = {**written, "arms": arms | seeds}
    return _build(Protocol, written, where, folder=path.parent, arm_settings=settings)


def _build(kind: type, values: Any, where: str, **given: Any) -> Any:
    """A record of what is written, and what is `given` beside it."""
    if not isinstance(values, dict):
        raise ValueError(f"{where}: give key: value pairs")
    written = [one for one in fields(kind) if one.metadata.get("written", True)]
    known = [one.name for one in written]
    unknown = sorted(map(str, values.keys() - set(known)))
    if unknown:
        raise ValueError(f"{where}: there is no setting {', '.join(unknown)}; there are {', '.join(known)}")
    for one in written:
        if one.default is MISSING and one.default_factory is MISSING and one.name not in values:
            raise ValueError(f"{where}: add `{one.name}:`{_REQUIRED.get(one.name, '')}")
    hints = get_type_hints(kind)
    return kind(**{key: _value(hints[key], value, f"{where}: {key}") for key, value in values.items()}, **given)


def _value(hint: Any, value: Any, where: str) -> Any:
    """What is written as its field has it: records for mappings, tuples for lists."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    records = [one for one in kinds if is_dataclass(one)]
    lists = [one for one in kinds if get_origin(one) is tuple]
    if records and isinstance(value, dict):
        named = (one for one in records if any(each.name in value for each in fields(one)))
        return _build(cast(type, next(named, records[0])), value, where)
    if lists and isinstance(value, list):
        return tuple(_value(get_args(lists[0])[0], one, where) for one in value)
    if len(kinds) == 1 and (records or lists):
        raise ValueError(f"{where}: give {'key: value pairs' if records else 'a list'}")
    number = float if float in kinds else int if int in kinds else None
    if number and value is not None and not (is_number(value) if number is float else isinstance(value, int)):
        raise ValueError(f"{where}: give a {'' if number is float else 'whole '}number, not {value!r}")
    return value
