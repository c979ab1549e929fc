"""The common parts of verl's trainers with token weights: the checked settings, the worker, the run folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf, open_dict
from verl.trainer.ppo.utils import Role

from delta_rlvr.adapters.verl.checks import check_config
from delta_rlvr.adapters.verl.internals.worker import DeltaWorker
from delta_rlvr.adapters.verl.run_folder import RunFolder, Table, check_finite, refuse_used_folder
from delta_rlvr.adapters.verl.settings import BLOCK, VerlSettings, read_settings
from delta_rlvr.objectives import portable
from delta_rlvr.runs.recorder import is_sampled


def settings_of(config: DictConfig) -> VerlSettings:
    """Return the checked settings of a whole verl config."""
    block = OmegaConf.to_container(config[BLOCK], resolve=True) if BLOCK in config else None
    settings = read_settings(block)  # type: ignore[arg-type]
    check_config(OmegaConf.to_container(config, resolve=True), settings)  # type: ignore[arg-type]
    return settings


def put_worker(workers: dict[Role, Any]) -> None:
    """Replace the worker of the roles with an actor by ours."""
    for role in (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef):
        if role in workers:
            workers[role] = ray.remote(DeltaWorker)


class CreditRun:
    """The driver's part of a run with a `delta` block. It is made before any worker, so that wrong settings stop the launch."""

    def __init__(self, config: DictConfig):
        self.settings = settings_of(config)
        with open_dict(config):
            # Workers start in another folder and need the absolute path of a rule's file.
            config[BLOCK].method = portable(config[BLOCK].method)
            # Workers get only this part of the config.
            config.actor_rollout_ref[BLOCK] = config[BLOCK]
        refuse_used_folder(self.settings, config.trainer.resume_mode)
        self._folder: RunFolder | None = None
        self._saved_at = self._saved_before = 0  # steps of verl's last two checkpoints; 0: there is none

    def looks_closely(self, step: int, last_step: int) -> bool:
        """Return whether the rollouts of this step go into the run folder, with all details."""
        every = self.settings.rollouts_every
        return self.settings.run_folder is not None and is_sampled(step, every=every, last=last_step)

    def open_folder(self, config: DictConfig, tokenizer: Any, *, resumed_from: int, steps_planned: int) -> None:
        """Start or resume the run folder, if there is to be one."""
        self._saved_at = resumed_from
        if self.settings.run_folder is not None:
            self._folder = RunFolder.open(
                self.settings,
                OmegaConf.to_container(config, resolve=True),  # type: ignore[arg-type]
                tokenizer,
                resumed_from=resumed_from,
                steps_planned=steps_planned,
            )

    def write_step(
        self,
        step: int,
        metrics: Mapping[str, Any],
        timing: Mapping[str, float],
        table: Callable[[bool], Table],
        *,
        dump: bool,
    ) -> None:
        """Write a step to the run folder, if there is one, and check that it is finite. `table` returns its responses' fields."""
        if self._folder is not None:
            self._folder.write_step(step, metrics, timing, table(dump), dump=dump)
        if self.settings.stop_if_not_finite:
            check_finite(step, metrics, self._saved_at if self._saved_at < step else self._saved_before)

    def saved_checkpoint(self, step: int) -> None:
        """Take note of verl's checkpoint of this step."""
        self._saved_before, self._saved_at = self._saved_at, step
        if self._folder is not None:
            self._folder.checkpoint(step)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record in the run folder how the training in the block ends."""
        try:
            yield
        except BaseException as error:
            if self._folder is not None:
                self._folder.failed(error)
            raise
        if self._folder is not None:
            self._folder.finished()
