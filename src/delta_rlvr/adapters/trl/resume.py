"""Checkpoints that are whole, and a resumed run that is the uninterrupted one, step by step.

`DeltaTrainer` brings `ExactResume` with it; who keeps a run folder also seals its checkpoints.

What transformers restores by itself: weights, optimizer, schedule, random states, the place within an epoch. What is added here:
a checkpoint is saved only where a rollout batch ends (what is left of one is in no checkpoint), its last file says that it is whole,
and the data order of the second and later epochs is found again (TRL's sampler shuffles on from a state that no checkpoint has).
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_utils import SaveStrategy
from trl.trainer.utils import RepeatSampler

from delta_rlvr.files import atomic

if TYPE_CHECKING:
    from delta_rlvr.adapters.trl.trainer import DeltaTrainer

# The last file written into a checkpoint: what else is in it, file by file with its size.
COMPLETE = "complete.json"


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints in a run folder, by step."""

    whole: list[int]
    """A run can go on from these."""
    torn: list[int]
    """The run was killed while it wrote (or deleted) these."""
    between: list[int]
    """The last step of a run need not end a rollout batch: whole, but the rest of the batch is not there."""


def find_checkpoints(folder: Path) -> Checkpoints:
    """Which checkpoints of a run folder can be used."""
    by_kind: dict[str, list[int]] = {"whole": [], "torn": [], "between": []}
    for path in folder.glob("checkpoint-*"):
        number = path.name.removeprefix("checkpoint-")
        if number.isdigit() and path.is_dir():
            facts = read_seal(path)
            kind = "torn" if facts is None else "whole" if facts["ends_batch"] else "between"
            by_kind[kind].append(int(number))
    return Checkpoints(**{kind: sorted(steps) for kind, steps in by_kind.items()})


def seal(checkpoint: Path, *, step: int, seconds: float, ends_batch: bool) -> None:
    """Say that everything of a checkpoint has been written."""
    files = {
        str(path.relative_to(checkpoint)): path.stat().st_size
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path.name != COMPLETE
    }
    facts = {"step": step, "seconds": seconds, "ends_batch": ends_batch, "files": files}
    with atomic(checkpoint / COMPLETE) as file:
        file.write(json.dumps(facts, indent=1).encode())


def read_seal(checkpoint: Path) -> dict[str, Any] | None:
    """What a whole checkpoint says of itself; None where it says nothing, or a file of it is missing or of another size."""
    try:
        facts = json.loads((checkpoint / COMPLETE).read_text(encoding="utf-8"))
        sizes = {name: (checkpoint / name).stat().st_size for name in facts["files"]}
    except (OSError, ValueError, KeyError):
        return None
    return facts if sizes == facts["files"] else None


def unseal_after(folder: Path, step: int) -> None:
    """The run goes on from `step`: what was saved later will be written over, and is not whole while it is."""
    for path in folder.glob(f"checkpoint-*/{COMPLETE}"):
        number = path.parent.name.removeprefix("checkpoint-")
        if number.isdigit() and int(number) > step:
            path.unlink()


def _on_numbered_cpu(storage: Any, location: str) -> Any:
    return storage if location.startswith("cpu:") else None


# On several ranks without an accelerator transformers loads an optimizer to "cpu:0", a place that torch.load does not know.
torch.serialization.register_package(11, lambda _: None, _on_numbered_cpu)


class ExactResume(TrainerCallback):
    """Holds saves back to the end of a rollout batch, and finds the data order of a later epoch again."""

    def __init__(self, trainer: DeltaTrainer):
        self._trainer = trainer
        self._due = False

    def on_train_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, train_dataloader: Any = None, **_: Any
    ) -> None:
        accumulation = args.gradient_accumulation_steps
        if (
            args.load_best_model_at_end
            and args.save_strategy == SaveStrategy.STEPS
            and state.save_steps * accumulation % self._trainer.passes_per_batch
        ):
            raise ValueError(
                f"load_best_model_at_end: a save due at step {state.save_steps} waits for the end of a rollout batch, so the model "
                "that was evaluated there would not be saved; make save_steps and eval_steps a multiple of the "
                f"{args.updates_per_batch:g} steps that a batch is used for"
            )
        try:
            length = len(train_dataloader)
        except TypeError:  # a data set that is streamed
            warnings.warn(
                "the training data has no length (it is streamed), so its order cannot be found again: a resumed run trains on, but it "
                "is not the uninterrupted one. Use a data set with a length for an exact resume",
                stacklevel=2,
            )
            return
        updates = max(1, -(-length // accumulation))  # as transformers counts them
        epochs, steps = divmod(state.global_step, updates)
        if (epochs * length + steps * accumulation) % self._trainer.passes_per_batch:
            warnings.warn(
                f"step {state.global_step} lies within a rollout batch, the rest of which is in no checkpoint: the run goes on with "
                "a new batch, and is not the uninterrupted one. Resume from a checkpoint where a batch ends",
                stacklevel=2,
            )
        if epochs:
            sampler = _sampler(train_dataloader)
            if sampler.shuffle:
                for _epoch in range(epochs):
                    torch.randperm(sampler.num_samples, generator=sampler.generator)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._hold_back(control)

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._hold_back(control)

    def _hold_back(self, control: TrainerControl) -> None:
        """A save that is due within a rollout batch waits for the end of it (or of the training)."""
        self._due = self._due or control.should_save
        control.should_save = self._due and (self._trainer.ends_batch or control.should_training_stop)
        self._due = self._due and not control.should_save


def _sampler(dataloader: Any) -> RepeatSampler:
    """TRL's sampler, inside what Accelerate wrapped around it."""
    layer = dataloader
    while (layer := getattr(layer, "batch_sampler", None)) is not None:
        if isinstance(sampler := getattr(layer, "sampler", None), RepeatSampler):
            return sampler
    raise RuntimeError(
        "the training data is not drawn by TRL's RepeatSampler, so the order of a later epoch cannot be found again: resume within the "
        "first epoch, or call trainer.remove_callback(ExactResume) to go on in another order"
    )
