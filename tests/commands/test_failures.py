"""Runs that fail in the middle: one line that says why, and which checkpoint is left."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line import SMALL, assert_same_run, metrics, refused, run_info
from delta_rlvr import cli
from delta_rlvr.adapters.trl.recorded import disk_is_full
from delta_rlvr.cli import main
from delta_rlvr.files import locked
from delta_rlvr.training.resuming import saying_how_to_resume

SAVED = [*SMALL, "--steps", "6", "--save_steps", "2", "--eval_problems", "0"]


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_run_that_diverges_ends_in_one_line(tmp_path, capsys, command):
    given = [*SAVED, "--learning_rate", "1e4", "--output", str(tmp_path / "run")]
    folder = tmp_path / "run"
    if command == "compare":
        given += ["--methods", "dapo,delta", "--seeds", "1", "--eval_problems", "2", "--eval_samples", "1"]

    assert main([command, *given]) == 1
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith(f"delta-rlvr {command}: step ")
    assert "not finite; training stopped there" in told
    assert "no checkpoint was written yet" in told or "is kept; " in told
    assert ("train --output" in told) == (command == "train")
    assert ("in run 1 of 2 (dapo, seed 42): " in told) == (command == "compare")
    folder = next(folder.glob("dapo-seed*"), folder)
    assert run_info(folder)["status"] == "failed"
    assert "not finite" in metrics(folder)[-1]["note"]


@pytest.mark.parametrize(
    ("launch", "command"),
    [
        ({}, "delta-rlvr train"),
        ({"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1"}, "delta-rlvr train"),
        (
            {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1"},
            "torchrun --nproc_per_node 2 -m delta_rlvr train",
        ),
        (
            {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "2"},
            "torchrun --nnodes 2 --nproc_per_node 8 -m delta_rlvr train",
        ),
    ],
)
def test_the_command_that_goes_on_is_launched_as_the_run_was(tmp_path, monkeypatch, launch, command):
    """By what torchrun tells its processes; `test_runs.py` asks torchrun itself."""
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in launch.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt) as ended, saying_how_to_resume(tmp_path):
        raise KeyboardInterrupt
    assert str(ended.value).endswith(f": {command} --output {tmp_path} --resume")


FAILS_AT_THE_THIRD_BATCH = """
weigh = FirstHalf.weigh
def late(self, batch):
    assert batch.round_number < 4, "too late"
    return weigh(self, batch)
FirstHalf.weigh = late
"""


def test_a_rule_that_fails_late_leaves_a_checkpoint_that_its_mended_file_goes_on_from(tmp_path, capsys):
    folder, rule = tmp_path / "run", tmp_path / "late.py"
    text = (Path(__file__).parents[1] / "own_rule" / "my_rules.py").read_text()
    rule.write_text(text + FAILS_AT_THE_THIRD_BATCH)
    given = ["train", *SAVED, "--method", f"{rule}:FirstHalf", "--show_methods", "", "--output", str(folder)]
    try:
        code, told = main(given), capsys.readouterr().err
    except AssertionError as error:  # a bug in somebody's rule shows its traceback, and this below it
        code, told = 1, "".join(error.__notes__)
    assert code == 1
    assert (
        f"checkpoint-4 is kept; resume with: delta-rlvr train --output {folder} --resume; add --accept_changed" in told
    )
    rule.write_text(text)
    again = ["train", "--output", str(folder), "--resume", "--report", "false"]
    assert main(again) == 2
    assert "resume anyway with --accept_changed" in capsys.readouterr().err
    assert main([*again, "--accept_changed"]) == 0
    resumed = run_info(folder)["resumed"][-1]
    assert resumed["step"] == 4
    assert list(resumed["settings_changed"]) == ["method_sha256"]
    assert "accept_changed" not in run_info(folder)["settings"]


def interrupted(words, send, far_enough):
    """What a command says, and how it ends, when `send` is called with its process as soon as it is far enough."""
    process = subprocess.Popen(
        [sys.executable, "-m", "delta_rlvr.cli", *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    while not far_enough():
        assert process.poll() is None
        time.sleep(0.05)
    send(process)
    _, told = process.communicate(timeout=120)
    return told, process.returncode


def terminate_the_group(process):
    """As `timeout` does: it sends the signal to the process and then to the whole group."""
    process.terminate()
    os.killpg(process.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("send", "code"),
    [
        (terminate_the_group, 143),
        (lambda process: process.send_signal(signal.SIGHUP), 143),
        (lambda process: os.killpg(process.pid, signal.SIGINT), 130),
    ],
)
def test_an_interrupt_saves_the_step_and_a_resumed_run_is_the_uninterrupted_one(tmp_path, send, code):
    """Two steps share a rollout batch: the checkpoint is where it ends. Without the interrupt none would be saved before step 10."""
    words = [*SMALL, "--steps", "10", "--save_steps", "10", "--rollouts_every", "1"]
    folder = tmp_path / "run"
    told, ended = interrupted(["train", *words, "--output", str(folder)], send, lambda: len(metrics(folder)) >= 3)
    assert ended == code, told
    info = run_info(folder)
    assert info["status"] == "interrupted"
    steps = info["steps"]
    assert steps in (4, 6, 8, 10)
    assert steps == len(metrics(folder))
    assert "finishing this batch and saving a checkpoint" in told
    kept = f"checkpoint-{steps} is kept; resume with: delta-rlvr train --output {folder} --resume"
    assert f"interrupted; {kept}" in told
    assert main(["train", "--output", str(folder), "--resume"]) == 0
    assert main(["train", *words, "--output", str(tmp_path / "whole")]) == 0
    assert_same_run(tmp_path / "whole", folder)


SLOW = """
import time
from pathlib import Path

