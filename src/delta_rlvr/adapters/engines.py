"""What each engine can give a method: the table behind refusals, `delta-rlvr methods NAME` and docs/your_engine.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from delta_rlvr.adapters.running import runs_along
from delta_rlvr.credit.rule import NEEDS, RuleError
from delta_rlvr.objectives import Clip, Method, SoftGate, Surrogate

RATIO = "ratio"
GATE = "gate"
LOSS = "loss"
BATCH = "batch"
BESIDE = {
    BATCH: "all responses of a batch at once",
    RATIO: "the current policy's ratio to the old one, inside the loss",
    GATE: "a loss with a soft gate (sapo)",
    LOSS: "a loss of its own",
}
"""What a method may need in addition to its rule's needs."""

_LOGPS = frozenset({"logps", "tokens", "groups", BATCH})
_POLICY = _LOGPS | {"entropy"}


@dataclass(frozen=True)
class Engine:
    """An engine, or an engine under certain settings."""

    name: str
    gives: frozenset[str]
    """Keys of `NEEDS` and `BESIDE`."""
    where: str
    """The class, settings or file that connects the engine."""


TRL = Engine("TRL", _POLICY | {"hidden", "head", RATIO, GATE}, "DeltaTrainer, `delta-rlvr train`")
VERL_FSDP2 = Engine(
    "verl (fsdp2)", _POLICY | {"hidden", "head", RATIO, GATE}, "trainer_mode=delta_sync or the classic trainer"
)
VERL_FSDP = Engine("verl (fsdp)", VERL_FSDP2.gives - {"head"}, VERL_FSDP2.where)
VERL_ANY = Engine("verl (any strategy and mode)", _POLICY | {GATE}, "trainer_mode=delta_sync, delta_*_async")
VERL_BYPASS = Engine("verl (bypass mode)", _LOGPS | {GATE}, "algorithm.rollout_correction.bypass_mode=True")
OLD_TRL = Engine("TRL 0.24 to 0.29, Unsloth", _LOGPS, "recipes/engines/old_trl.py")
MS_SWIFT = Engine("ms-swift", frozenset({"logps", BATCH}), "recipes/engines/ms_swift.py")
SLIME = Engine("slime", frozenset({"logps", BATCH}), "recipes/engines/slime.py")
NEMO_RL = Engine("NeMo-RL", frozenset({"logps", "groups", BATCH}), "recipes/engines/nemo_rl.py")
PRIME_RL = Engine("prime-rl", frozenset({"logps"}), "recipes/engines/prime_rl.py (running centroids)")
ENGINES = (TRL, VERL_FSDP2, VERL_FSDP, VERL_ANY, VERL_BYPASS, OLD_TRL, MS_SWIFT, SLIME, NEMO_RL, PRIME_RL)


def needs_of(method: Method) -> dict[str, str]:
    """Return what a method needs of an engine beside lengths and advantages, with a description of each need."""
    needs = {name: NEEDS[name] for name in method.rule.needs if name in NEEDS}
    if not method.rule.constant and not runs_along(method.rule):
        needs[BATCH] = BESIDE[BATCH]
    if method.surrogate.reweighs:
        needs[RATIO] = BESIDE[RATIO]
    if method.surrogate.kind == "soft_gate":
        needs[GATE] = BESIDE[GATE]
    if not _runs_in_engines(method.surrogate):
        needs[LOSS] = BESIDE[LOSS]
    return needs


def _runs_in_engines(surrogate: Surrogate) -> bool:
    """Whether the loss is the clip or the gate that engines have, or scales its advantages by `reweigh` (as FIPO)."""
    known = surrogate.reweighs or type(surrogate).__call__ in (Clip.__call__, SoftGate.__call__)
    return known and isinstance(surrogate, Clip | SoftGate)


def engines_for(method: Method) -> list[Engine]:
    """Return the engines that can run a method."""
    return [one for one in ENGINES if needs_of(method).keys() <= one.gives]


def missing(method: Method, engine: Engine) -> Iterator[str]:
    """Yield one sentence for each thing that the method needs and the engine does not give."""
    for name in method.rule.needs:
        if name not in NEEDS:
            raise RuleError(f"method {method.name!r} needs {name!r}, which is unknown; needs are {', '.join(NEEDS)}")
    for name, words in needs_of(method).items():
        if name not in engine.gives:
            others = [one.name for one in ENGINES if name in one.gives]
            there = ", ".join(others) or "none (your own training loop can)"
            yield f"method {method.name!r} needs {words}, which {engine.name} does not give; engines that do: {there}"


def check_engine(method: Method, engine: Engine) -> None:
    """Refuse a method that the engine cannot run."""
    for problem in missing(method, engine):
        raise RuleError(problem)
