"""The seam through which weights reach TRL's loss, and the second way for a TRL without it."""

from __future__ import annotations

import inspect
import linecache
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
import trl
from trl import GRPOTrainer
from trl.trainer import grpo_trainer

from delta_rlvr.adapters.token_advantages import TokenAdvantages, for_loss, takes_token_advantages
from replayed_training import build

CONDITIONAL = "if advantages.dim() == 1:\n    advantages = advantages.unsqueeze(1)"


def test_trl_takes_advantages_per_token() -> None:
    assert takes_token_advantages(GRPOTrainer._compute_loss), (
        f"The loss of TRL {trl.__version__} does not take advantages of shape (batch, time) any more. DeltaTrainer goes the second "
        "way by itself (adapters/token_advantages.py). Read TRL's new loss: where it makes a column of the advantages by "
        "unsqueeze(1) or [:, None], turn this canary round; where it does something else, TokenAdvantages has to learn that"
    )


def without_the_seam() -> Callable[..., Any]:
    """TRL's own loss, but that it makes a column of any advantages, as it did before."""
    source = textwrap.dedent(inspect.getsource(GRPOTrainer._compute_loss))
    lines = textwrap.indent(CONDITIONAL, " " * 4)
    assert source.count(lines) == 1
    source = source.replace(lines, "    advantages = advantages.unsqueeze(1)")
    name = "<a TRL without the seam>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    made: dict[str, Any] = {}
    exec(compile(source, name, "exec"), vars(grpo_trainer), made)
    return made["_compute_loss"]


@pytest.mark.parametrize("shape", ["one micro-batch", "several updates"])
@pytest.mark.parametrize("method", ["delta", "fipo", "dapo"])
def test_the_second_way_gives_the_same_bits(method: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(method, shape)
    first.train()
    other = without_the_seam()
    assert not takes_token_advantages(other)
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", other)
    second = build(method, shape)
    second.train()
    for one, two in zip(first.model.state_dict().values(), second.model.state_dict().values(), strict=True):
        assert torch.equal(one, two)


def test_advantages_per_token_are_the_column_that_is_made_of_them() -> None:
    values = torch.randn(3, 5)
    made = for_loss(values, without_the_seam())
    assert isinstance(made, TokenAdvantages)
    for column in (made.unsqueeze(1), made[:, None], made.unsqueeze(-1)):
        assert type(column) is torch.Tensor
        assert torch.equal(column, values)
    assert torch.equal(made > 0, values > 0)
    assert for_loss(values[:, 0], without_the_seam()).dim() == 1
