"""Kill -9, then --resume: the run is the uninterrupted one to the last bit."""

import json
import random
import shutil

import pytest

from command_line import SMALL, assert_same_run, metrics, refused, reopen, run, run_info, start
from delta_rlvr.adapters.trl.resume import find_checkpoints
from delta_rlvr.cli import main

pytestmark = pytest.mark.timeout(600)

EPOCHS = [*SMALL, "--method", "delta-random", "--steps", 10, "--save_steps", 2, "--train_problems", 8]
"""Two rollout batches are an epoch: steps 4 and 8 end one. The coefficients are drawn from a seed."""


@pytest.fixture(scope="module")
def epochs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("epochs")
    run("train", *EPOCHS, "--rollouts_every", 1, "--output", folder / "A", log=folder / "A.txt")
    return folder


def test_killed_at_a_random_step(tmp_path):
    options = [*SMALL, "--method", "delta", "--steps", 8, "--save_steps", 2, "--rollouts_every", 1]
    run("train", *options, "--output", tmp_path / "A", log=tmp_path / "A.txt")
    lines = metrics(tmp_path / "A")
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert len({line["loss"] for line in lines}) == 8  # the run learns something: equal zeros would prove nothing
    assert any(line.get("weight_std", 0) > 0.01 for line in lines)

    last = random.SystemRandom().randrange(1, 8)
    killed = start("train", *options, "--output", tmp_path / "B", log=tmp_path / "B.txt")
    killed.kill_when(lambda: len(metrics(tmp_path / "B")) >= last)
    assert run_info(tmp_path / "B")["status"] == "running"
    told = run("train", *options, "--output", tmp_path / "B", "--resume", log=tmp_path / "B2.txt")
    assert "resuming from checkpoint-" in told or "starts again from its first step" in told, last
    assert_same_run(tmp_path / "A", tmp_path / "B")
    info = run_info(tmp_path / "B")
    assert info["status"] == "finished"
    assert info["resumed"][0]["settings_changed"] == {}


def test_killed_during_a_save_at_an_epoch_boundary_and_within_an_epoch(epochs):
    """Step 6 is torn, so that the run goes on from 4, where an epoch ended; then it dies in step 8's save and goes on from 6."""
    folder = epochs / "B"
    options = [*EPOCHS, "--rollouts_every", 1, "--output", folder]
    assert start("train", *options, log=epochs / "B1.txt", die_in_save=6).finish() == -9
    assert (folder / "checkpoint-6").is_dir()
    second = start("train", *options, "--resume", log=epochs / "B2.txt", die_in_save=8)
    assert second.finish() == -9
    assert "checkpoint-6 is skipped: it is incomplete" in second.output
    assert "resuming from checkpoint-4" in second.output
    told = run("train", *options, "--resume", log=epochs / "B3.txt")
    assert "checkpoint-8 is skipped: it is incomplete" in told
    assert "resuming from checkpoint-6" in told
    assert_same_run(epochs / "A", folder)
    assert [entry["step"] for entry in run_info(folder)["resumed"]] == [4, 6]


@pytest.mark.parametrize("damage", ["cut", "deleted"])
def test_a_damaged_file_in_the_newest_checkpoint(epochs, damage, tmp_path):
    """What a file system may lose after a crash: the checkpoint is not taken for whole."""
    folder = shutil.copytree(epochs / "A", tmp_path / "run")
    reopen(folder)
    for step in (8, 10):
        weights = folder / f"checkpoint-{step}" / "model.safetensors"
        if damage == "cut":
            weights.write_bytes(weights.read_bytes()[:-100])
        else:
            weights.unlink()
    options = [*EPOCHS, "--rollouts_every", 1, "--output", folder, "--resume"]
    told = run("train", *options, log=tmp_path / "log.txt")
    assert "checkpoint-8 is skipped: it is incomplete" in told
    assert "resuming from checkpoint-6" in told
    assert_same_run(epochs / "A", folder)


def test_saves_wait_for_the_end_of_a_rollout_batch(tmp_path):
    """Two passes a step, and two times over a batch of two passes: a batch lasts two steps. Saves are due at 3, 6 and at the end, 7."""
    options = [*SMALL, "--method", "dapo", "--gradient_accumulation_steps", 2, "--num_iterations", 2]
    options += ["--save_steps", 3, "--rollouts_every", 1]
    run("train", *options, "--steps", 8, "--output", tmp_path / "A", log=tmp_path / "A.txt")
    run("train", *options, "--steps", 7, "--train_problems", 16, "--output", tmp_path / "B", log=tmp_path / "B.txt")
    saved = sorted(path.name for path in (tmp_path / "B").glob("checkpoint-*"))
    assert saved == ["checkpoint-4", "checkpoint-6", "checkpoint-7"]
    told = run("train", *options, "--steps", 8, "--output", tmp_path / "B", "--resume", log=tmp_path / "B2.txt")
    assert "checkpoint-7 is skipped: it lies in the middle of a rollout batch" in told
    assert "resuming from checkpoint-6" in told
    assert_same_run(tmp_path / "A", tmp_path / "B")
    assert run_info(tmp_path / "B")["resumed"][0]["settings_changed"]["max_steps"] == [7, 8]


def test_a_run_that_took_all_its_steps_takes_no_more(epochs, tmp_path):
    """More problems than the steps need are there, which transformers would go on with."""
    folder = shutil.copytree(epochs / "A", tmp_path / "run")
    reopen(folder)
    options = [*EPOCHS[:-1], 8, "--rollouts_every", 1, "--output", folder, "--resume"]
    told = run("train", *options, log=tmp_path / "log.txt")
    assert "resuming from checkpoint-10" in told
    assert_same_run(epochs / "A", folder)


def test_a_finished_run_without_checkpoints_is_not_overwritten(finished, capsys, tmp_path):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(["train", "--output", str(folder), "--resume"]) == 0
    told = capsys.readouterr().out
    assert "--steps 8" not in told
    assert "It has no checkpoint to train further from: start a run from its weights" in told
    assert "no checkpoint to resume from" in refused(capsys, "train", "--output", folder, "--resume", "--steps", 8)
    reopen(folder)
    del before[folder / "run.json"]
    assert "no checkpoint to resume from" in refused(capsys, "train", "--output", folder, "--resume", "--steps", 8)
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_renamed_checkpoint_is_skipped(finished, capsys, tmp_path):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    (folder / "checkpoint-4").rename(folder / "checkpoint-40")
    assert main(["train", "--output", str(folder), "--resume", "--steps", "5", "--report", "false"]) == 0
    told = capsys.readouterr().out
    assert "checkpoint-40 is skipped: it is of another step, by its complete.json" in told
    assert "resuming from checkpoint-2" in told
    assert [line["step"] for line in metrics(folder)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("content", ["[1]", "{}", '{"files": {}}', '{"files": 3}', "3"])
def test_a_checkpoint_sealed_with_other_json_is_skipped(tmp_path, content):
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / "complete.json").write_text(content)
    assert find_checkpoints(tmp_path).torn == [2]


@pytest.mark.parametrize("info", [[], {"schema": 1, "settings": [1], "status": "running"}])
def test_a_damaged_description_of_a_run_is_named(finished, capsys, tmp_path, info):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    (folder / "run.json").write_text(json.dumps(info))
    told = refused(capsys, "train", "--output", folder, "--resume", "--steps", 8)
    assert f"{folder / 'run.json'} is damaged" in told
