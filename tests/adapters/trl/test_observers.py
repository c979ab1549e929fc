"""Three real steps on the built-in task, and what they leave behind. (That every method trains is shown step by step, by hand.)"""

import pytest
import torch

from real_generation import build_real
from rounding import rounding


@pytest.mark.parametrize(
    ("settings", "absent"),
    [({}, {"logps"}), ({"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}, set())],
    ids=["late", "a pass of its own"],
)
def test_what_a_run_logs_and_shows_to_observers(settings, absent):
    trainer = build_real("delta", logging_steps=1, all_credit_metrics=True, **settings)
    batches = trainer.batches
    trainer.looks_closely = lambda step: True
    trainer.train()
    lines = [line for line in trainer.state.log_history if "credit/weight_mean" in line]
    assert len(lines) == 3
    for line in lines:
        assert line["credit/weight_mean"] == pytest.approx(1, abs=rounding(100))
        assert line["credit/gamma_positive"] > 0
        assert line["credit/centroid_gap"] > 0
        assert line["credit/store_bytes"] > 0
        assert 0 <= line["credit/zero_advantage"] < 1
    assert [batch.step for batch in batches] == [1, 2, 3]
    for batch, generation in zip(batches, trainer.generations, strict=True):
        assert batch.mask.sum(1).tolist() == [len(row["tokens"]) for row in generation["rows"]]
        assert batch.groups.tolist() == [0] * 4 + [1] * 4
        assert [row["prompt"] for row in batch.rows] == [row["prompt"] for row in generation["rows"]]
        assert batch.entropy is not None
        assert (batch.entropy[batch.mask] >= 0).all()
        assert (batch.logps[batch.mask] <= 0).all()
        # Counted token by token, the slow way.
        counted = torch.zeros_like(batch.vocabulary)
        for token, side, weight in zip(
            batch.completion_ids[batch.mask], batch.record.side, batch.record.weights, strict=True
        ):
            if side != 0:
                counted[0 if side > 0 else 2, token] += 1
                counted[1 if side > 0 else 3, token] += weight.double()
        torch.testing.assert_close(batch.vocabulary, counted)
    spent = {phase for phase, seconds in trainer.seconds.items() if seconds > 0}
    assert spent == {"generate", "logps", "reward", "credit", "update"} - absent
