"""Whole runs of other kinds: two ranks, adapters, models and problems from files, generators."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from command_line import SMALL, assert_same_run, built, metrics, reopen, run_info
from delta_rlvr.cli import main
from delta_rlvr.models import load_policy
from delta_rlvr.report.comparison import comparison
from delta_rlvr.report.groups import group_runs
from delta_rlvr.runs import read_run
from ranks import on_two_ranks
from rows import write_sums

pytestmark = pytest.mark.timeout(600)


def train(*options):
    assert main(["train", *SMALL, *map(str, options)]) == 0


def torchrun(*options):
    launch = ("torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "delta_rlvr")
    done = subprocess.run(
        [sys.executable, "-m", *launch, "train", *SMALL, *map(str, options)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_two_ranks(tmp_path):
    """One folder for both: a line a step, and token sums over all 32 responses of a batch, of which each rank has half."""
    options = ["--eval_problems", 4, "--eval_samples", 1, "--report", "true", "--save_steps", 2, "--rollouts_every", 1]
    given = ["train", *SMALL, *options, "--steps", 4, "--output", tmp_path / "run"]
    told = on_two_ranks(main, [str(word) for word in given], log=tmp_path / "log")
    assert told.count("delta on phrased-sums: 4 steps, 16 problems, 4 responses each") == 1
    assert told.count("held-out accuracy after training") == 1
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    tokens = sum(line["length"] * 32 * (1 - line["zero_advantage"]) for line in lines if "reward" in line)
    with np.load(tmp_path / "run" / "tokens.npz") as sums:
        counted = sums["count_positive"].sum() + sums["count_negative"].sum()
        assert counted == pytest.approx(tokens)
        assert counted > 0
    stored = read_run(tmp_path / "run")
    assert stored.problems == []
    assert stored.info["status"] == "finished"
    assert {line["group"] for line in stored.rollouts(1)} == {0, 1, 2, 3}  # the first rank's prompts
    assert "<html" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")[:2000]
    sealed = json.loads((tmp_path / "run" / "checkpoint-2" / "complete.json").read_text())
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= sealed["files"].keys()


@pytest.mark.slow
def test_two_ranks_go_on_exactly(tmp_path):
    """Eight problems are one batch and an epoch: the second half starts in the second epoch."""
    options = ["--train_problems", 8, "--save_steps", 2, "--rollouts_every", 1]
    torchrun(*options, "--steps", 6, "--output", tmp_path / "A")
    torchrun(*options, "--steps", 4, "--output", tmp_path / "B")
    torchrun(*options, "--steps", 6, "--output", tmp_path / "B", "--resume")
    assert_same_run(tmp_path / "A", tmp_path / "B")
    told = torchrun(*options, "--steps", 6, "--output", tmp_path / "B", "--resume")
    again = f"torchrun --nproc_per_node 2 -m delta_rlvr train --output {tmp_path / 'B'} --resume --steps 12"
    assert f"this run is finished, after 6 steps: nothing is changed. To train further: {again}" in told


def test_an_adapter_goes_on_exactly(tmp_path):
    options = ["--lora_rank", 2, "--save_steps", 2, "--rollouts_every", 0, "--train_problems", 8]
    train(*options, "--steps", 4, "--output", tmp_path / "A")
    train(*options, "--steps", 2, "--output", tmp_path / "B")
    train(*options, "--steps", 4, "--output", tmp_path / "B", "--resume")
    assert metrics(tmp_path / "A") == metrics(tmp_path / "B")
    adapters = [load_file(tmp_path / name / "model" / "adapter_model.safetensors") for name in "AB"]
    assert adapters[0].keys() == adapters[1].keys()
    moved = 0.0
    for name, weight in adapters[0].items():
        assert weight.equal(adapters[1][name]), name
        if "lora_B" in name:
            moved += weight.abs().sum().item()
    assert moved > 0  # they start at zero
    # The run's model can be used by its name, like any other.
    merged, _ = load_policy(str(tmp_path / "A" / "model"))
    start, _ = load_policy("builtin")
    description = json.loads((tmp_path / "A" / "model" / "adapter_config.json").read_text())
    name = "model.layers.0.self_attn.q_proj"
    up, down = (adapters[0][f"base_model.model.{name}.lora_{side}.weight"] for side in "BA")
    change = merged.get_submodule(name).weight - start.get_submodule(name).weight
    scale = description["lora_alpha"] / description["r"]
    torch.testing.assert_close(change, scale * up @ down, atol=1e-6, rtol=1e-4)  # of float32 weights near one


def test_a_model_and_problems_from_files(finished, tmp_path):
    """Fewer problems than the steps ask for: they are gone through more than once. One in eight is held out."""
    folder, _ = finished
    given = ["--model", folder / "model", "--task", f"{write_sums(tmp_path / 'problems.jsonl', 12)}?max_tokens=8"]
    train(*given, "--steps", 4, "--steps_per_generation", 1, "--output", tmp_path / "run")
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert all(line["length"] <= 8 for line in lines)
    first = read_run(tmp_path / "run").rollouts(1)[0]
    asked = re.search(r"What is (\d+) \+ (\d+)\?", first["prompt"])
    assert first["answer"] == str(sum(map(int, asked.groups())))
    assert run_info(tmp_path / "run")["model"] == str(folder / "model")
    assert "prompt: the template 'math', as none was chosen" in (tmp_path / "run" / "log.txt").read_text()


def test_a_small_file_in_more_than_one_epoch(tmp_path):
    problems = write_sums(tmp_path / "problems.jsonl", 9)
    train("--task", f"{problems}?max_tokens=4", "--steps", 12, "--eval_problems", 50, "--output", tmp_path / "run")
    assert metrics(tmp_path / "run")[-1]["epoch"] > 1


def test_a_file_without_steps_is_trained_on_whole_in_epochs(tmp_path):
    """Nine problems, of which some are held out: two batches of four, two steps each."""
    problems = write_sums(tmp_path / "problems.jsonl", 9)
    train("--task", f"{problems}?max_tokens=4", "--num_train_epochs", 1, "--output", tmp_path / "run")
    assert len(metrics(tmp_path / "run")) == run_info(tmp_path / "run")["steps_planned"] == 4


def own_reward(folder):
    (folder / "mine.py").write_text("def own(completions, **_):\n    return [0.5 for _ in completions]\n")
    return folder / "mine.py"


def test_another_reward_is_refused_on_resume(finished, tmp_path, capsys):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    reopen(folder)
    own = f"{own_reward(tmp_path)}:own"
    assert main(["train", "--output", str(folder), "--resume", "--reward", own]) == 2
    told = capsys.readouterr().err
    assert f"--reward has changed from None to {own} since this run began" in told
    assert "resume anyway with --accept_changed" in told


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (("--eval_problems", 6), "problems (4; 6)"),
        (("--max_completion_length", 9), "max_tokens (64; 9)"),
        (("--eval_temperature", 0.5), "temperature (1.0; 0.5)"),
        (("--reward", "{folder}/mine.py:own", "--accept_changed"), "reward (none; {folder}/mine.py:own)"),
    ],
    ids=lambda values: values[0].strip("-") if isinstance(values, tuple) else "",
)
def test_the_score_before_that_was_made_differently_is_not_compared(finished, changed, words, tmp_path, capsys):
    """On the terminal, on the page, in the card, and as the start of a comparison."""
    own_reward(tmp_path)
    folder = shutil.copytree(finished[0], tmp_path / "run")
    reopen(folder)
    changed = [str(one).format(folder=tmp_path) for one in changed]
    train("--steps", 4, "--save_steps", 2, "--eval_problems", 4, *changed, "--resume", "--output", folder)
    sentence = f"he two scores differ in {words.format(folder=tmp_path)}, so they cannot be compared"
    told = capsys.readouterr().out
    assert sentence in " ".join(told.split())
    assert "paired by problem" not in told
    run = read_run(folder)
    assert sentence in comparison([run], group_runs([run]))["verdict"]
    assert sentence in (folder / "model" / "README.md").read_text()


def test_a_generator(tmp_path):
    pytest.importorskip("reasoning_gym")
    train("--task", "reasoning-gym:chain_sum?max_tokens=8", "--steps", 2, "--output", tmp_path / "run")
    first = read_run(tmp_path / "run").rollouts(1)[0]
    assert first["answer"]
    assert len(metrics(tmp_path / "run")) == 2


@pytest.mark.parametrize(
    "words",
    [["--num-train-epochs", "2"], ["--num-train-epochs=2"], ["--num_train_epochs", "2"], ["--num-train-ep", "2"]],
)
def test_epochs_are_seen_however_the_parser_takes_them(words):
    _, config = built(words)
    assert (config.num_train_epochs, config.max_steps) == (2, -1)
    # Another model has no steps of its own that could win.
    assert built(["--model", "x", *words])[1].max_steps == -1
    assert built([])[1].max_steps == 80


def test_a_settings_file_and_flags_over_it(tmp_path):
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        "method: dapo\nsteps: 2\nlearning_rate: 1e-4\nper_device_train_batch_size: 8\nnum_generations: 4\n"
    )
    train("--config", settings, "--seed", 7, "--learning_rate", "2e-4", "--output", tmp_path / "run")
    info = run_info(tmp_path / "run")
    assert (info["method"], info["seed"], info["steps"]) == ("dapo", 7, 2)
    assert info["settings"]["learning_rate"] == 2e-4
    assert info["rule"] is None


def test_a_failure_is_kept_in_the_folder(tmp_path, monkeypatch, capsys):
    from delta_rlvr.training.problems import TaskReward

    def broken(*_):
        raise ValueError("the grader broke")

    monkeypatch.setattr(TaskReward, "judge", broken)
    assert main(["train", *SMALL, "--steps", "2", "--output", str(tmp_path)]) == 1  # at work, not in the input
    err = capsys.readouterr().err
    assert err.startswith("delta-rlvr train: the grader broke; no checkpoint was written yet")
    assert err.count("\n") == 1
    info = run_info(tmp_path)
    assert (info["status"], info["error"]) == ("failed", "ValueError: the grader broke")
    assert "in broken" in (tmp_path / "log.txt").read_text()
