"""The folder of a run: opened anew or again; and, for a script of one's own, kept around `DeltaTrainer.train` from start to end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerState

from delta_rlvr.adapters.trl.config import DeltaTrainerConfig
from delta_rlvr.adapters.trl.resume import find_checkpoints, unseal_after
from delta_rlvr.adapters.trl.run_folder import RunFolderCallback
from delta_rlvr.runs import RunDescription, RunWriter
from delta_rlvr.runs.layout import CONTENT, RUN
from delta_rlvr.runs.model_card import write_card
from delta_rlvr.tasks.contents import rule_digest
from delta_rlvr.versions import installed_versions
from rlvr_graders import RewardFunction

if TYPE_CHECKING:
    from delta_rlvr.adapters.trl.trainer import DeltaTrainer

_PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft", "datasets", "numpy", "delta-rlvr")
MODEL = "model"
"""The folder, within a run's, of the weights after the last step."""


def open_writer(
    config: DeltaTrainerConfig,
    settings: Mapping[str, Any],
    *,
    model: str,
    task: str,
    step: int | None,
    steps: int,
) -> RunWriter:
    """The writer of a new run (`step` None), or of one that goes on from its checkpoint at `step`."""
    method = config.resolved_method
    description = RunDescription(
        engine="trl",
        method=config.method,
        seed=config.seed,
        model=model,
        task=task,
        settings=settings,
        rule=None if method.rule.constant else dataclasses.asdict(method.rule),
        steps_planned=steps,
        versions={
            name.replace("-", "_"): version for name, version in installed_versions(*_PACKAGES).items()
        },
    )
    if step is None:
        return RunWriter.create(str(config.output_dir), description)
    writer = RunWriter.resume(str(config.output_dir), description, step)
    unseal_after(writer.path, step)
    return writer


def last_checkpoint(folder: Path) -> Path:
    """What `resume_from_checkpoint=True` means where a run folder says which checkpoints are whole."""
    whole = find_checkpoints(folder).whole
    if not whole:
        raise ValueError(
            f"resume_from_checkpoint: {folder} holds no whole checkpoint; delete the folder to start again, or name a checkpoint"
        )
    return folder / f"checkpoint-{whole[-1]}"


@contextmanager
def kept_run(trainer: DeltaTrainer, checkpoint: Path | None) -> Iterator[None]:
    """Write the run folder while the block trains; at its end the weights with their model card."""
    config = trainer.args
    folder = Path(str(config.output_dir))
    writer = None
    steps = trainer.planned_steps
    if trainer.accelerator.is_main_process:
        resumed = checkpoint is not None and (folder / RUN).exists()
        writer = open_writer(
            config,
            {
                **config.to_dict(),
                "reward": ", ".join(trainer.reward_func_names),
                f"method{CONTENT}": rule_digest(config.resolved_method.rule),
            },
            model=trainer.model_name,
            task=_task_name(trainer.train_dataset),
            step=_step_of(checkpoint) if checkpoint and resumed else None,
            steps=steps,
        )
    graders = [one for one in trainer.reward_funcs if isinstance(one, RewardFunction)]
    callback = RunFolderCallback(
        writer,
        rollouts_every=config.rollouts_every,
        rollout_groups=config.rollout_groups,
        reasons=(lambda: [verdict.reason for verdict in graders[0].last_verdicts]) if graders else None,
    )
    callback.attach(trainer)
    try:
        with writer or nullcontext():
            yield
            trainer.save_model(str(folder / MODEL))
            if writer:
                callback.save_tokens()
                writer.update(steps=trainer.state.global_step)  # the last ones may be in no line of metrics
                write_card(folder / MODEL, writer.info)
    finally:
        callback.detach()


def _step_of(checkpoint: Path) -> int:
    return TrainerState.load_from_json(str(checkpoint / "trainer_state.json")).global_step


def _task_name(data: Any) -> str:
    """What a data set is called, where it says so."""
    return getattr(getattr(data, "info", None), "dataset_name", None) or "a data set of the script"
