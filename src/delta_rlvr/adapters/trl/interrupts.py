"""Ctrl-C, SIGTERM and SIGHUP during TRL's training: the current rollout batch is finished and saved, so that a resume loses nothing.

Without time for that, the end of the batch before it is saved.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from transformers import IntervalStrategy, TrainerCallback, TrainerControl, TrainerState

from delta_rlvr.adapters.trl.resume import read_seal
from delta_rlvr.exit_codes import ending_signals

if TYPE_CHECKING:
    from delta_rlvr.adapters.trl.trainer import DeltaTrainer

GRACE = 15.0
"""Seconds that the rest of the rollout batch may take after SIGTERM: Slurm and Kubernetes kill 30 seconds after it, and saving takes
time. A person who pressed Ctrl-C can press it again."""
_UNHANDLED = (signal.SIG_DFL, signal.default_int_handler)
_ECHO = 1.0
"""A second signal within so many seconds is the same one: `timeout` sends it to a process and its group, launchers forward it."""


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP in a program that does not handle it."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


class FinishTheBatch(TrainerCallback):
    """After a signal, stops the training on all ranks at the end of the rollout batch, with a checkpoint."""

    def __init__(self, trainer: DeltaTrainer, before: dict[int, Any]):
        """`before`: the handlers that end the program."""
        self._trainer, self._before = trainer, before
        self.number: int | None = None
        self._since = 0.0
        self._states: tuple[Any, ...] | None = None
        """The random states where the last rollout batch ended; None from the next step of the optimizer on."""
        self._unlogged: Any = None
        # A real signal, because this thread may be waiting for something.
        self.timer = threading.Timer(GRACE, signal.pthread_kill, (threading.get_ident(), next(iter(before))))
        self.timer.daemon = True

    def note(self, number: int, _: object) -> None:
        """Handle a signal."""
        if self.number is None:
            self.number, self._since = number, time.monotonic()
            if number != signal.SIGINT:
                self.timer.start()
            if self._trainer.accelerator.is_main_process:
                # Not through `sys.stderr`: the signal may have interrupted a write to it.
                words = "\ninterrupted: finishing this batch and saving a checkpoint (again: without this batch)\n"
                with suppress(OSError):  # the terminal was closed
                    os.write(2, words.encode())
        elif time.monotonic() - self._since > _ECHO:
            self.end()

    def end(self) -> NoReturn:
        """Do what the signal's previous handler does."""
        assert self.number is not None
        if callable(handler := self._before.get(self.number)):
            handler(self.number, None)
        raise KeyboardInterrupt if self.number == signal.SIGINT else Terminated(self.number)

    def on_pre_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._states = None

    def save_the_last_batch(self) -> None:
        """A checkpoint of where the last rollout batch ended, where nothing was learnt since and none is there."""
        trainer, step = self._trainer, self._trainer.state.global_step
        there = read_seal(Path(str(trainer.args.output_dir)) / f"checkpoint-{step}")
        if self._states is not None and there is None and trainer.accelerator.num_processes == 1:
            of_python, of_numpy, of_torch, of_devices = self._states
            random.setstate(of_python)
            np.random.set_state(of_numpy)
            torch.set_rng_state(of_torch)
            torch.cuda.set_rng_state_all(of_devices)
            trainer.save_the_last_batch(self._unlogged)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if not self._trainer.ends_batch:
            return
        devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        self._states = random.getstate(), np.random.get_state(), torch.get_rng_state(), devices
        self._unlogged = self._trainer.unlogged()
        signalled, accelerator = self.number is not None, self._trainer.accelerator
        if accelerator.num_processes > 1:
            flag: Any = accelerator.reduce(torch.tensor(float(signalled), device=accelerator.device), "sum")
            signalled = bool(flag.item())
            if signalled and self.number is None:  # only other ranks got it
                self.number = signal.SIGTERM
        if signalled:
            self.timer.cancel()  # the save is not interrupted
            control.should_save = control.should_training_stop = True
            # The resumed run's first line has the steps after the checkpoint alone.
            control.should_log |= args.logging_strategy == IntervalStrategy.STEPS


@contextmanager
def finishing_the_batch(trainer: DeltaTrainer, *, only_unhandled: bool = False) -> Iterator[None]:
    """Let a first signal in the block wait for the end of the rollout batch (`GRACE` seconds at most, except for Ctrl-C).
    `only_unhandled`: leave alone the signals for which the program has a handler of its own."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, *ending_signals())}
    if only_unhandled:
        before = {number: handler for number, handler in before.items() if handler in _UNHANDLED}
    if not before:
        yield
        return
    callback = FinishTheBatch(trainer, before)
    trainer.add_callback(callback)
    try:
        for number in before:
            signal.signal(number, callback.note)
        yield
    except (Exception, KeyboardInterrupt):  # the signal may have ended another process of the group and so caused this
        if callback.number is None:
            raise
    finally:
        callback.timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
        trainer.remove_callback(callback)
    if callback.number is not None:
        callback.save_the_last_batch()
        callback.end()