def slow(completions, **_):
    if Path({path!r}).exists() and len(Path({path!r}).read_text().splitlines()) >= 2:
        time.sleep(60)
    return [float(len(one) % 2) for one in completions]
"""


def test_a_second_signal_does_not_wait(tmp_path):
    folder, reward = tmp_path / "run", tmp_path / "slow.py"
    reward.write_text(SLOW.format(path=str(folder / "metrics.jsonl")))

    def twice(process):
        process.terminate()
        time.sleep(2)
        assert process.poll() is None
        process.terminate()

    words = ["train", *SAVED, "--reward", f"{reward}:slow", "--output", str(folder)]
    told, ended = interrupted(words, twice, lambda: len(metrics(folder)) >= 2)
    assert ended == 143, told
    assert "checkpoint-2 is kept" in told
    assert run_info(folder)["status"] == "interrupted"


STOPS = """
import time
from pathlib import Path

def reward(completions, trainer_state=None, **_):
    if Path({path!r}).exists() and trainer_state and trainer_state.global_step >= 4:
        time.sleep(600)
    return [float(len(one) % 2) for one in completions]
"""


def test_a_signal_within_a_long_batch_saves_the_end_of_the_one_before_it(tmp_path):
    """Neither is there a checkpoint yet, nor time for the batch at work; nothing is lost."""
    reward, marker = tmp_path / "stops.py", tmp_path / "slow"
    reward.write_text(STOPS.format(path=str(marker)))
    marker.touch()
    words = ["train", *SMALL, "--steps", "8", "--save_steps", "100", "--rollouts_every", "1"]
    words += ["--reward", f"{reward}:reward"]

    def twice(process):
        for _ in range(2):
            time.sleep(2)
            process.send_signal(signal.SIGINT)

    run = tmp_path / "run"
    told, ended = interrupted([*words, "--output", str(run)], twice, lambda: len(metrics(run)) >= 4)
    assert ended == 130, told
    assert "checkpoint-4 is kept; resume with" in told
    marker.unlink()
    assert main(["train", "--output", str(tmp_path / "run"), "--resume"]) == 0
    assert main([*words, "--output", str(tmp_path / "whole")]) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "run")


def test_a_second_run_in_a_folder_at_work_is_refused(tmp_path, capsys):
    folder, reward = tmp_path / "run", tmp_path / "stops.py"
    reward.write_text(STOPS.format(path=str(reward)))
    given = ["train", *SMALL, "--steps", "8", "--save_steps", "2", "--reward", f"{reward}:reward"]

    def second(process):
        for again in ([], ["--resume"]):
            assert main([*given, "--output", str(folder), *again]) == 2
            assert f"{folder} is in use by process {process.pid} on " in capsys.readouterr().err
        assert main(["doctor", *given[1:], "--no-steps", "--output", str(folder)]) == 2
        process.kill()

    interrupted([*given, "--output", str(folder)], second, lambda: len(metrics(folder)) >= 4)
    with locked(tmp_path / "all"):
        methods = ["--methods", "dapo,delta", "--output", str(tmp_path / "all"), "--eval_problems", "2"]
        assert main(["compare", *SMALL, "--steps", "2", *methods]) == 2
    assert f"all is in use by process {os.getpid()} on" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["model", "report.html", "log.txt", "checkpoint-1"])
def test_a_folder_with_files_that_a_run_would_write_is_refused(tmp_path, capsys, name):
    (tmp_path / name).mkdir()
    assert main(["train", *SMALL, "--steps", "2", "--output", str(tmp_path)]) == 2
    assert f"is no run's folder and holds {name}, where a run would write" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]


EXITS = """
import sys
from dataclasses import dataclass
from delta_rlvr import TokenRule

@dataclass(frozen=True)
class Rule(TokenRule):
    def weigh(self, batch):
        sys.exit(0)

def reward(completions, **_):
    sys.exit(0)
