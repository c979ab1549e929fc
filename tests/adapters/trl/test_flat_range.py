"""`lambda_min == lambda_max` is TRL's own DAPO, step by step, although the capture and the solve still run."""

import pytest
import torch

from real_generation import build_real
from replayed_training import parameters_of
from rounding import MODEL, rounding

SHAPES = {
    "late": {},
    "TRL skips the old pass": {"gradient_accumulation_steps": 2},
    "several updates": {"steps_per_generation": 2, "num_iterations": 2},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_flat_range_is_stock_dapo(shape):
    settings = {"max_steps": 5, "temperature": 0.9, **SHAPES[shape]}
    stock = build_real(stock=True, loss_type="dapo", epsilon_high=0.28, **settings)
    before = parameters_of(stock)
    stock.train()
    ours = build_real("delta?lambda_min=1&lambda_max=1", **settings)
    ours.train()

    assert [g["rows"] for g in ours.generations] == [g["rows"] for g in stock.generations]
    expected = [micro["loss"] for micro in stock.losses]
    assert [micro["loss"] for micro in ours.losses] == pytest.approx(expected, abs=rounding(MODEL * 5))
    # (Responses of one length make the loss of a whole batch 0, but not its gradient.)
    assert max((value - before[name]).abs().max() for name, value in parameters_of(stock).items()) > 1e-3
    for name, value in stock.model.named_parameters():
        torch.testing.assert_close(
            dict(ours.model.named_parameters())[name], value, atol=rounding(MODEL * 5), rtol=0, msg=name
        )

    # It was not short-circuited: states of every token waited in the store, and every batch was solved.
    tokens = [sum(len(row["tokens"]) for row in g["rows"]) for g in ours.generations]
    records = [batch.record for batch in ours.batches]
    width = ours.model.config.hidden_size
    assert [record.store_bytes for record in records] == [4 * width * count for count in tokens]
    assert all(record.discriminator is not None for record in records)
    assert all((record.weights == 1).all() for record in records)


def test_another_range_is_not():
    """The comparison above can fail."""
    stock = build_real(stock=True, loss_type="dapo", epsilon_high=0.28)
    stock.train()
    ours = build_real("delta")
    ours.train()
    assert abs(ours.losses[0]["loss"] - stock.losses[0]["loss"]) > 1e-4
