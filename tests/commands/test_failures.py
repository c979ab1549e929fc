"""Runs that fail in the middle: one line that says why, and which checkpoint is left."""

import pytest

from command_line import SMALL, metrics, run_info
from delta_rlvr.cli import main

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
    assert "no checkpoint was written yet" in told or "is kept; go on with" in told
    folder = next(folder.glob("dapo-seed*"), folder)
    assert run_info(folder)["status"] == "failed"
    assert "not finite" in metrics(folder)[-1]["note"]
