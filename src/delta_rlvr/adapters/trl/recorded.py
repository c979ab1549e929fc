"""The lifecycle of a run with a run folder: open, train, save, close. `delta-rlvr train` and scripts share it."""

from __future__ import annotations

import dataclasses
import errno
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerState
from transformers.trainer_utils import get_last_checkpoint

from delta_rlvr.adapters.trl.interrupts import Terminated, finishing_the_batch
from delta_rlvr.adapters.trl.resume import find_checkpoints, unseal_after
from delta_rlvr.adapters.trl.run_folder import DecisiveTokens, RunFolderCallback
from delta_rlvr.exit_codes import WorkFailed
from delta_rlvr.models.finite import NotFinite
from delta_rlvr.rewards import WeightedReward
from delta_rlvr.runs import RunDescription, RunWriter
from delta_rlvr.runs.layout import CONTENT, MODEL, RUN
from delta_rlvr.runs.model_card import write_card
from delta_rlvr.tasks.contents import reward_settings_digest, rewards_digest, rows_digest, rule_digest
from delta_rlvr.versions import installed_versions
from rlvr_graders.functions import AnswerReward

if TYPE_CHECKING:
    from delta_rlvr.adapters.trl.trainer import DeltaTrainer

_PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft", "datasets", "numpy", "delta-rlvr")
_SAVES = ("_save_checkpoint", "save_model", "save_tokens", "seal")
"""An error within these functions counts as that of a full disk if there is hardly any room: libraries raise different errors."""
_LITTLE = 16 * 2**20  # bytes; a disk with less counts as full


@dataclasses.dataclass
class Recording:
    """An open run folder."""

    writer: RunWriter | None
    """None on ranks other than the first."""
    callback: RunFolderCallback
    scored: str | None = None
    """A description of the held-out scores for the model card."""
    apart: str = ""
    """Why they cannot be compared, if so."""


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
    """Open the folder of a new run (`step` None) or of one that is resumed at `step` for the block, which scores and trains; then save
    weights, token sums and model card, and close the folder."""
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
    # The first of them is the grader; a penalty may follow.
    functions: Any = trainer.reward_funcs
    graders = [one for one in functions if hasattr(one, "last_verdicts")]
    callback = RunFolderCallback(
        writer,
        rollouts_every=config.rollouts_every,
        rollout_groups=config.rollout_groups,
        decisive=decisive,
        reasons=(lambda: [verdict.reason for verdict in graders[0].last_verdicts]) if graders else None,
        answer=_answer_column(functions),
    )
    callback.attach(trainer)
    recording = Recording(writer, callback)
    try:
        with writer or nullcontext(), _broken_step_noted(writer), _room_for_the_end(folder):
            yield recording
            trainer.save_model(str(folder / MODEL))
            if writer and callback.recorder:
                callback.recorder.save_tokens()
                # The metrics may lack the last steps, and a resumed run may have had no steps left.
                writer.update(steps=max(writer.info["steps"], trainer.state.global_step))
                write_card(folder / MODEL, writer.info, recording.scored, recording.apart)
    finally:
        callback.detach()


def _answer_column(functions: Sequence[Any]) -> str | None:
    """Return the column against which the first reward judges that names one, alone or within a weighted sum."""
    sums = [one for one in functions if isinstance(one, WeightedReward)]
    every = [*functions, *(part for one in sums for part, _ in one.parts)]
    return next((one.column for one in every if isinstance(one, AnswerReward)), None)


@contextmanager
def recorded_script(
    trainer: DeltaTrainer, checkpoint: Path | None, *, again: bool = False, accept_changed: bool = False
) -> Iterator[Recording]:
    """Call `recorded` for `DeltaTrainer.train` in a user's script, with the facts that the trainer knows. A signal that the script does
    not handle waits for the end of the rollout batch. `again`: the run of the folder starts again, where there is no `checkpoint`."""
    config, facts = trainer.args, script_facts(trainer)
    folder = Path(str(config.output_dir))
    resumed = (again or checkpoint is not None) and (folder / RUN).exists()
    try:
        with (
            recorded(
                trainer,
                settings={**facts["settings"], **_contents(trainer)},
                model=facts["model"],
                task=facts["task"],
                step=(_step_of(checkpoint) if checkpoint else 0) if resumed else None,
                accept_changed=accept_changed,
            ) as recording,
            finishing_the_batch(trainer, only_unhandled=True),
        ):
            yield recording
    except KeyboardInterrupt as stopped:
        if trainer.is_world_process_zero():
            whole = find_checkpoints(folder).whole
            kept = f"checkpoint-{whole[-1]} is kept" if whole else "no checkpoint was written yet"
            what = "resumes" if whole else "starts again"
            print(f"interrupted: {kept}; trainer.train(resume_from_checkpoint=True) {what}", file=sys.stderr)
        if isinstance(stopped, Terminated):
            raise SystemExit(128 + stopped.number) from None
        raise
    if recording.writer:
        _write_page(folder)


