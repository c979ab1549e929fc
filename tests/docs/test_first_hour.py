"""docs/first_hour.md from end to end, in small: its files, its commands, and the page that it ends with."""

import runpy
import shlex

import pytest

from delta_rlvr.cli import main
from delta_rlvr.runs import read_run
from pages import ROOT, blocks, commands

PAGE = ROOT / "docs" / "first_hour.md"
SMALL = [
    *("--steps", "1", "--per_device_train_batch_size", "8", "--num_generations", "4"),
    *("--eval_problems", "2", "--eval_samples", "1", "--rollouts_every", "1"),
]
"""What comes later on a command line wins."""


def words_of(command):
    # bash's $'...' turns \n into a line break; shlex knows nothing of it and leaves the dollar.
    return [word.removeprefix("$").replace("\\n", "\n") for word in shlex.split(command)]


@pytest.fixture
def reader(tmp_path, monkeypatch):
    for block in blocks(PAGE):
        if block.file:
            (tmp_path / block.file).write_text(block.code)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("make_problems.py")
    return tmp_path


def test_from_a_file_to_a_comparison(reader, capsys):
    lines = [words_of(command.text)[1:] for command in commands(PAGE) if command.text.startswith("delta-rlvr ")]
    (train,) = [line for line in lines if line[0] == "train"]
    evaluate = next(line for line in lines if line[0] == "evaluate")
    (check,) = [line for line in lines if line[0] == "methods"]
    compare = next(line for line in lines if line[0] == "compare")
    assert main([*train, *SMALL]) == 0
    run = read_run("runs/first")
    assert run.info["status"] == "finished"
    assert "rewards/last_number/mean" in run.metrics[0]
    assert run.rollouts(1)[0]["prompt"].startswith("Add ")
    assert main([*evaluate, "--limit", "2", "-k", "1"]) == 0
    assert "scores are mean rewards of my_reward.py:last_number" in " ".join(capsys.readouterr().out.split())
    assert main(check) == 0
    assert main([*compare, *SMALL, "--seeds", "1"]) == 0
    page = (reader / "runs" / "compare" / "report.html").read_text(encoding="utf-8")
    assert "Unlikely" in page
    assert "use 7 or more seeds" in " ".join(capsys.readouterr().out.split())
