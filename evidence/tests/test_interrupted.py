"""A study that is killed, stopped, crowded out of memory or met by a run that diverges: what was trained is not lost."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from delta_evidence.judging import Judge, Judged
from delta_evidence.learning import training as training_module
from delta_evidence.learning.checkpoint import begun_stacks, path_of, write_state
from delta_evidence.learning.outcome import BatchStatistics
from delta_evidence.learning.protocol import Protocol, Run, TrainingSettings, read_protocols
from delta_evidence.learning.runner import Study
from delta_evidence.learning.session import Machine
from delta_evidence.learning.training import StackedTraining
from delta_evidence.phases import Phases, ProgressLines
from delta_evidence.rollouts import draws
from delta_evidence.stack.memory import bytes_per_run, runs_that_fit
from delta_evidence.stack.model_weights import shape_of
from delta_evidence.stack.policy import StackedPolicy
from delta_evidence.stopping import Stop
from delta_rlvr.cli import main
from delta_rlvr.files import InUse, locked
from delta_rlvr.models import load_policy
from killed import killed, running
from stacks import bundled_collector

PROTOCOL = """
question: does it survive
tasks: [phrased-sums]
arms: {dapo: 2, delta: 2}
training: {steps: 8, prompts: 3, group: 4, updates: 2}
heldout: {problems: 2, samples: 2, also: [{temperature: 0, after: [0, 2, 4]}, {temperature: 0.6, samples: 2}]}
"""


# `test_learning.py` checks the shapes of the same trainings.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("protocol") / "tiny.yaml"
    place.write_text(PROTOCOL)
    return place


@pytest.fixture(scope="module")
def expected(written: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The outcomes of the study, left alone, in stacks of two."""
    folder = tmp_path_factory.mktemp("alone")
    assert main(["study", str(written), "--output", str(folder), "--runs-at-once", "2"]) == 0
    lines = (folder / "runs.jsonl").read_text()
    # Every run learns something: else all of this would prove nothing.
    assert all(max(json.loads(line)["gradient_norm"]) > 0 for line in lines.splitlines())
    for line in lines.splitlines():
        scores = [(one["temperature"], one["batch"]) for one in json.loads(line)["heldout"]]
        assert scores == [(0, 0), (0, 2), (0, 4), (0.6, 4)]
    return lines


def study_command(written: Path, folder: Path, *more: str) -> list[str]:
    return ["study", str(written), "--output", str(folder), "--runs-at-once", "2", *more]


def goes_on(given: list[str], expected: str) -> None:
    """The same command again comes to what was expected."""
    assert main(given) == 0
    assert (Path(given[3]) / "runs.jsonl").read_text() == expected


def test_a_study_that_is_killed_inside_a_stack_ends_with_the_same_outcomes(
    written: Path, expected: str, tmp_path: Path, capsys: Any
) -> None:
    given = study_command(written, tmp_path, "--checkpoint-seconds", "0")
    # The second stack has 8 updates too: the second one of its third batch is never made.
    killed("delta_evidence.learning.training:StackedTraining.update", 13, given)
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 2
    (left,) = (tmp_path / "stacks").glob("*.pt")
    assert torch.load(left)["done"] == 2
    (tmp_path / "stacks" / f".{left.name}.1234.draft").write_bytes(b"torn")
    goes_on(given, expected)
    assert "going on after batch 2 of 4" in capsys.readouterr().out
    assert not list((tmp_path / "stacks").iterdir())


def test_a_signal_stops_where_nothing_is_lost(
    written: Path, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    update, calls = StackedTraining.update, []

    def update_and_signal(self: StackedTraining, *given: Any) -> Any:
        calls.append(self.done)
        # The first update of the second batch; the second one is made before the study stops.
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, *given)

    monkeypatch.setattr(StackedTraining, "update", update_and_signal)
    assert main(study_command(written, tmp_path)) == 128 + signal.SIGTERM
    told = capsys.readouterr().out
    assert "stopping as soon as nothing is lost" in told
    assert "stopped with 4 runs to go: the same command goes on from here" in told
    assert len(calls) in (3, 4)
    monkeypatch.undo()
    assert list((tmp_path / "stacks").glob("*.pt"))
    goes_on(study_command(written, tmp_path), expected)


