"""The held-out score during training, and the best checkpoint by it."""

import pytest

from command_line import SMALL, metrics, refused, run, run_info
from delta_rlvr.report.dynamics import panels
from delta_rlvr.runs import read_run

ASKED = [*SMALL, "--eval_problems", 8, "--eval_samples", 2, "--steps", 8, "--learning_rate", 2e-3]
EVERY = ["--eval_every", 2, "--save_steps", 8, "--save_total_limit", 2]


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored")
    told = run("train", *ASKED, *EVERY, "--output", folder / "run", log=folder / "log.txt")
    return folder / "run", told


def test_scores_are_in_the_metrics_and_the_best_checkpoint_is_kept(scored):
    folder, told = scored
    scores = {line["step"]: line["eval_accuracy"] for line in metrics(folder) if "eval_accuracy" in line}
    assert list(scores) == [2, 4, 6, 8]
    assert len(set(scores.values())) > 1
    final = run_info(folder)["final"]
    assert scores[8] == final["after"]["accuracy"]  # the same weights and the same random numbers
    best = max(scores, key=scores.get)
    assert final["best"] == {"step": best, "accuracy": scores[best], "checkpoint": f"checkpoint-{best}"}
    assert {path.name for path in folder.glob("checkpoint-*")} == {f"checkpoint-{best}", "checkpoint-8"}
    assert f"best held-out accuracy during training: {100 * scores[best]:.1f} % at step {best}" in told
    assert "Held-out score" in [panel["title"] for panel in panels([read_run(folder)])]


def test_the_steps_are_those_of_a_run_without_scores_and_the_best_weights_are_taken_where_asked_for(scored, tmp_path):
    folder, _ = scored
    plain, best = tmp_path / "plain", tmp_path / "best"
    run("train", *ASKED, "--eval_problems", 0, "--output", plain, log=tmp_path / "plain.txt")
    lines = [{k: v for k, v in line.items() if k != "eval_accuracy"} for line in metrics(folder)]
    assert lines == metrics(plain)
    given = [*ASKED, "--eval_every", 2, "--save_steps", 2, "--load_best_model_at_end", "true"]
    run("train", *given, "--output", best, log=tmp_path / "best.txt")
    final = run_info(best)["final"]
    assert final["best"] == run_info(folder)["final"]["best"]
    assert final["after"]["accuracy"] == final["best"]["accuracy"]


def test_a_missing_math_verify_is_named_at_the_start(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    file = tmp_path / "p.jsonl"
    file.write_text("".join(f'{{"question": "{n}?", "answer": "{n}"}}\n' for n in range(64)))
    given = ("--task", file, "--reward", "math-verify", "--output", tmp_path / "run")
    assert "pip install 'rlvr-graders[math-verify]'" in refused(capsys, "train", *ASKED, *given)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--eval_every", 3], "--eval_every 3: a rollout batch lasts 2 steps"),
        (["--eval_every", 2, "--eval_problems", 0], "give --eval_problems, 1 or more"),
        (["--eval_every", 0], "--eval_every 0: give 1 or more"),
        (["--eval_strategy", "steps"], "set --eval_every to the steps"),
        (["--resume_from_checkpoint", "x"], "set --resume to go on from the last checkpoint of --output"),
    ],
)
def test_what_cannot_be_scored_is_refused(capsys, tmp_path, given, named):
    assert named in refused(capsys, "train", *ASKED, *given, "--output", tmp_path / "run")
