"""Three real steps on the built-in task, and what a run leaves behind. (That every method trains is shown step by step, by hand.)"""

import math

import pytest
import torch

from real_generation import build_real, train_for_real
from rounding import rounding
from support_methods import TRAINABLE

# One of each kind: surrogates, rules that read log-probs or entropies or count tokens, every proxy, draws.
KINDS = (
    *("grpo", "dapo", "sapo", "fipo", "dapo-ft", "surprise", "ktae", "gtpo", "delta", "delta-group", "delta-topk"),
    *("delta-head", "delta-scalar", "delta-scale", "delta-random", "delta-top50"),
)


@pytest.mark.parametrize("method", KINDS)
def test_three_steps(method):
    seen = train_for_real(method)
    assert len(seen["losses"]) == 3
    assert all(math.isfinite(loss) for loss in seen["losses"])
    assert all(seen["changed"].values())
    for weights, count in zip(seen["weights"], seen["token_counts"], strict=True):
        assert len(weights) == count
        if TRAINABLE[method].rule.mean_one:
            assert weights.mean().item() == pytest.approx(1, abs=rounding(count))
    # The mean of DelTA's weights is one where every token has an advantage, as here.
    uniform = method in ("grpo", "dapo", "sapo", "fipo", "delta-scale")
    close = 1e-6 if method == "delta-scale" else 0
    assert all(((weights - 1).abs() <= close).all() == uniform for weights in seen["weights"])
    assert all((size > 0) == ("hidden" in TRAINABLE[method].rule.needs) for size in seen["store_bytes"])


@pytest.mark.parametrize("method", ["delta", "delta-head", "dapo-ft", "fipo"])
def test_three_steps_with_lora(method):
    seen = train_for_real(method, lora=True)
    assert all(math.isfinite(loss) for loss in seen["losses"])
    assert any(seen["changed"].values())
    assert all("lora" in name for name in seen["changed"])


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