SIGNALS_ITS_GROUP = """
import os, sys, time
from delta_evidence.judging import Judge
from delta_rlvr.cli import main
call, calls = Judge.__call__, []
def call_and_signal(self, asked):
    calls.append(1)
    # The start's score, that before the first batch, and two batches; all processes that the signal ends are gone when it judges.
    if len(calls) != 4:
        yield from call(self, asked)
        return
    os.killpg(0, int(sys.argv[1]))
    time.sleep(0.5)
    yield from call(self, asked)
Judge.__call__ = call_and_signal
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_stops_as_one_to_the_study_does(
    written: Path, expected: str, tmp_path: Path, number: signal.Signals, capsys: Any
) -> None:
    """`timeout`, Slurm and a terminal's Ctrl-C reach the processes that judge, too, while verdicts are waited for."""
    given = study_command(written, tmp_path, "--workers", "2")
    study = subprocess.run(
        [sys.executable, "-c", SIGNALS_ITS_GROUP, str(int(number)), *given],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
        capture_output=True,
        text=True,
    )
    assert study.returncode == 128 + number, study.stderr
    assert "stopped with 4 runs to go" in study.stdout
    goes_on(given, expected)
    assert "going on after batch" in capsys.readouterr().out


def test_time_that_is_up_ends_with_a_checkpoint(
    written: Path, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    batch, done = StackedTraining.batch, []

    def batch_and_count(self: StackedTraining, number: int) -> Any:
        done.append(number)
        return batch(self, number)

    monkeypatch.setattr(StackedTraining, "batch", batch_and_count)
    # The first stack has 4 batches: the time is up in the second one's third.
    monkeypatch.setattr(Stop, "due", lambda self, needed=0.0: len(done) >= 7)
    assert main(study_command(written, tmp_path, "--seconds", "1000")) == 3
    assert "stopped with 2 runs to go" in capsys.readouterr().out
    monkeypatch.undo()
    assert list((tmp_path / "stacks").glob("*.pt"))
    goes_on(study_command(written, tmp_path), expected)


def test_a_limit_counts_what_is_still_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stop = Stop(60)
    assert not stop.due(59)
    assert stop.due(61)
    now[0] = 161
    assert stop.due()
    assert not Stop().due(1e9)
    with pytest.raises(ValueError, match="seconds"):
        Stop(0)


def test_a_checkpoint_that_cannot_be_written_or_read(written: Path, expected: str, tmp_path: Path, capsys: Any) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A checkpoint has more than ten megabytes.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        goes_on(study_command(written, tmp_path / "full", "--checkpoint-seconds", "0"), expected)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "no checkpoint could be written (File too large)" in capsys.readouterr().out
    (tmp_path / "torn" / "stacks").mkdir(parents=True)
    (tmp_path / "torn" / "stacks" / "0.pt").write_bytes(b"torn")
    assert main(study_command(written, tmp_path / "torn")) == 2
    assert "delete it, and its runs start over" in capsys.readouterr().err


# ---------------------------------------------------------------- memory


def limited_memory(monkeypatch: pytest.MonkeyPatch, *, rows: int, runs: int) -> None:
    """A device that fits so many rows into a training pass, and so many runs into a rollout batch."""
    response_hidden, collect = StackedPolicy.response_hidden, training_module.Collector.collect

    def crowded(self: StackedPolicy, prompts: Any, prompt_mask: Any, responses: Any, **settings: Any) -> Any:
        if responses.shape[0] * responses.shape[1] > rows:
            raise torch.OutOfMemoryError("pretended")
        return response_hidden(self, prompts, prompt_mask, responses, **settings)

    def crowded_runs(self: Any, batches: Any, **settings: Any) -> Any:
        if len(batches) > runs and settings["number"] == 2:
            raise torch.OutOfMemoryError("pretended")
        return collect(self, batches, **settings)

    monkeypatch.setattr(StackedPolicy, "response_hidden", crowded)
    monkeypatch.setattr(training_module.Collector, "collect", crowded_runs)


def test_passes_shrink_and_a_stack_is_halved_where_memory_is_short(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    limited_memory(monkeypatch, rows=16, runs=2)
    together: dict[Run, list[float]] = {}
    batch = StackedTraining.batch

    def noted(self: StackedTraining, number: int) -> list[BatchStatistics]:
        statistics = batch(self, number)
        if len(self.runs) == 4:
            for run, of_run in zip(self.runs, statistics, strict=True):
                together.setdefault(run, []).append(float(f"{of_run.gradient_norms[0]:.4g}"))
        return statistics

    monkeypatch.setattr(StackedTraining, "batch", noted)
    assert main([*study_command(written, tmp_path)[:-1], "4"]) == 0
    told = capsys.readouterr().out
    assert "the device ran out of memory: going on with" in told
    assert "stack 1/1 does not fit into the device's memory: its runs go on in two halves" in told
    assert told.count("going on after batch 2 of 4") == 2  # nothing of the first two batches is made again
    assert "stack 2/2 done" in told
    outcomes = Study(read_protocols(written)[0], tmp_path).outcomes()
    assert [(one.run, one.gradient_norm[:2]) for one in outcomes] == list(together.items())
    assert [len(one.curve) for one in outcomes] == [4] * 4
    assert not list((tmp_path / "stacks").iterdir())


def test_a_single_run_that_does_not_fit_says_what_to_do(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    limited_memory(monkeypatch, rows=1000, runs=0)
    assert main(study_command(written, tmp_path)) == 1
    assert "too little memory for one run of builtin: use --dtype bfloat16" in capsys.readouterr().err


def test_nothing_of_a_finished_stack_stays_alive(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policy, sampler, optimizer and trained weights of a stack are gone when the next one is built."""
    alive: list[weakref.ref[Any]] = []
    build = StackedTraining.__init__

    def watched(self: StackedTraining, collector: Any, *given: Any, **settings: Any) -> None:
        assert not [kept() for kept in alive if kept() is not None]
        build(self, collector, *given, **settings)
        parts = self, self.optimizer, collector, collector.sampler, collector.policy
        alive.extend(weakref.ref(part) for part in (*parts, *self.policy.parameters()))

    monkeypatch.setattr(StackedTraining, "__init__", watched)
    settings = TrainingSettings(steps=1, prompts=2, group=2, updates=1, max_tokens=8)
    protocol = Protocol("p", "q", ("phrased-sums",), {"dapo": 3}, training=settings)
    machine = Machine(runs_at_once=1, compute_dtype=torch.bfloat16)
    Study(protocol, tmp_path).go(machine, lambda _: None, export=["dapo"])
    assert len(alive) > 3 * 6
    assert not [kept() for kept in alive if kept() is not None]


@pytest.mark.gpu
def test_a_finished_stack_gives_the_device_its_memory_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second stack begins with what the first one began with; libraries may keep a little for themselves after the first."""
    held: list[int] = []
    build = StackedTraining.__init__

    def watched(self: StackedTraining, *given: Any, **settings: Any) -> None:
        build(self, *given, **settings)
        held.append(torch.cuda.memory_allocated())

    monkeypatch.setattr(StackedTraining, "__init__", watched)
    settings = TrainingSettings(steps=4, prompts=4, group=4, updates=2)
    protocol = Protocol("p", "q", ("phrased-sums",), {"delta": 3}, baseline="delta", training=settings)
    machine = Machine(device="cuda", runs_at_once=1, compute_dtype=torch.bfloat16)
    Study(protocol, tmp_path).go(machine, lambda _: None)
    assert len(held) == 3
    assert held[2] <= held[1]


def test_as_many_runs_as_half_of_the_free_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = load_policy("builtin")
    shape = shape_of(model)
    weights = sum(weight.numel() for weight in model.parameters())
    token = 2 * shape.layers * shape.kv_heads * shape.head_width  # keys and values
    sampling = {"rows": 12, "prompts": 3, "prompt_time": 32, "time": 64}
    logits = 12 * model.config.vocab_size * 28
    for dtype, of_weight, of_number in ((torch.float32, 16, 4), (torch.bfloat16, 20, 2)):
        whole = of_weight * weights + of_number * token * (12 * 64 + 3 * 32) + logits
        assert bytes_per_run(model, dtype, **sampling) == whole
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2000))
    assert [runs_that_fit(torch.device("cuda"), each, 100) for each in (1, 70, 600)] == [100, 7, 1]


# ---------------------------------------------------------------- two processes


def test_a_second_process_is_refused_and_a_dead_one_leaves_no_lock(written: Path, tmp_path: Path, capsys: Any) -> None:
    holding = (
        "import sys, time; from pathlib import Path; from delta_rlvr.files import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    with running(holding, str(tmp_path)) as (holder, said):
        assert said == "held"
        assert main(study_command(written, tmp_path)) == 2
        assert f"is in use by process {holder.pid} on " in capsys.readouterr().err
    mine = pytest.raises(InUse, match=f"in use by process {os.getpid()}")
    with locked(tmp_path), mine, locked(tmp_path):
        pass


def test_judges_end_with_the_study_that_was_killed() -> None:
    judging = (
        "import time; from delta_evidence.judging import Judge; from transformers import AutoTokenizer\n"
        "from delta_rlvr.models import resolve_model\n"
        "if __name__ == '__main__':\n"
        "    judge = Judge(AutoTokenizer.from_pretrained(resolve_model('builtin')), workers=2)\n"
        "    judge._pool.submit(int).result()\n"
        "    print(*judge._pool._processes, flush=True); time.sleep(60)"
    )
    with running(judging) as (_, said):
        workers = said.split()
    assert workers
    end = time.monotonic() + 60
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < end, "a worker outlived its study by a minute"
        time.sleep(0.05)


# ---------------------------------------------------------------- a run that diverges


class Coins(Judge):
    """Half of all responses are right, by nothing that they say: short ones have a signal too."""

    def __call__(self, asked: Any) -> Iterator[Judged]:
        return (Judged([""] * len(one.ids), [float(sum(ids) % 2) for ids in one.ids], None) for one in asked)


def training_of(runs: list[Run]) -> StackedTraining:
    """All responses are cut at 8 tokens, so that what one run samples cannot change the others' padding."""
    settings = TrainingSettings(steps=6, prompts=2, group=4, updates=2, max_tokens=8)
    return StackedTraining(bundled_collector(len(runs), Coins)[0], runs, settings)


def runs_of(*arms: str) -> list[Run]:
    return [Run("phrased-sums", arm, 5) for arm in arms]


def test_a_run_that_diverges_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of("dapo", "sapo", "delta")
    whole = training_of(runs)
    whole.train()
    assert all(min(batch.gradient_norms) > 0 for row in whole.seen for batch in row)
    policy_loss, calls = training_module.policy_loss, []

    def spoilt(inputs: Any, surrogate: Any, *given: Any, **settings: Any) -> Any:
        loss = policy_loss(inputs, surrogate, *given, **settings)
        if type(surrogate).__name__ != "SoftGate":
            return loss
        calls.append(0)
        return loss * (math.nan if len(calls) == 4 else 1)  # sapo's second update of its second batch

    monkeypatch.setattr(training_module, "policy_loss", spoilt)
    spoiled = training_of(runs)
    spoiled.train()
    assert spoiled.diverged == {1: 1}
    assert len(calls) == 4  # it is not trained any further
    assert [len(row) for row in spoiled.seen] == [3, 1, 3]
    assert spoiled.seen[1] == whole.seen[1][:1]
    assert [spoiled.seen[0], spoiled.seen[2]] == [whole.seen[0], whole.seen[2]]
    for one, other in zip(spoiled.policy.parameters(), whole.policy.parameters(), strict=True):
        assert torch.equal(one[[0, 2]], other[[0, 2]])
        assert one.isfinite().all()


def test_a_stack_whose_runs_all_diverge_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    policy_loss = training_module.policy_loss
    monkeypatch.setattr(training_module, "policy_loss", lambda *given, **more: policy_loss(*given, **more) * math.nan)
    training = training_of(runs_of("dapo", "delta"))
    training.train()
    assert training.diverged == {0: 0, 1: 0}
    assert training.seen == [[], []]
    assert all(weight.isfinite().all() for weight in training.policy.parameters())


def test_a_diverged_run_is_kept_as_such_and_the_state_knows_it(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    policy_loss = training_module.policy_loss

    def spoilt(inputs: Any, *given: Any, **settings: Any) -> Any:
        loss = policy_loss(inputs, *given, **settings)
        # DelTA's weights are not all alike: its second batch with a signal diverges.
        weights = inputs.weights[inputs.mask]
        return loss * math.nan if weights.std() > 0 else loss

    monkeypatch.setattr(training_module, "policy_loss", spoilt)
    assert main(study_command(written, tmp_path)) == 0
    told = capsys.readouterr().out
    assert "diverged in batch" in told
    outcomes = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [line["after"] is None for line in outcomes] == [line["run"]["arm"] == "delta" for line in outcomes]
    assert all(line["diverged"] == len(line["curve"]) for line in outcomes if line["run"]["arm"] == "delta")
    assert all("diverged" not in line for line in outcomes if line["run"]["arm"] == "dapo")
    assert "phrased-sums: left out, as they diverged: delta, seeds 0, 1." in told
    assert not Study(read_protocols(written)[0], tmp_path).missing()


def test_a_state_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """In the middle, and of some of the runs only; a half-trained batch is no state."""
    runs = runs_of("dapo", "delta", "sapo")

    class Enough(Exception):
        pass

    def stop(number: int, _: Any) -> None:
        if number == 0:
            raise Enough

    first = training_of(runs)
    with pytest.raises(Enough):
        first.train(stop)
    write_state(path_of(tmp_path, runs), runs, first.state())
    (stack,) = begun_stacks(tmp_path, [runs[2], runs[1]])
    assert stack.runs == [runs[1], runs[2]]
    assert stack.done == 1
    part = training_of(stack.runs)
    state = stack.state()
    assert state is not None
    part.restore(state)
    first.train()
    part.train()
    assert [row[0] for row in part.seen] == [row[0] for row in first.seen[1:]]
    for one, other in zip(part.policy.parameters(), first.policy.parameters(), strict=True):
        # Stacks of other sizes add in another order; Adam's step is 5e-4 where a gradient is rounding alone.
        torch.testing.assert_close(one, other[1:], atol=2e-3, rtol=1e-4)
        assert (one - other[1:]).abs().mean() < 1e-6
    first.within_batch = True
    with pytest.raises(RuntimeError, match="half trained"):
        first.state()


# ---------------------------------------------------------------- random numbers and progress


def test_streams_do_not_meet_and_early_ones_are_those_of_kept_outcomes() -> None:
    offsets = (0, 1 << 40, 1 << 41, 1 << 42)  # samples, noise, order of mini-batches, conditions
    numbers = [*range(0, 1200, 7), 255, 256, 257, 511, 512, 513, 1024]
    first = {
        (seed + offset, number): draws(seed + offset, number, (2,)).tobytes()
        for seed in (0, 3)
        for offset in offsets
        for number in numbers
    }
    assert len(set(first.values())) == len(first)
    for number in (0, 17, 255):
        kept = np.random.Generator(np.random.Philox([3 + (1 << 40), number])).random(2)
        assert (draws(3 + (1 << 40), number, (2,)) == kept).all()


def test_progress_comes_from_beside_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delta_evidence.phases.EVERY", 0.02)
    told: list[str] = []
    phases = Phases(tell=told.append)
    with ProgressLines(phases) as progress:
        progress.left, progress.where = 10, "stack 1/2"
        with phases("sampling"):
            end = time.monotonic() + 30
            while not told and time.monotonic() < end:
                time.sleep(0.01)
        progress.advance(4)
        assert " left" in progress.line()
    assert told[0] == "  stack 1/2, sampling"
    assert progress.left == 6


def test_phases_add_up_their_seconds() -> None:
    phases = Phases(timed=True)
    for _ in range(2):
        with phases("sampling"):
            time.sleep(0.01)
    with phases("judging"):
        pass
    assert phases.now == "judging"
    assert phases.seconds["sampling"] >= 0.02 > phases.seconds["judging"]
