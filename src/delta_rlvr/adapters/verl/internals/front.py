"""What the fronts for verl's trainers share: the checked settings, the worker, the run folder."""

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
    """The checked settings of a whole verl config."""
    block = OmegaConf.to_container(config[BLOCK], resolve=True) if BLOCK in config else None
    settings = read_settings(block)  # type: ignore[arg-type]
    check_config(OmegaConf.to_container(config, resolve=True), settings)  # type: ignore[arg-type]
    return settings


def put_worker(workers: dict[Role, Any]) -> None:
    """Our worker for the roles that have an actor in them."""
    for role in (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef):
        if role in workers:
            workers[role] = ray.remote(DeltaWorker)


class CreditRun:
    """A run with a `delta` block, as the driver sees it. Made before a worker exists: wrong settings stop the launch here."""

    def __init__(self, config: DictConfig):
        self.settings = settings_of(config)
        with open_dict(config):
            # Workers start in another folder, and know a rule's file by its whole path.
            config[BLOCK].method = portable(config[BLOCK].method)
            # Workers are given this part of the config alone.
            config.actor_rollout_ref[BLOCK] = config[BLOCK]
        refuse_used_folder(self.settings, config.trainer.resume_mode)
        self._folder: RunFolder | None = None
        self._saved_at = self._saved_before = 0  # steps of verl's last two checkpoints; 0: there is none

    def looks_closely(self, step: int, last_step: int) -> bool:
        """Whether the rollouts of this step go into the run folder, with everything that is known about them."""
        every = self.settings.rollouts_every
        return self.settings.run_folder is not None and is_sampled(step, every=every, last=last_step)

    def open_folder(self, config: DictConfig, tokenizer: Any, *, resumed_from: int, steps_planned: int) -> None:
        """Start the run folder or go on in it, where one is asked for."""
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
        """One step into the run folder, where there is one; `table` makes what it wants to know of every response."""
        if self._folder is not None:
            self._folder.write_step(step, metrics, timing, table(dump), dump=dump)
        if self.settings.stop_if_not_finite:
            check_finite(step, metrics, self._saved_at if self._saved_at < step else self._saved_before)

    def saved_checkpoint(self, step: int) -> None:
        """verl has saved its checkpoint of this step."""
        self._saved_before, self._saved_at = self._saved_at, step
        if self._folder is not None:
            self._folder.checkpoint(step)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """The whole training: how it ended stands in the run folder."""
        try:
            yield
        except BaseException as error:
            if self._folder is not None:
                self._folder.failed(error)
            raise
        if self._folder is not None:
            self._folder.finished()