def _contents(trainer: DeltaTrainer) -> dict[str, Any]:
    """Digests of the code and data of a script: a run is not resumed with others unless the script accepts it."""
    train: Any = trainer.train_dataset
    asked: Any = trainer.eval_dataset
    return {
        f"method{CONTENT}": rule_digest(trainer.method.rule),
        f"reward{CONTENT}": rewards_digest(trainer.reward_funcs),
        f"reward_settings{CONTENT}": reward_settings_digest(trainer.reward_funcs),
        f"train_dataset{CONTENT}": rows_digest(train),
        "train_rows": len(train) if hasattr(train, "__len__") else None,
        f"eval_dataset{CONTENT}": rows_digest(asked),
        "eval_rows": len(asked) if hasattr(asked, "__len__") and not isinstance(asked, Mapping) else None,
    }


def _write_page(folder: Path) -> None:
    """The page of a finished run, where what draws it is installed."""
    try:
        from delta_rlvr.report import write_report
    except ModuleNotFoundError as error:
        print(
            f"no report: {error.name} is not installed. `pip install {error.name}`, then `delta-rlvr report {folder}`"
        )
    else:
        print(f"report: {write_report([folder])}")


def script_facts(trainer: DeltaTrainer) -> dict[str, Any]:
    """Return the facts about a script's run that `run.json` and the model card contain."""
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
    """Add the last checkpoint to the error of a training that fails."""
    try:
        yield
    except Exception as error:
        if Path(folder).is_dir() and (kept := get_last_checkpoint(folder)):
            error.add_note(f"the last checkpoint is {kept}")
        raise


def last_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint for `resume_from_checkpoint=True` in a run folder: the last complete one; None where its run has none yet
    and starts again."""
    if not (folder / RUN).exists():
        raise ValueError(
            f"resume_from_checkpoint: there is no run in {folder}; start one without it, or name the checkpoint of another run"
        )
    whole = find_checkpoints(folder).whole
    if not whole:
        print(f"{folder} has no complete checkpoint yet: the run starts again from its first step", file=sys.stderr)
    return folder / f"checkpoint-{whole[-1]}" if whole else None


def _step_of(checkpoint: Path) -> int:
    return TrainerState.load_from_json(str(checkpoint / "trainer_state.json")).global_step


def disk_is_full(error: BaseException, folder: Path) -> bool:
    """Return whether an error comes from a full disk, for which torch and safetensors raise their own errors."""
    if isinstance(error, WorkFailed):  # such as a full standard output: it says itself why
        return False
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    if any(words in str(error) for words in ("No space left on device", "File too large")):
        return True
    saving = any(frame.f_code.co_name in _SAVES for frame, _ in traceback.walk_tb(error.__traceback__))
    return saving and shutil.disk_usage(folder).free < _LITTLE


@contextmanager
def _room_for_the_end(folder: Path) -> Iterator[None]:
    """If a full disk ends the run, delete the incomplete checkpoint: it is useless, and run.json needs room for the error."""
    try:
        yield
    except Exception as error:
        if disk_is_full(error, folder):
            for step in find_checkpoints(folder).torn:
                shutil.rmtree(folder / f"checkpoint-{step}", ignore_errors=True)
        raise


@contextmanager
def _broken_step_noted(writer: RunWriter | None) -> Iterator[None]:
    """Write a line of metrics with the error for a step that was not finite, for charts and page."""
    try:
        yield
    except NotFinite as error:
        if writer and error.step is not None:
            writer.log({"step": error.step, "note": str(error)})
            writer.update(steps=error.step - 1)
        raise
