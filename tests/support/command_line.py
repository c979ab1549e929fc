"""`delta-rlvr ...` in a process of its own that can be killed, without the seconds that its imports take each time."""

import gc
import json
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from delta_rlvr.cli import main
from delta_rlvr.commands.options import read_request

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["delta_rlvr.commands.compare", "delta_rlvr.commands.train", "delta_rlvr.report.page"])

SMALL = [
    *("--per_device_train_batch_size", "8", "--num_generations", "4", "--eval_problems", "0"),
    *("--report", "false"),
]
"""Four prompts per rollout batch, two steps on it."""


def built(words):
    """The settings of the run that words of a command line ask for."""
    return read_request([str(word) for word in words]).build()


@dataclass
class Command:
    """A command that has been started."""

    process: Any
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def finish(self, seconds: float = 240) -> int:
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still running after {seconds} s:\n{self.output}"
        return self.process.exitcode

    def kill_when(self, condition: Any, seconds: float = 240) -> None:
        """Kill -9 as soon as a condition holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert self.process.is_alive(), f"it ended by itself:\n{self.output}"
            assert time.monotonic() < end, f"it did not get there:\n{self.output}"
            time.sleep(0.01)
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        assert self.process.exitcode == -signal.SIGKILL


def start(*arguments: Any, log: Path, die_in_save: int | None = None) -> Command:
    """`die_in_save`: kill -9 in the middle of writing the checkpoint of that step."""
    words = [str(argument) for argument in arguments]
    process = FORKS.Process(target=_run, args=(words, str(log), die_in_save))
    process.start()
    return Command(process, log)


def run(*arguments: Any, log: Path) -> str:
    """Run to the end; what it said."""
    command = start(*arguments, log=log)
    assert command.finish() == 0, command.output
    return command.output


def _run(arguments: list[str], log: str, die_in_save: int | None) -> None:
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import torch
    from transformers import Trainer

    from delta_rlvr.cli import main

    gc.freeze()  # no collection needs to look at what was imported
    torch.set_num_threads(1)
    write_random_state = Trainer._save_rng_state

    def die(trainer: Trainer, folder: str) -> None:
        if trainer.state.global_step == die_in_save:
            os.kill(os.getpid(), signal.SIGKILL)
        write_random_state(trainer, folder)

    Trainer._save_rng_state = die  # type: ignore[method-assign]
    code = main(arguments)
    sys.stdout.flush()
    sys.exit(code)


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run, without what time they took."""
    path = folder / "metrics.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [{k: v for k, v in line.items() if k != "time" and not k.startswith("seconds_")} for line in lines]


def run_info(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def change_info(folder: Path, **facts: Any) -> Path:
    """The same run with other facts in its run.json."""
    (folder / "run.json").write_text(json.dumps(run_info(folder) | facts), encoding="utf-8")
    return folder


def reopen(folder: Path) -> None:
    """As if the run had been killed before it could say that it is finished."""
    change_info(folder, status="running")


def assert_same_run(one: Path, other: Path) -> None:
    """The same steps, rollouts, token sums and weights, to the last bit."""
    assert metrics(other) == metrics(one)
    names = sorted(path.name for path in (one / "rollouts").iterdir())
    assert sorted(path.name for path in (other / "rollouts").iterdir()) == names
    for name in names:
        assert (other / "rollouts" / name).read_bytes() == (one / "rollouts" / name).read_bytes(), name
    with np.load(one / "tokens.npz") as expected, np.load(other / "tokens.npz") as found:
        assert sorted(found) == sorted(expected)
        for name in expected:
            assert np.array_equal(found[name], expected[name]), name
    weights = "model/model.safetensors"
    assert (other / weights).read_bytes() == (one / weights).read_bytes()


def refused(capsys: Any, *arguments: object) -> str:
    """The one line that a command says before it ends with exit code 2."""
    capsys.readouterr()
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as stop:  # argparse's way, with its usage line
        code = stop.code
    told = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert not any(line.startswith("Traceback") for line in told)
    assert len(told) == 1 or told[0].startswith("usage:"), told
    return told[-1]
