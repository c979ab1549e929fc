"""The run folder's reader: whatever is missing or torn is named, and the rest is given."""

import gzip
import json

import pytest

from delta_rlvr.cli import main
from delta_rlvr.report import write_report
from delta_rlvr.runs import RunDescription, RunFolderError, RunWriter, read_run


@pytest.fixture
def folder(tmp_path):
    description = RunDescription(engine="minimal", method="delta", seed=0, model="m", task="t", steps_planned=3)
    with RunWriter.create(tmp_path / "run", description) as writer:
        for step in (1, 2, 3):
            writer.log({"step": step, "reward": step / 4, "entropy": None})
        writer.write_rollouts(
            3, [{"group": 0, "index": i, "tokens": [f"t{i}", " ", "x" * 50], "weight": [1, 2, 3]} for i in range(200)]
        )
        writer.tokens.add([1], [1.0], 1)
        writer.save_tokens()
    return tmp_path / "run"


def test_a_whole_run_has_no_problems(folder):
    run = read_run(folder)
    assert run.problems == []
    assert run.series("reward") == ([1, 2, 3], [0.25, 0.5, 0.75])
    assert run.series("entropy") == ([], [])
    assert len(run.rollouts(3)) == 200
    with pytest.raises(ValueError, match=r"metrics.jsonl has no 'rewards'; did you mean 'reward'\?"):
        run.series("rewards")
    with pytest.raises(ValueError, match=r"step=2: .* has no rollouts of it \(it has those of: 3\)"):
        run.rollouts(2)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("run.json", "run.json is missing: the run's settings are unknown"),
        ("metrics.jsonl", "metrics.jsonl is missing: there are no training curves"),
        ("tokens.npz", "tokens.npz is missing: there are no token clouds (it is written with each checkpoint)"),
        ("rollouts/step_000003.jsonl.gz", "rollouts/ has no sampled step: there is no token view"),
    ],
)
def test_a_missing_part_is_named(folder, part, words):
    (folder / part).unlink()
    assert read_run(folder).problems == [words]


def test_half_a_last_line_of_metrics_is_left_out(folder):
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-8])
    run = read_run(folder)
    assert [line["step"] for line in run.metrics] == [1, 2]
    assert run.problems == ["metrics.jsonl ends in half a line: it is left out"]


def test_bad_lines_within_metrics_are_named(folder):
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{]", '{"reward": 1}', lines[2], lines[0].replace("0.25", "0.5")]) + "\n")
    run = read_run(folder)
    assert [(line["step"], line["reward"]) for line in run.metrics] == [(1, 0.5), (3, 0.75)]
    assert run.problems == [
        "metrics.jsonl line 2 cannot be read: it is left out",
        "metrics.jsonl line 3 has no step: it is left out",
    ]


def test_a_torn_gz_gives_what_came_before(folder):
    path = folder / "rollouts" / "step_000003.jsonl.gz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    run = read_run(folder)
    responses = run.rollouts(3)
    assert 0 < len(responses) < 200
    assert responses[0]["tokens"][0] == "t0"
    (problem,) = run.problems
    assert problem.startswith(f"rollouts/step_000003.jsonl.gz breaks off after {len(responses)} responses")


def test_a_file_that_is_no_gz_is_named(folder):
    (folder / "rollouts" / "step_000003.jsonl.gz").write_text("not gzip")
    run = read_run(folder)
    assert run.rollouts(3) == []
    assert "breaks off after 0 responses" in run.problems[0]


def test_arrays_that_do_not_fit_are_left_out(folder):
    line = {"tokens": ["a", "b"], "weight": [1.0], "logps": ["x", 0], "other_weights": {"dapo": [1, 1], "sapo": 3}}
    name = "rollouts/step_000003.jsonl.gz"
    with gzip.open(folder / name, "wt") as file:
        file.write(json.dumps(line) + "\n[1]\n" + '{"tokens": "ab"}\n')
    run = read_run(folder)
    assert run.rollouts(3) == [{"tokens": ["a", "b"], "other_weights": {"dapo": [1, 1]}}]
    assert run.problems == [
        f"{name} line 1: logps does not fit its 2 tokens and is left out",
        f"{name} line 1: weight does not fit its 2 tokens and is left out",
        f"{name} line 1: some of other_weights do not fit its 2 tokens and are left out",
        f"{name}: 2 of 3 lines cannot be read",
    ]


def test_facts_of_another_kind_are_left_out(folder):
    line = {"tokens": ["a"], "reward": "1", "advantage": True, "group": [1, 2]}
    with gzip.open(folder / "rollouts" / "step_000003.jsonl.gz", "wt") as file:
        file.write(json.dumps(line) + "\n")
    run = read_run(folder)
    assert run.rollouts(3) == [{"tokens": ["a"], "group": "[1, 2]", "other_weights": {}}]
    assert [problem.split(": ")[1] for problem in run.problems] == [
        "reward is not a number and is left out",
        "advantage is not a number and is left out",
    ]


def test_a_killed_run_is_said_to_be_unfinished(folder):
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "status": "running"}))
    assert read_run(folder).problems == ["the run has not ended (or it was killed): 3 of 3 steps at its last update"]


def test_a_description_of_other_types_is_left_out_and_named(folder):
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({key: 1 if key == "schema" else [] for key in info}))
    assert read_run(folder).problems[0] == "run.json: settings is list, which is not its type: it is left out"
    assert write_report([folder]).is_file()


def test_the_command_says_what_is_damaged(folder, capsys):
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().err == ""
    (folder / "metrics.jsonl").write_text("")
    (folder / "tokens.npz").write_text("no archive")
    (folder / "rollouts" / "step_000003.jsonl.gz").write_text("not gzip")
    assert main(["report", str(folder)]) == 0
    told = capsys.readouterr().err
    damage = "metrics.jsonl has no step: there are no training curves (and 2 more, on the page)"
    assert told == f"missing or damaged in {folder}: {damage}\n"


def test_damaged_objects_are_named(folder):
    (folder / "run.json").write_text('{"schema": 1')
    (folder / "proxy_agreement.json").write_text("[]")
    problems = read_run(folder).problems
    assert problems[0].startswith("run.json cannot be read (")
    assert problems[1] == "proxy_agreement.json does not hold an object"


def test_what_is_no_run_is_refused(tmp_path, folder):
    with pytest.raises(RunFolderError, match="is not a folder"):
        read_run(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunFolderError, match=r"holds no part of a run .*run_folder=True"):
        read_run(tmp_path / "empty")
    (folder / "run.json").write_text('{"schema": 2}')
    with pytest.raises(RunFolderError, match="schema 2, this version reads 1"):
        read_run(folder)
