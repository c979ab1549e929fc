"""The mixin for older TRLs against the TRL that is installed: `scripts/try_engines.sh trl-0.24` and `trl-0.29`, and here the newest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from delta_rlvr.credit.rule import RuleError
from tiny_trl import bits, model, train

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "engines"))
from old_trl import TokenCredit

SETTINGS = {"one update": {}, "two updates, clipped": {"num_iterations": 2, "epsilon": 0.05, "steps_per_generation": 2}}


def kind(method: str) -> type:
    return type("Trainer", (TokenCredit, GRPOTrainer), {"method": method})


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_dapo_is_the_stock_trainer_bit_for_bit(settings: dict[str, Any], tmp_path: Path) -> None:
    stock = bits(train(GRPOTrainer, tmp_path, **settings))
    # The second goes through weights of one: advantages per token, in the way that this TRL takes them.
    for method in ("dapo", "delta-scalar?lambda_min=1&lambda_max=1"):
        ours = bits(train(kind(method), tmp_path, **settings))
        assert all(map(torch.equal, stock, ours)), method
    assert not all(map(torch.equal, stock, model().state_dict().values()))


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_delta_scalar_trains(settings: dict[str, Any], tmp_path: Path) -> None:
    seen: list[torch.Tensor] = []

    class Trainer(kind("delta-scalar")):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            seen.append(inputs["advantages"])
            return super()._compute_loss(model, inputs)

    trainer = train(Trainer, tmp_path, **settings)
    stock = bits(train(GRPOTrainer, tmp_path, **settings))
    assert not all(map(torch.equal, stock, bits(trainer)))
    assert all(one.isfinite().all() for one in bits(trainer))
    assert all(one.dim() == 2 for one in seen)
    # Tokens of one response count differently.
    assert any((row[row != 0].std() > 1e-3) for one in seen for row in one if (row != 0).sum() > 1)


def test_a_rule_that_needs_more_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"hidden states.* which TRL 0.24 to 0.29.* engines that do: TRL, verl"):
        train(kind("delta"), tmp_path)
