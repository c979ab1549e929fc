"""Coefficients belong to tokens: order, padding, micro-batches, packing and ranks must not change them."""

import pytest
import torch

from credit_batches import HEAD, RULES, make_batch, rank_main
from delta_rlvr.credit import CreditStream, RowStore, credit_record
from delta_rlvr.testing import check_rule
from ranks import on_two_ranks
from rounding import assert_clear_cut, rounding

# Weights are computed in float64 and stored in float32: another order of the sums may move a last digit, of weights up to 4.
STORED = rounding(1, size=4.0)


def solve(batch, rule):
    """Weights of each response, as a list of 1-D tensors."""
    record = credit_record(**batch, rule=rule, head=HEAD, temperature=0.7)
    return list(record.weights.split(record.lengths.tolist()))


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=STORED, rtol=0)


def each_rule(function):
    return pytest.mark.numeric(pytest.mark.parametrize("rule", RULES, ids=repr)(function))


@each_rule
def test_nothing_in_the_batch_is_decided_by_a_last_digit(rule):
    batch = make_batch()
    record = credit_record(**batch, rule=rule, head=HEAD, temperature=0.7)
    assert_clear_cut(rule, record, batch["entropy"][batch["mask"]])


@each_rule
def test_order_padding_micro_batches_and_packing(rule):
    check_rule(rule)


@each_rule
def test_log_probs_may_come_late_and_a_stream_may_be_used_again(rule):
    first, second = make_batch(1), make_batch(2)
    stream = CreditStream(rule, head=HEAD, temperature=0.7)
    for batch in (first, second):
        stream.clear()
        stream.add(batch["hidden"], mask=batch["mask"], tokens=batch["tokens"])
        record = stream.solve(
            batch["advantages"],
            logps=batch["logps"][batch["mask"]],
            entropy=batch["entropy"][batch["mask"]],
            groups=batch["groups"],
            keys=batch["keys"],
        )
        assert_same(list(record.weights.split(record.lengths.tolist())), solve(batch, rule))


def test_ranks_with_uneven_shards_and_one_without_a_token(tmp_path):
    batch = make_batch()
    batch["mask"][7:] = False
    on_two_ranks(rank_main, tmp_path, log=tmp_path / "log")
    results, refused = zip(*(torch.load(tmp_path / f"{rank}.pt") for rank in range(2)), strict=True)
    for number, rule in enumerate(RULES):
        record = credit_record(**batch, rule=rule, head=HEAD, temperature=0.7)
        ours = torch.cat([seen[number][0] for seen in results])
        torch.testing.assert_close(ours, record.weights, atol=STORED, rtol=0)
        for seen in results:
            assert seen[number][1] == pytest.approx(record.summary(), rel=STORED, abs=STORED)
    # Bad input on one rank stops all of them; nobody is left waiting in a collective.
    assert "row 0" in refused[0][0]
    assert [len(messages) for messages in refused] == [2, 2]
    assert all("another rank" in message for message in refused[1])


@pytest.mark.parametrize("rule", RULES[:11], ids=repr)
def test_where_rows_wait_does_not_matter(rule):
    batch = make_batch()
    reference = solve(batch, rule)
    asked = []
    stream = CreditStream(rule, head=HEAD, temperature=0.7, store=RowStore(device_bytes=500))
    for row in range(9):
        part = {name: batch[name][row : row + 1] for name in ("hidden", "logps", "tokens", "entropy", "mask")}

        def again(hidden=part["hidden"], row=row):
            asked.append(row)
            return hidden

        stream.add(**part, recompute=again)
    record = stream.solve(batch["advantages"], groups=batch["groups"], keys=batch["keys"])
    assert_same(list(record.weights.split(record.lengths.tolist())), reference)
    assert asked, "the budget was meant to be too small"
    assert "recomputed" in record.store
    assert 0 < record.store_bytes <= 500


def test_another_method_on_the_same_stored_rows():
    batch = make_batch()
    stream = CreditStream(RULES[0], head=HEAD, temperature=0.7)
    stream.add(batch["hidden"], batch["logps"], batch["mask"], tokens=batch["tokens"], entropy=batch["entropy"])
    for rule in (RULES[1], *RULES[4:]):
        record = stream.solve(batch["advantages"], groups=batch["groups"], keys=batch["keys"], rule=rule)
        assert_same(list(record.weights.split(record.lengths.tolist())), solve(batch, rule))
    for rule in RULES[2:4]:  # the top-K proxy stores other rows
        with pytest.raises(ValueError, match="reads top-4 hidden gradients, which this stream did not store"):
            stream.solve(batch["advantages"], groups=batch["groups"], rule=rule)
