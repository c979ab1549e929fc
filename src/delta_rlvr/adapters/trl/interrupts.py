"""Ctrl-C and SIGTERM during TRL's training: the current rollout batch is finished and saved, so that a resumed run loses nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState

if TYPE_CHECKING:
    from delta_rlvr.adapters.trl.trainer import DeltaTrainer

GRACE = 15.0
"""Seconds for the rest of the rollout batch: Slurm and Kubernetes kill 30 seconds after SIGTERM, and saving takes time."""
_ECHO = 1.0
"""A second signal within so many seconds is the same one: `timeout` sends it to a process and its group, launchers forward it."""


class FinishTheBatch(TrainerCallback):
    """After a signal, stops the training on all ranks at the end of the rollout batch, with a checkpoint."""

    def __init__(self, trainer: DeltaTrainer, before: dict[int, Any]):
        """`before`: the handlers that end the program."""
        self._trainer, self._before = trainer, before
        self.number: int | None = None
        self._since = 0.0
        # A real signal, because this thread may be waiting for something.
        self.timer = threading.Timer(GRACE, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
        self.timer.daemon = True

    def note(self, number: int, _: object) -> None:
        """Handle a signal."""
        if self.number is None:
            self.number, self._since = number, time.monotonic()
            self.timer.start()
            if self._trainer.accelerator.is_main_process:
                # Not through `sys.stderr`: the signal may have interrupted a write to it.
                words = "\ninterrupted: finishing this batch and saving a checkpoint (again: stop at once)\n"
                os.write(2, words.encode())
        elif time.monotonic() - self._since > _ECHO:
            self.end()

    def end(self) -> NoReturn:
        """Do what the signal's previous handler does."""
        assert self.number is not None
        if callable(handler := self._before[self.number]):
            handler(self.number, None)
        raise KeyboardInterrupt

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if not self._trainer.ends_batch:
            return
        signalled, accelerator = self.number is not None, self._trainer.accelerator
        if accelerator.num_processes > 1:
            flag: Any = accelerator.reduce(torch.tensor(float(signalled), device=accelerator.device), "sum")
            signalled = bool(flag.item())
            if signalled and self.number is None:  # only other ranks got it
                self.number = signal.SIGTERM
        if signalled:
            self.timer.cancel()  # the save is not interrupted
            control.should_save = control.should_training_stop = True


@contextmanager
def finishing_the_batch(trainer: DeltaTrainer) -> Iterator[None]:
    """Let a first Ctrl-C or SIGTERM in the block wait for the end of the rollout batch, for `GRACE` seconds at most."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    callback = FinishTheBatch(trainer, before)
    trainer.add_callback(callback)
    try:
        for number in before:
            signal.signal(number, callback.note)
        yield
    except Exception:  # the signal may have ended another process of the group and so caused this
        if callback.number is None:
            raise
    finally:
        callback.timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
        trainer.remove_callback(callback)
    if callback.number is not None:
        callback.end()
