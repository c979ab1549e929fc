"""The life of a run that is recorded in a folder: opened, trained in, saved, closed. `delta-rlvr train` and scripts share it."""

from __future__ import annotations

import dataclasses
import errno
import shutil
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerState
from transformers.trainer_utils import get_last_checkpoint

from delta_rlvr.adapters.trl.resume import find_checkpoints, unseal_after
from delta_rlvr.adapters.trl.run_folder import DecisiveTokens, RunFolderCallback
from delta_rlvr.models.finite import NotFinite
from delta_rlvr.runs import RunDescription, RunWriter
from delta_rlvr.runs.layout import CONTENT, MODEL, RUN
from delta_rlvr.runs.model_card import write_card
from delta_rlvr.tasks.contents import rule_digest
from delta_rlvr.versions import installed_versions

if TYPE_CHECKING:
    from delta_rlvr.adapters.trl.trainer import DeltaTrainer

_PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft", "datasets", "numpy", "delta-rlvr")
_SAVES = ("_save_checkpoint", "save_model", "save_tokens", "seal")
"""Functions within which a disk without room explains an error of any words: torch has several."""
_LITTLE = 16 * 2**20  # bytes; a disk with less is full, whatever the library that failed calls it


@dataclasses.dataclass
class Recording:
    """A run folder that is open."""

    writer: RunWriter | None
    """None on ranks other than the first."""
    callback: RunFolderCallback
    scored: str | None = None
    """How the held-out score was taken, for the model card."""


@contextmanager
def recorded(
    trainer: DeltaTrainer,
    *,
    settings: Mapping[str, Any],
    model: str,
    task: str,
    step: int | None,
    accept_changed: bool = False,
    decisive: DecisiveTokens | None = None,
) -> Iterator[Recording]:
    """Open the folder of a new run (`step` None), or of one that is resumed from its checkpoint at `step`; within the block, score and
    train; then save weights, token sums and model card, and close the folder."""
    config, folder = trainer.args, Path(str(trainer.args.output_dir))
    method, writer = config.resolved_method, None
    if trainer.accelerator.is_main_process:
        description = RunDescription(
            engine="trl",
            method=config.method,
            seed=config.seed,
            model=model,
            task=task,
            settings=settings,
            rule=None if method.rule.constant else dataclasses.asdict(method.rule),
            steps_planned=trainer.planned_steps,
            versions=_versions(),
        )
        if step is None:
            writer = RunWriter.create(folder, description)
        else:
            writer = RunWriter.resume(folder, description, step, accept_changed)
            unseal_after(folder, step)
    # The first of them judges; a penalty may follow.
    functions: Any = trainer.reward_funcs
    graders = [one for one in functions if hasattr(one, "last_verdicts")]
    callback = RunFolderCallback(
        writer,
        rollouts_every=config.rollouts_every,
        rollout_groups=config.rollout_groups,
        decisive=decisive,
        reasons=(lambda: [verdict.reason for verdict in graders[0].last_verdicts]) if graders else None,
    )
    callback.attach(trainer)
    recording = Recording(writer, callback)
    try:
        with writer or nullcontext(), _broken_step_noted(writer), _room_for_the_end(folder):
            yield recording
            trainer.save_model(str(folder / MODEL))
            if writer and callback.recorder:
                callback.recorder.save_tokens()
                # The last steps may be in no line of metrics; a run that had taken all of them takes none here.
                writer.update(steps=max(writer.info["steps"], trainer.state.global_step))
                write_card(folder / MODEL, writer.info, recording.scored)
    finally:
        callback.detach()


@contextmanager
def recorded_script(trainer: DeltaTrainer, checkpoint: Path | None) -> Iterator[Recording]:
    """`recorded` for `DeltaTrainer.train` in a user's script, of which the trainer alone is known."""
    config, facts = trainer.args, script_facts(trainer)
    resumed = checkpoint is not None and (Path(str(config.output_dir)) / RUN).exists()
    with recorded(
        trainer,
        settings={**facts["settings"], f"method{CONTENT}": rule_digest(config.resolved_method.rule)},
        model=facts["model"],
        task=facts["task"],
        step=_step_of(checkpoint) if checkpoint and resumed else None,
    ) as recording:
        yield recording


def script_facts(trainer: DeltaTrainer) -> dict[str, Any]:
    """What `run.json` would say of a run of a script, for its model card."""
    config = trainer.args
    data = getattr(trainer.train_dataset, "info", None)
    return {
        "model": trainer.model_name,
        "method": config.method,
        "task": getattr(data, "dataset_name", None) or "a data set of the script",
        "seed": config.seed,
        "steps": trainer.state.global_step,
        "settings": {**config.to_dict(), "reward": ", ".join(trainer.reward_func_names)},
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    return {key.replace("-", "_"): one for key, one in installed_versions(*_PACKAGES).items()}


@contextmanager
def checkpoint_named(folder: str) -> Iterator[None]:
    """A training that fails says which checkpoint it left."""
    try:
        yield
    except Exception as error:
        if Path(folder).is_dir() and (kept := get_last_checkpoint(folder)):
            error.add_note(f"the last checkpoint is {kept}")
        raise


def last_checkpoint(folder: Path) -> Path:
    """What `resume_from_checkpoint=True` means where a run folder says which checkpoints are whole."""
    whole = find_checkpoints(folder).whole
    if not whole:
        raise ValueError(
            f"resume_from_checkpoint: {folder} holds no whole checkpoint; delete the folder to start again, or name a checkpoint"
        )
    return folder / f"checkpoint-{whole[-1]}"


def _step_of(checkpoint: Path) -> int:
    return TrainerState.load_from_json(str(checkpoint / "trainer_state.json")).global_step


def disk_is_full(error: BaseException, folder: Path) -> bool:
    """Whether an error comes from a full disk: torch and safetensors have errors of their own for it."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    if any(words in str(error) for words in ("No space left on device", "File too large")):
        return True
    saving = any(frame.f_code.co_name in _SAVES for frame, _ in traceback.walk_tb(error.__traceback__))
    return saving and shutil.disk_usage(folder).free < _LITTLE


@contextmanager
def _room_for_the_end(folder: Path) -> Iterator[None]:
    """Where a full disk ends a run, delete the checkpoint that it tore: it is worth nothing, and its room lets run.json say what
    happened."""
    try:
        yield
    except Exception as error:
        if disk_is_full(error, folder):
            for step in find_checkpoints(folder).torn:
                shutil.rmtree(folder / f"checkpoint-{step}", ignore_errors=True)
        raise


@contextmanager
def _broken_step_noted(writer: RunWriter | None) -> Iterator[None]:
    """The step that ended a run has no line of metrics: what happened there stands in one, for charts and page."""
    try:
        yield
    except NotFinite as error:
        if writer and error.step is not None:
            writer.log({"step": error.step, "note": str(error)})
            writer.update(steps=error.step - 1)
        raise
