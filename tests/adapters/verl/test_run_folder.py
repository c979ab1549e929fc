"""The run folder of a verl run, written without verl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast

from delta_rlvr.adapters.verl.run_folder import RunFolder
from delta_rlvr.adapters.verl.settings import read_settings
from delta_rlvr.runs import read_run
from delta_rlvr.runs.reader import RunReader


def bytes_alone() -> PreTrainedTokenizerFast:
    """A byte-level vocabulary without merges: every token is one byte."""
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(["a"], vocab_size=256, show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer)


def written(folder: Path, tokenizer: Any, *tables: dict[str, Any]) -> RunReader:
    """The run folder that a step for each table makes."""
    settings = read_settings({"method": "dapo", "run_folder": str(folder)})
    config = {"data": {"train_files": "x", "seed": 1}, "actor_rollout_ref": {"model": {"path": "m"}}}
    run = RunFolder.open(settings, config, tokenizer, resumed_from=0, steps_planned=len(tables))
    for step, table in enumerate(tables, start=1):
        run.write_step(step, {}, {"step": 1.0}, table, dump=True)
    run.finished()
    return read_run(folder)


def test_a_group_of_equal_rewards_has_no_signal_and_no_advantage(tmp_path: Path) -> None:
    """Two groups: 0.3 twice, to which verl gives an advantage of rounding, and 1 and 0; then the same with its KL penalty taken off."""
    tokenizer = bytes_alone()
    rewards = [torch.tensor([0.0, one]) for one in (0.3, 0.3, 1.0, 0.0)]
    table = {
        "uid": ["p", "p", "q", "q"],
        "prompts": [torch.tensor(tokenizer.encode("What?"))] * 4,
        "responses": [torch.tensor(tokenizer.encode("ab"))] * 4,
        "response_mask": [torch.ones(2)] * 4,
        "rm_scores": rewards,
        "advantages": [torch.full((2,), one) for one in (-0.03, -0.03, 0.7, -0.7)],
        "session_id": [0, 1, 0, 1],
    }
    penalized = [reward - torch.tensor([0.01 * row, 0.0]) for row, reward in enumerate(rewards)]
    run = written(tmp_path / "run", tokenizer, table, {**table, "token_level_rewards": penalized})
    assert [line["signal_groups"] for line in run.metrics] == [0.5, 1.0]
    advantages = [[line["advantage"] for line in run.rollouts(step)] for step in (1, 2)]
    assert advantages[0] == pytest.approx([0.0, 0.0, 0.7, -0.7])
    assert advantages[1] == pytest.approx([-0.03, -0.03, 0.7, -0.7])


def test_tokens_of_characters_of_several_bytes_join_to_the_response(tmp_path: Path) -> None:
    tokenizer = bytes_alone()
    texts = ["a€é", "日本 5"]
    responses = [tokenizer.encode(text) for text in texts]
    table = {
        "uid": ["p", "p"],
        "prompts": [torch.tensor(tokenizer.encode("What is 2 + 3?"))] * 2,
        "responses": [torch.tensor([*ids, 0]) for ids in responses],
        "response_mask": [torch.tensor([1] * len(ids) + [0]) for ids in responses],
        "rm_scores": [torch.tensor([1.0]), torch.tensor([0.0])],
        "advantages": [torch.full((len(ids) + 1,), sign) for ids, sign in zip(responses, (1.0, -1.0), strict=True)],
        "session_id": [0, 1],
    }
    run = written(tmp_path / "run", tokenizer, table)
    lines = run.rollouts(1)
    assert [one["response"] for one in lines] == texts
    assert ["".join(one["tokens"]) for one in lines] == texts
    # € is three bytes, é is two: the last byte of a character has it.
    assert lines[0]["tokens"] == ["a", "", "", "€", "", "é"]
    assert [one["ids"] for one in lines] == responses
    assert run.tokens is not None
    assert run.tokens.text(tokenizer.encode("a5")) == ["a", "5"]
