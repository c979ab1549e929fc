"""Exact resume: a resumed run takes the same steps as an uninterrupted one.

transformers restores weights, optimizer, schedule, random states and the place within an epoch. `ExactResume`, which every
`DeltaTrainer` has, saves checkpoints only at the end of a rollout batch (the rest of a batch is in no checkpoint), and restores the
data order of the second and later epochs (checkpoints lack the state of TRL's sampler). In a run folder checkpoints are also sealed:
their last file lists the others.
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

from delta_rlvr.files import write_text

if TYPE_CHECKING:
    from delta_rlvr.adapters.trl.trainer import DeltaTrainer

# The last file written into a checkpoint, with the sizes of all others.
COMPLETE = "complete.json"


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints in a run folder, by step."""

    whole: list[int]
    """Complete: a run can be resumed from these."""
    torn: list[int]
    """Incomplete: the run was killed while it wrote or deleted these."""
    between: list[int]
    """Complete, but within a rollout batch, whose rest is lost. Only the last step of a run may have such a checkpoint."""
    renamed: list[int]
    """Complete, but of another step than their name says."""


def find_checkpoints(folder: Path) -> Checkpoints:
    """Return the checkpoints of a run folder."""
    by_kind: dict[str, list[int]] = {"whole": [], "torn": [], "between": [], "renamed": []}
    for path in folder.glob("checkpoint-*"):
        number = path.name.removeprefix("checkpoint-")
        if number.isdigit() and path.is_dir():
            facts = read_seal(path)
            kind = "torn" if facts is None else "whole" if facts["ends_batch"] else "between"
            kind = "renamed" if facts and facts["step"] != int(number) else kind
            by_kind[kind].append(int(number))
    return Checkpoints(**{kind: sorted(steps) for kind, steps in by_kind.items()})


def seal(checkpoint: Path, *, step: int, seconds: float, ends_batch: bool) -> None:
    """Mark a checkpoint as complete."""
    files = {
        str(path.relative_to(checkpoint)): path.stat().st_size
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path.name != COMPLETE
    }
    facts = {"step": step, "seconds": seconds, "ends_batch": ends_batch, "files": files}
    write_text(checkpoint / COMPLETE, json.dumps(facts, indent=1))


def read_seal(checkpoint: Path) -> dict[str, Any] | None:
    """Return the facts of a complete checkpoint; None if it is not sealed, or a file is missing or has another size."""
    try:
        facts = json.loads((checkpoint / COMPLETE).read_text(encoding="utf-8"))
        sizes = {name: (checkpoint / name).stat().st_size for name in facts["files"]}
        whole = {"step", "seconds", "ends_batch"} <= facts.keys() and sizes == facts["files"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # missing, or other JSON than `seal` writes
        return None
    return facts if whole else None


def unseal_after(folder: Path, step: int) -> None:
    """Mark the checkpoints after `step` as incomplete: a run that resumes there will overwrite them."""
    for path in folder.glob(f"checkpoint-*/{COMPLETE}"):
        number = path.parent.name.removeprefix("checkpoint-")
        if number.isdigit() and int(number) > step:
            path.unlink()


def _on_numbered_cpu(storage: Any, location: str) -> Any:
    return storage if location.startswith("cpu:") else None


# On several ranks without an accelerator transformers loads an optimizer to "cpu:0", which torch.load does not know.
torch.serialization.register_package(11, lambda _: None, _on_numbered_cpu)


class ExactResume(TrainerCallback):
    """Delays saves to the end of a rollout batch, and restores the data order of later epochs."""

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
                f"load_best_model_at_end: a save due at step {state.save_steps} waits for the end of a rollout batch, so that the "
                "model that was evaluated there would not be saved; make save_steps and eval_steps multiples of the "
                f"{args.updates_per_batch:g} steps per rollout batch"
            )
        try:
            length = len(train_dataloader)
        except TypeError:  # a streamed data set
            warnings.warn(
                "the training data has no length (it is streamed), so that its order cannot be restored: a resumed run differs from an "
                "uninterrupted one. Use a data set with a length for an exact resume",
                stacklevel=2,
            )
            return
        updates = max(1, -(-length // accumulation))  # as transformers counts them
        epochs, steps = divmod(state.global_step, updates)
        if (epochs * length + steps * accumulation) % self._trainer.passes_per_batch:
            warnings.warn(
                f"step {state.global_step} lies within a rollout batch, whose rest is in no checkpoint: the run continues with a new "
                "batch and differs from an uninterrupted one. Resume from a checkpoint at the end of a batch",
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
        """Delay a save that is due within a rollout batch to the end of the batch (or of the training)."""
        self._due = self._due or control.should_save
        control.should_save = self._due and (self._trainer.ends_batch or control.should_training_stop)
        self._due = self._due and not control.should_save


def _sampler(dataloader: Any) -> RepeatSampler:
    """Return TRL's sampler from inside Accelerate's wrappers."""
    layer = dataloader
    while (layer := getattr(layer, "batch_sampler", None)) is not None:
        if isinstance(sampler := getattr(layer, "sampler", None), RepeatSampler):
            return sampler
    raise RuntimeError(
        "the training data is not drawn by TRL's RepeatSampler, so that the order of later epochs cannot be restored: resume within "
        "the first epoch, or call trainer.remove_callback(ExactResume) to continue in another order"
    )
