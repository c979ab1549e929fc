"""The run folder of a verl run, written without verl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from byte_tokens import bytes_alone
from delta_rlvr.adapters.verl.run_folder import RunFolder
from delta_rlvr.adapters.verl.settings import read_settings
from delta_rlvr.runs import read_run
from delta_rlvr.runs.reader import RunReader


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
        "responses": [torch.tensor([*tokenizer.encode("a€é"), 0])] * 4,
        "response_mask": [torch.tensor([1] * 6 + [0])] * 4,
        "rm_scores": rewards,
        "advantages": [torch.full((7,), one) for one in (-0.03, -0.03, 0.7, -0.7)],
        "session_id": [0, 1, 0, 1],
    }
    penalized = [reward - torch.tensor([0.01 * row, 0.0]) for row, reward in enumerate(rewards)]
    run = written(tmp_path / "run", tokenizer, table, {**table, "token_level_rewards": penalized})
    assert [line["signal_groups"] for line in run.metrics] == [0.5, 1.0]
    advantages = [[line["advantage"] for line in run.rollouts(step)] for step in (1, 2)]
    assert advantages[0] == pytest.approx([0.0, 0.0, 0.7, -0.7])
    assert advantages[1] == pytest.approx([-0.03, -0.03, 0.7, -0.7])
    # € is three bytes, é is two: the last byte of a character has it, and what is masked is not there.
    for line in run.rollouts(1):
        assert (line["response"], line["tokens"]) == ("a€é", ["a", "", "", "€", "", "é"])
        assert line["ids"] == tokenizer.encode("a€é")
    assert run.tokens is not None
    assert run.tokens.text(tokenizer.encode("a")) == ["a"]