"""


@pytest.mark.parametrize("command", ["train", "doctor", "compare", "evaluate"])
@pytest.mark.parametrize("which", ["reward", "Rule"])
def test_code_that_calls_sys_exit_is_a_failure(tmp_path, capsys, command, which):
    file = tmp_path / "exits.py"
    file.write_text(EXITS)
    option = "--reward" if which == "reward" else "--method"
    words = [command, *SMALL, "--steps", "2", option, f"{file}:{which}", "--output", str(tmp_path / "run")]
    if command == "compare":
        words = [*words, "--methods", "dapo,delta", "--eval_problems", "2"]
    if command == "evaluate":
        words = [command, "--benchmarks", "task:phrased-sums", "--limit", "2", *words[-4:]]
    if which == "Rule" and command in ("compare", "evaluate"):
        pytest.skip("it takes no such option")
    assert main(words) in (1, 2)
    told = capsys.readouterr()
    assert f"called sys.exit ({file}, line {9 if which == 'Rule' else 12})" in " ".join((told.out + told.err).split())


CHECKED = """
from dataclasses import dataclass
from delta_rlvr import TokenRule

@dataclass(frozen=True)
class Share(TokenRule):
    share: float = 0.5

    def __post_init__(self):
        {}

    def weigh(self, batch):
        return batch.ones()

@dataclass(frozen=True)
class Wrong(TokenRule):
    share: "flot" = 0.5

    def weigh(self, batch):
        return batch.ones()
"""


@pytest.mark.parametrize(
    ("check", "spec", "words"),
    [
        (
            'assert self.share <= 1, "share: 1 at most"',
            "Share?share=3",
            "Share failed with AssertionError: share: 1 at most",
        ),
        ("assert self.share <= 0", "Share", "Share failed with AssertionError ("),
        ("{}[self.share]", "Share", "Share failed with KeyError: 0.5"),
        ('raise RuntimeError("a\\n\\x1bb")', "Share?share=3", r"Share failed with RuntimeError: a\n\x1bb"),
        ('raise ValueError("a\\nb")', "Share?share=3", r"a\nb"),
        ("pass", "Wrong?share=3", "Wrong failed with NameError: name 'flot' is not defined"),
    ],
)
def test_a_rule_that_refuses_its_settings_is_told_in_one_line(tmp_path, capsys, check, spec, words):
    file = tmp_path / "checked.py"
    file.write_text(CHECKED.replace("{}", check, 1))
    assert words in refused(capsys, "methods", f"{file}:{spec}", "--check")
    assert words in refused(capsys, "train", *SMALL, "--method", f"{file}:{spec}", "--output", tmp_path / "run")
    listed = ("compare", *SMALL, "--methods", f"dapo,{file}:{spec}", "--list", "--output", tmp_path / "all")
    assert words in refused(capsys, *listed)


def test_a_reader_that_goes_away_does_not_end_a_run(tmp_path):
    """`train ... | head -1`"""
    process = subprocess.Popen(
        [sys.executable, "-m", "delta_rlvr.cli", "train", *SMALL, "--steps", "4", "--output", str(tmp_path / "run")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert run_info(tmp_path / "run")["status"] == "finished"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">/dev/full"])
def test_a_run_with_a_closed_or_full_output(tmp_path, closed):
    words = [sys.executable, "-m", "delta_rlvr", "train", *SMALL, "--steps", "2", "--output", str(tmp_path / "run")]
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.join(words)} {closed}"], capture_output=True, text=True, check=False
    )
    if closed == ">/dev/full":
        assert done.returncode == 1
        assert "train: standard output cannot be written (No space left on device)" in done.stderr
        assert "save_total_limit" not in done.stderr
    else:
        assert done.returncode == 0
        assert run_info(tmp_path / "run")["status"] == "finished"
        assert len(metrics(tmp_path / "run")) == 2


def test_the_handler_of_sigterm_is_given_back(monkeypatch, capsys):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setitem(cli.COMMANDS, "methods", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert main(["methods"]) == 143
    assert "delta-rlvr methods: interrupted\n" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before


def test_any_error_within_a_save_on_a_disk_without_room_is_a_full_disk(tmp_path, monkeypatch):
    def save_model():
        raise RuntimeError("unexpected pos 1792 vs 1686")

    def other():
        raise RuntimeError("unexpected pos 1792 vs 1686")

    def judged(function):
        with pytest.raises(RuntimeError) as caught:
            function()
        return disk_is_full(caught.value, tmp_path)

    assert not judged(save_model)
    assert disk_is_full(
        RuntimeError("I/O error: No space left on device (os error 28)"), tmp_path
    )  # other libraries' words
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    assert judged(save_model)
    assert not judged(other)


def test_an_evaluation_that_is_terminated_goes_on(tmp_path):
    """Also where the whole group gets the signal: graders have sessions of their own."""
    words = ["evaluate", "--benchmarks", "task:phrased-sums", "--limit", "200", "-k", "4", "--batch-size", "8"]
    words += ["--output", str(tmp_path / "score.json")]

    def kept():
        return sum(len(path.read_bytes().splitlines()) for path in tmp_path.rglob("*.jsonl"))

    told, ended = interrupted(words, terminate_the_group, lambda: kept() >= 10)
    assert ended == 143, told
    assert "interrupted; samples so far are kept in" in told
    assert 10 <= kept() < 800
    assert main(words) == 0
    assert json.loads((tmp_path / "score.json").read_text())["complete"]
