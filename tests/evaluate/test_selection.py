"""Choosing a checkpoint: the rule, ties, what was chosen before, and what cannot be chosen from."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import save_file

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.selection import SelectionRule, checkpoints, select_checkpoint, selection_result_path
from evaluation_support import make_result


def _weights(folder):
    folder.mkdir(parents=True)
    save_file({"weight": np.zeros(4, np.float32)}, folder / "model.safetensors")
    return folder / "model.safetensors"


def _run(tmp_path, steps=(10, 20, 100), folder="checkpoint-{}"):
    for step in steps:
        _weights(tmp_path / folder.format(step))
    return tmp_path


def _evaluator(scores, asked):
    def evaluate(checkpoint, path):
        step = int(re.search(r"\d+$", checkpoint.name)[0])
        asked.append(step)
        result = make_result({"aime25": scores[step]})
        result.write(path)
        return result

    return evaluate


def test_the_rule_is_read_and_uses_the_first_k():
    rule = SelectionRule.parse("aime25:avg@2")
    # Two questions of three samples; the third sample would turn the order.
    assert rule.score(make_result({"aime25": [[1, 0, 1], [1, 1, 1]]})) == 0.75
    assert SelectionRule.parse("aime25:pass@2").score(make_result({"aime25": [[1, 0, 0], [0, 0, 1]]})) == 0.5
    task = SelectionRule.parse("task:reasoning-gym:chain_sum:avg@4")
    assert (task.benchmark, task.k) == ("task:reasoning-gym:chain_sum", 4)
    for bad in ("aime25", "aime25:avg", "aime25:avg@0", "aime25:best@8", ":avg@8"):
        with pytest.raises(EvaluationError, match="not of the form"):
            SelectionRule.parse(bad)
    with pytest.raises(EvaluationError, match="does not have 8 samples"):
        SelectionRule.parse("aime25:avg@8").score(make_result({"aime25": [[1, 0, 1]]}))


@pytest.mark.parametrize(
    ("folder", "name"),
    [("checkpoint-{}", "checkpoint-20"), ("verl/global_step_{}/actor/huggingface", "global_step_20")],
)
def test_the_best_wins_and_the_earliest_of_equals(tmp_path, folder, name):
    scores = {10: [[0, 0], [1, 0]], 20: [[1, 0], [1, 1]], 100: [[1, 1], [1, 0]]}
    asked, said = [], []
    rule = SelectionRule.parse("aime25:avg@2")
    run = _run(tmp_path, folder=folder)
    (run / "checkpoint-10").mkdir(exist_ok=True)  # verl's runs keep notes there
    choice = select_checkpoint(run, rule, _evaluator(scores, asked), say=said.append)
    assert asked == [10, 20, 100]
    assert not any("left out" in sentence for sentence in said)
    assert (choice["checkpoint"], choice["model"]) == (name, folder.format(20) if "verl" in folder else name)
    assert (choice["step"], choice["score"]) == (20, 0.75)
    assert choice["scores"] == {"10": 0.25, "20": 0.75, "100": 0.75}
    assert "biased upward" in said[-1]
    again = select_checkpoint(tmp_path, rule, _evaluator(scores, asked), say=said.append)
    assert asked == [10, 20, 100], "what is there is not evaluated again"
    assert again["step"] == 20
    assert len(json.loads((tmp_path / "selection.json").read_text())["choices"]) == 1


def test_another_rule_afterwards_is_told(tmp_path):
    scores = {10: [[0, 1]], 20: [[1, 0]], 100: [[0, 0]]}
    said = []
    _run(tmp_path)
    for text in ("aime25:avg@2", "aime25:avg@1"):
        rule = SelectionRule.parse(text)
        choice = select_checkpoint(tmp_path, rule, _evaluator(scores, []), say=said.append)
    assert choice["step"] == 20
    assert any("an earlier selection used aime25:avg@2 (checkpoint-10)" in text for text in said)
    kept = json.loads((tmp_path / "selection.json").read_text())["choices"]
    assert [old["rule"] for old in kept] == ["aime25:avg@2", "aime25:avg@1"]


def test_an_incomplete_evaluation_chooses_nothing(tmp_path):
    scores = {10: [[0, 1], [None, 1]], 20: [[1, 1]], 100: [[1, 1]]}
    with pytest.raises(EvaluationError, match="is incomplete"):
        select_checkpoint(_run(tmp_path), SelectionRule.parse("aime25:avg@2"), _evaluator(scores, []))
    assert not (tmp_path / "selection.json").exists()
    assert selection_result_path(tmp_path, SelectionRule.parse("aime25:avg@2"), "checkpoint-10").is_file()


def test_runs_without_checkpoints(tmp_path):
    with pytest.raises(EvaluationError, match="no checkpoint-N or verl/global_step_N folder"):
        checkpoints(tmp_path)
    with pytest.raises(EvaluationError, match="is not a folder"):
        checkpoints(tmp_path / "absent")
    _run(tmp_path, [5])
    (tmp_path / "checkpoint-6").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    said = []
    assert list(checkpoints(tmp_path, said.append)) == [5]
    assert "checkpoint-6 has no weights" in said[0]


def test_half_written_checkpoints_are_named(tmp_path):
    _run(tmp_path, [5])
    cut = _weights(tmp_path / "checkpoint-6")
    cut.write_bytes(cut.read_bytes()[:-3])
    _weights(tmp_path / "checkpoint-7")
    (tmp_path / "checkpoint-7" / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}})
    )
    # What else TRL saves is no weights.
    (tmp_path / "checkpoint-9").mkdir()
    (tmp_path / "checkpoint-9" / "training_args.bin").write_bytes(b"settings")
    _weights(tmp_path / "checkpoint-10")
    (tmp_path / "checkpoint-10" / "model.safetensors.index.json").write_text('{"weight_map": {"a"')
    shards = tmp_path / "verl" / "global_step_8" / "actor"
    (shards / "huggingface").mkdir(parents=True)
    (shards / "model_world_size_2_rank_0.pt").write_bytes(b"")
    said = []
    assert list(checkpoints(tmp_path, said.append)) == [5]
    for words in (
        "checkpoint-6 is incomplete: model.safetensors is cut off",
        "checkpoint-7 is incomplete: model-2.safetensors is missing",
        "checkpoint-9 has no weights",
        "checkpoint-10 is incomplete: model.safetensors.index.json cannot be read",
        f"python -m verl.model_merger merge --backend fsdp --local_dir {shards} --target_dir {shards / 'huggingface'}",
    ):
        assert any(words in sentence for sentence in said), words
