"""Run a protocol, stack by stack, and keep what each run came to: an interrupted study goes on where it was."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from delta_evidence.checks import unchanged_contents
from delta_evidence.judging import Judge
from delta_evidence.learning.checkpoint import STACKS, Stack, begun_stacks, path_of
from delta_evidence.learning.heldout import HeldoutSettings
from delta_evidence.learning.outcome import RUNS, Outcome, missing_runs, read_outcomes
from delta_evidence.learning.protocol import Protocol, Run, TrainingSettings
from delta_evidence.learning.session import Machine, Session
from delta_evidence.phases import Phases, ProgressLines
from delta_evidence.stopping import Stop, Stopped
from delta_evidence.weighing import study_method
from delta_rlvr.evaluate.results import VERSIONS
from delta_rlvr.exit_codes import at_work
from delta_rlvr.files import atomic, dump, locked, now, plain, write_json
from delta_rlvr.models import load_policy
from delta_rlvr.models.load import gguf_digest, is_gguf
from delta_rlvr.versions import installed_versions

PROTOCOL = "protocol.json"


class Study:
    """A protocol and the folder that its outcomes are kept in."""

    def __init__(self, protocol: Protocol, folder: Path, model: str | None = None):
        """`model`: where the protocol's model lies on this machine, if not where its name says."""
        self.protocol = protocol
        self.folder = folder
        self.model = model or protocol.model
        written = self._written()
        if written is None:
            return
        before = written["protocol"]
        now_written = protocol.as_dict()
        # A setting that is newer than the folder had its default then.
        for key, kind in (("training", TrainingSettings), ("heldout", HeldoutSettings)):
            before[key] = {**plain(asdict(kind())), **before.get(key, {})}
        # More seeds or arms may be added; what the runs that are there were made with may not change.
        fixed = ("model", "model_sha256", "first_seed", "reward_noise", "training", "heldout")
        changed = [key for key in fixed if before.get(key) != now_written[key]]
        own = [written.get("arm_settings", {}) for written in (before, now_written)]
        both = before["arms"].keys() & now_written["arms"].keys()
        changed += [f"arms.{arm}" for arm in sorted(both) if own[0].get(arm) != own[1].get(arm)]
        if changed:
            raise ValueError(
                f"{folder} holds runs with another {', '.join(changed)}: use the same protocol, or give another --output"
            )

    def _written(self) -> dict[str, Any] | None:
        place = self.folder / PROTOCOL
        return json.loads(place.read_text(encoding="utf-8")) if place.exists() else None

    def checked_contents(self) -> dict[str, str]:
        """The digests of the files that tasks and methods come from; refused if one has changed, or the folder is of something else."""
        written = self._written()
        here = self.folder.iterdir() if written is None and self.folder.is_dir() else ()
        if any(one.name[0] != "." and one.name not in (RUNS, STACKS) for one in here):
            raise ValueError(f"{self.folder} holds other files than a study's: give another --output")
        specs = {spec: spec for spec in self.protocol.tasks}
        specs |= {self.protocol.settings(arm).method or arm: self.protocol.method(arm) for arm in self.protocol.arms}
        earlier = (written or {}).get("contents", {})
        return earlier | unchanged_contents(specs, earlier, f"the runs of {self.folder}")

    def write_protocol(self, machine: Machine) -> None:
        """Beside the outcomes: what they were made with."""
        written = self._written() or {}
        # Folders that are older than these entries do not tell.
        before = written.get("compute_dtype", machine.precision)
        if before != machine.precision:
            raise ValueError(
                f"{self.folder} holds runs in {before}, not {machine.precision}: give --dtype {before}, or another --output"
            )
        digest = gguf_digest(self.model) if is_gguf(self.model) else None
        expected = self.protocol.model_sha256 or written.get("model_sha256", digest)
        if digest != expected:
            raise ValueError(
                f"--model {self.model} has other weights (SHA-256 {digest}) than the protocol or the runs of {self.folder} (SHA-256 "
                f"{expected})"
            )
        document = {
            "protocol": self.protocol.as_dict(),
            "contents": self.checked_contents(),
            "model_sha256": digest,
            "compute_dtype": machine.precision,
            "versions": installed_versions(*VERSIONS),
            "written": now(),
        }
        write_json(self.folder / PROTOCOL, document)

    def outcomes(self) -> list[Outcome]:
        """What is there so far."""
        return read_outcomes(self.folder)

    def missing(self) -> list[Run]:
        return missing_runs(self.protocol, self.outcomes())

    def go(
        self, machine: Machine, tell: Callable[[str], None], *, export: Iterable[str] = (), stop: Stop | None = None
    ) -> bool:
        """Run what is missing, and say whether all of it was done: `stop` may have ended it before.

        `export`: arms whose trained weights are written to the folder as transformers models.
        """
        exported = set(export)
        unknown = sorted(exported - self.protocol.arms.keys())
        if unknown:
            raise ValueError(f"export: {', '.join(unknown)} is not among the arms {', '.join(self.protocol.arms)}")
        for arm in self.protocol.arms:
            if arm not in self.protocol.retired:
                study_method(
                    self.protocol.method(arm)
                )  # a rule whose file is not there is told before anything is made
        with locked(self.folder), ProgressLines(Phases(tell=tell)) as progress:
            self.write_protocol(machine)
            model, tokenizer = load_policy(self.model)
            with Judge(tokenizer, machine.workers) as judge:
                session = Session(
                    self.protocol,
                    self.folder,
                    machine,
                    model,
                    tokenizer,
                    judge,
                    stop=stop or Stop(),
                    progress=progress,
                    exported=exported,
                )
                try:
                    self._all_stacks(session, tell)
                except Stopped:
                    return False
        return True

    def _all_stacks(self, session: Session, tell: Callable[[str], None]) -> None:
        missing = self.missing()
        if not missing:
            return
        before = {outcome.run.task: outcome.before for outcome in self.outcomes()}
        unknown = {run.task for run in missing} - before.keys()
        before |= session.start_scores([task for task in self.protocol.tasks if task in unknown])
        begun = begun_stacks(self.folder, missing)
        fresh = [run for run in missing if not any(run in stack.runs for stack in begun)]
        size = session.runs_at_once() if fresh else 1
        finished = 0
        while begun or fresh:
            stacks = begun + [Stack(runs) for runs in _stacks(fresh, size)]
            stack = stacks[0]
            begun, fresh = begun[1:], [run for run in fresh if run not in stack.runs]
            name = f"stack {finished + 1}/{finished + len(stacks)}"
            tell(f"{name}: {len(stack.runs)} runs on {', '.join(dict.fromkeys(run.task for run in stack.runs))}")
            batches = self.protocol.training.batches
            session.progress.left = sum(len(one.runs) * (batches - one.done) for one in stacks)
            began = time.perf_counter()
            with at_work():
                trained = session.run(stack, name, before)
            if trained is None:
                begun, size = stack.halves(self.folder) + begun, min(size, len(stack.runs) // 2)
                tell(f"{name} does not fit into the device's memory: its runs go on in two halves")
                continue
            self._keep(trained)
            path_of(self.folder, stack.runs).unlink(missing_ok=True)
            finished += 1
            tell(f"{name} done in {time.perf_counter() - began:.0f} s")
        begun_stacks(self.folder, [])  # deletes what is left of stacks that were split

    def _keep(self, outcomes: Sequence[Outcome]) -> None:
        # A run is kept once, whoever made it again.
        new = {outcome.run for outcome in outcomes}
        kept = [*(outcome for outcome in self.outcomes() if outcome.run not in new), *outcomes]
        with atomic(self.folder / RUNS) as file:
            file.writelines(dump(outcome.as_dict()).encode() + b"\n" for outcome in kept)


def _stacks(runs: Sequence[Run], size: int) -> list[list[Run]]:
    """In the protocol's order, in stacks of like size rather than with a small last one."""
    if not runs:
        return []
    each = -(-len(runs) // -(-len(runs) // size))
    return [list(runs[start : start + each]) for start in range(0, len(runs), each)]
