"""A rule in a file of somebody's own works unchanged in every command, spelled in one way."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line import built, run, run_info
from delta_rlvr.files import plain
from delta_rlvr.objectives import get_method
from delta_rlvr.runs import RunDescription, RunFolderError, RunWriter, read_run
from delta_rlvr.tasks.contents import rule_digest
from delta_rlvr.training.plan import check_same
from delta_rlvr.training.request import run_settings
from delta_rlvr.training.resuming import changes
from report_pages import unpacked
from rows import write_rows

OWN = Path(__file__).parent.parent / "own_rule" / "my_rules.py"
RULE = f"{OWN}:FirstHalf?share=0.25"

SMALL = ["--per_device_train_batch_size", 8, "--num_generations", 4, "--steps", 2, "--save_steps", 2]


def first_tokens(weights: list[float], share: float = 0.25) -> list[float]:
    return [float(place < share * len(weights)) for place in range(len(weights))]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run by the rule, which also shows another setting of it beside `surprise`."""
    folder = tmp_path_factory.mktemp("own")
    shown = f"surprise,{OWN}:FirstHalf?share=0.5"
    options = [*SMALL, "--eval_problems", 0, "--rollouts_every", 1, "--report", "false"]
    run("train", "--method", RULE, "--show_methods", shown, "--output", folder / "run", *options, log=folder / "log")
    return folder / "run"


def test_train(trained):
    info = run_info(trained)
    assert (info["status"], info["method"], info["rule"]) == ("finished", RULE, {"share": 0.25})
    lines = read_run(trained).rollouts(1)
    assert len(lines) == 16
    for line in lines:
        assert line["weight"] == first_tokens(line["weight"])
        assert line["other_weights"][f"{OWN}:FirstHalf?share=0.5"] == first_tokens(line["weight"], 0.5)
        assert set(line["other_weights"]) == {"surprise", f"{OWN}:FirstHalf?share=0.5"}


def test_the_report_shades_by_it(trained, tmp_path):
    """A run of another method is shaded by it afterwards, from the rollouts that were kept."""
    spec = f"{OWN}:FirstHalf?share=0.75"
    run("report", trained, "--shade-by", f"{spec},entropy", "--output", tmp_path / "page.html", log=tmp_path / "log")
    (model,) = unpacked(tmp_path / "page.html")["page"]["runs"]
    assert {f"other:{spec}", "other:entropy"} <= {shading["key"] for shading in model["shadings"]}


def test_the_report_refuses_what_it_cannot_shade_by(trained, tmp_path, capsys):
    from delta_rlvr.cli import main

    assert main(["report", str(trained), "--shade-by", "delta", "--output", str(tmp_path / "page.html")]) == 2
    assert "--shade-by delta needs hidden states" in capsys.readouterr().err


def test_compare(tmp_path):
    options = [*SMALL, "--eval_problems", 4, "--eval_samples", 1, "--rollouts_every", 1, "--seeds", 1]
    told = run("compare", "--methods", f"dapo,{RULE}", "--output", tmp_path / "both", *options, log=tmp_path / "log")
    assert "FirstHalf" in told
    document = json.loads((tmp_path / "both" / "comparison.json").read_text())
    assert [row["method"] for row in document["rows"]] == ["dapo", RULE]
    folders = {place.name for place in (tmp_path / "both").iterdir() if place.is_dir()}
    assert len(folders) == 2
    assert not any(set(name) & set("?&:/ ") for name in folders)
    # The page shades the run of the other method by it too, beside the usual ones.
    page = unpacked(tmp_path / "both" / "report.html")["page"]
    dapo = next(model for model in page["runs"] if model["label"].startswith("dapo"))
    assert {f"other:{RULE}", "other:delta"} <= {shading["key"] for shading in dapo["shadings"]}


def test_credit_bench(tmp_path):
    arguments = ["--quick", "--tasks", "phrased-sums", "--batches", 1, "--prompts", 4, "--methods", RULE]
    run("credit-bench", *arguments, "--output", tmp_path / "bench", log=tmp_path / "log")
    document = json.loads((tmp_path / "bench" / "credit_bench.json").read_text())
    assert RULE in json.dumps(document)


