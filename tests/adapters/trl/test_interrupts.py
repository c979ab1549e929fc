"""Ctrl-C and SIGTERM within a training, without one: tests/commands/test_failures.py has whole runs."""

import signal
import time
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerControl, TrainerState

from delta_rlvr.adapters.trl import interrupts


@pytest.fixture
def trainer(tmp_path):
    callbacks = []
    return SimpleNamespace(
        accelerator=SimpleNamespace(is_main_process=False, num_processes=1),
        state=SimpleNamespace(global_step=2),
        args=SimpleNamespace(output_dir=tmp_path),
        save_the_last_batch=lambda unlogged: None,
        unlogged=lambda: None,
        ends_batch=True,
        callbacks=callbacks,
        add_callback=callbacks.append,
        remove_callback=callbacks.remove,
    )


def end_of_step(trainer):
    control = TrainerControl()
    trainer.callbacks[0].on_step_end(SimpleNamespace(logging_strategy="steps"), TrainerState(), control)
    return control.should_save, control.should_training_stop


def within(trainer, train):
    with interrupts.finishing_the_batch(trainer):
        train()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_waits_for_the_end_of_the_rollout_batch(trainer, number):
    ended = []
    before = signal.signal(number, lambda *given: ended.append(given[0]))

    def train():
        assert end_of_step(trainer) == (False, False)
        for _ in range(2):  # the second one at once: an echo
            signal.raise_signal(number)
        trainer.ends_batch = False
        assert end_of_step(trainer) == (False, False)
        trainer.ends_batch = True
        assert end_of_step(trainer) == (True, True)
        assert ended == []

    try:
        with pytest.raises(KeyboardInterrupt):
            within(trainer, train)
        assert ended == [number]
        assert trainer.callbacks == []
        signal.raise_signal(number)
        assert ended == [number, number]  # the handler is the old one again
    finally:
        signal.signal(number, before)


def interrupted_and_then(step, number=signal.SIGINT):
    def train():
        signal.raise_signal(number)
        step()

    return train


def test_it_does_not_wait_for_long(trainer, monkeypatch):
    monkeypatch.setattr(interrupts, "GRACE", 1.2)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        within(trainer, interrupted_and_then(lambda: time.sleep(30), signal.SIGTERM))
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("learning", [False, True])
def test_the_last_batch_is_saved_with_its_random_states_unless_weights_moved_since(trainer, learning):
    saved = []
    trainer.save_the_last_batch = lambda unlogged: saved.append(torch.get_rng_state())

    def stop_within_a_batch():
        end_of_step(trainer)
        states.append(torch.get_rng_state())
        torch.rand(3)
        if learning:
            trainer.callbacks[0].on_pre_optimizer_step(None, None, None)
        signal.raise_signal(signal.SIGINT)
        raise ZeroDivisionError  # of a process of the group that ended at the signal

    states = []
    with pytest.raises(KeyboardInterrupt):
        within(trainer, stop_within_a_batch)
    assert len(saved) == (not learning)
    assert all(torch.equal(one, states[0]) for one in saved)


def test_an_error_after_a_signal_is_the_interrupt_and_any_other_is_itself(trainer):
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        within(trainer, fail)
    with pytest.raises(KeyboardInterrupt):
        within(trainer, interrupted_and_then(fail))