def test_study(tmp_path):
    (tmp_path / "own.yaml").write_text(
        f"question: does it run\ntasks: [phrased-sums]\narms: {{dapo: 1, '{RULE}': 1}}\n"
        "training: {steps: 2, prompts: 2, group: 2, updates: 2}\nheldout: {problems: 2, samples: 1}\n"
    )
    told = run("study", tmp_path / "own.yaml", "--output", tmp_path / "out", log=tmp_path / "log")
    assert "FirstHalf" in told
    lines = [json.loads(line) for line in (tmp_path / "out" / "runs.jsonl").read_text().splitlines()]
    assert {line["run"]["arm"] if "run" in line else line["arm"] for line in lines} == {"dapo", RULE}


def test_explain(tmp_path):
    rollouts = [
        {"prompt": "3 + 4 =", "response": " 7 is the answer", "reward": 1.0},
        {"prompt": "3 + 4 =", "response": " 8 is the answer", "reward": 0.0},
    ]
    file = write_rows(tmp_path / "rollouts.jsonl", rollouts)
    arguments = ["--model", "builtin", "--rollouts", file, "--methods", f"{RULE},delta"]
    run("explain", *arguments, "--output", tmp_path / "page.html", log=tmp_path / "log")
    page = unpacked(tmp_path / "page.html")["page"]
    assert page["comparison"]["agreeing"]["rule.share"] == 0.25
    assert "other:delta" in {shading["key"] for shading in page["runs"][0]["shadings"]}


def test_methods_and_its_check(tmp_path):
    told = run("methods", RULE, log=tmp_path / "log")
    assert "share=0.25  The share of a response that counts." in told
    checked = run("methods", RULE, "--check", log=tmp_path / "check")
    assert "ok  number of ranks" in checked
    assert "weights on tokens with an advantage" in checked
    double = tmp_path / "double.py"
    double.write_text(
        "from dataclasses import dataclass\nfrom delta_rlvr import TokenRule\n@dataclass(frozen=True)\n"
        "class Double(TokenRule):\n    def weigh(self, batch):\n        return batch.ones() + batch.position % 2\n"
    )
    assert "the mean is not one, which scales the loss" in run(
        "methods", f"{double}:Double", "--check", log=tmp_path / "c"
    )


def test_an_edited_file_is_another_experiment(tmp_path):
    """The settings read the same; what lies in the files does not."""
    rule, reward, rows, heldout = (
        tmp_path / name for name in ("rules.py", "rewards.py", "rows.jsonl", "heldout.jsonl")
    )
    rule.write_text(OWN.read_text())
    reward.write_text("def length(completions, **_):\n    return [float(len(one)) for one in completions]\n")
    for file in (rows, heldout):
        file.write_text('{"question": "1 + 1?", "answer": "2"}\n')
    words = ["--method", f"{rule}:FirstHalf?share=0.3", "--reward", f"{reward}:length"]
    words += ["--task", f"{rows}?heldout={heldout}", "--output", str(tmp_path / "run")]

    def settings():
        return run_settings(*built(words))

    kept = plain(settings())
    check_same(tmp_path, {"settings": kept}, settings())
    for file, flag in ((rule, "method"), (reward, "reward"), (rows, "task"), (heldout, "task")):
        before = file.read_bytes()
        file.write_bytes(before + b"\n")
        with pytest.raises(ValueError, match=f"the file that `{flag}` names has changed since"):
            check_same(tmp_path, {"settings": kept}, settings())
        resumed = {"settings_changed": {f"{flag}_sha256": [kept[f"{flag}_sha256"], "other"]}}
        writer = SimpleNamespace(info={"resumed": [resumed]})
        assert changes(writer) == [f"the file that `{flag}` names has changed since"]
        file.write_bytes(before)
        check_same(tmp_path, {"settings": kept}, settings())
    description = RunDescription("trl", "mine", 0, "m", "t", kept)
    with RunWriter.create(tmp_path / "begun", description) as begun:
        begun.log({"step": 1, "loss": 0.0})
    edited = replace(description, settings=kept | {"method_sha256": "other"})
    with pytest.raises(RunFolderError, match="the file that `method` names has changed since this run began"):
        RunWriter.resume(tmp_path / "begun", edited, 1)
    with RunWriter.resume(tmp_path / "begun", edited, 0):  # nothing of it is kept
        pass
    assert kept["method_sha256"] == hashlib.sha256(rule.read_bytes()).hexdigest()
    assert rule_digest(get_method(f"{rule}:FirstHalf").rule) == kept["method_sha256"]
    assert rule_digest(get_method("delta").rule) is None
    older = SimpleNamespace(info={"resumed": [{"settings_changed": {"method_sha256": [None, "some"]}}]})
    assert changes(older) == []
