"""Which hidden state predicts which token, in every layout an engine may use; and slices of sequences over two gloo ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from delta_rlvr.adapters.verl.capture import MicroBatch, PassCapture, Stopwatch, places
from delta_rlvr.adapters.verl.settings import read_settings
from delta_rlvr.credit import RowStore, credit_record
from ranks import on_two_ranks
from rounding import rounding
from verl_slices import LENGTHS, RESPONSES, solve_sliced, whole_batch

# Two sequences: prompt of 2 and response of 3 (its middle token masked), prompt of 1 and response of 2.
#   packed positions   0 1 2 3 4 | 5 6 7
#   token              p p r r r | p r r
#   predicts r at         1 2 3      5 6      of which 2 predicts the masked one
MICRO = MicroBatch(
    rows=torch.tensor([4, 7]),
    sequence_lengths=torch.tensor([5, 3]),
    response_lengths=torch.tensor([3, 2]),
    response_mask=torch.tensor([1, 0, 1, 1, 1]).bool(),
    response_ids=torch.tensor([10, 11, 12, 20, 21]),
)


def test_positions_by_hand() -> None:
    found = places(MICRO, torch.Size([1, 8, 6]), 0, 1)
    assert found.positions.tolist() == found.local.tolist() == [1, 3, 5, 6]
    assert found.within.tolist() == [0, 2, 0, 1]
    assert found.lengths.tolist() == [2, 2]
    assert found.ids.tolist() == [10, 12, 20, 21]
    # Padding at the end of a packed row is never picked.
    assert places(MICRO, torch.Size([1, 16, 6]), 0, 1).positions.tolist() == [1, 3, 5, 6]
    # Padded rows of width 5, or of 9 for a longer sequence elsewhere: the second one's prompt ends where it starts.
    for width, local in ((5, [1, 3, 5, 6]), (9, [1, 3, 9, 10])):
        assert places(MICRO, torch.Size([2, width, 6]), 0, 1).local.tolist() == local


def test_slices_take_their_own_tokens() -> None:
    # 8 tokens and 2 of padding in two slices of 5: positions 0-4 and 5-9.
    first = places(MICRO, torch.Size([1, 5, 6]), 0, 2)
    second = places(MICRO, torch.Size([1, 5, 6]), 1, 2)
    assert (first.local.tolist(), first.lengths.tolist()) == ([1, 3], [2, 0])
    assert (second.local.tolist(), second.lengths.tolist()) == ([0, 1], [0, 2])
    assert second.positions.tolist() == [5, 6]  # log-probs are gathered over the slices: global places


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(RuntimeError, match="layout of tokens is not supported"):
        places(MICRO, torch.Size([3, 5, 6]), 0, 1)


def capture_for(method: str, **given: object) -> PassCapture:
    given = {"store": RowStore(), "process_group": None, **given}
    return PassCapture(read_settings({"method": method}), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["delta", "delta-scalar", "dapo-ft"])
def test_nothing_in_the_pass_waits_for_the_device(method: str) -> None:
    """Tensors on the device "meta" have no values: code that reads one, as code that waits for a GPU does, raises."""
    with pytest.raises(RuntimeError, match="meta"):
        torch.empty(1, device="meta").item()
    capture = capture_for(method, device="meta")
    for _ in range(2):
        capture.add_hidden(MICRO, torch.empty(1, 8, 6, device="meta"))
        capture.add_outputs(torch.empty(8, device="meta"), torch.empty(8, device="meta"))
    assert len(capture.stream.store) == (8 if capture.stream.needs_hidden else 0)


def test_a_decoder_that_runs_never_or_twice_is_refused() -> None:
    capture = capture_for("delta")
    with pytest.raises(RuntimeError, match="never ran"):
        capture.add_outputs(torch.zeros(8), None)
    capture.add_hidden(MICRO, torch.randn(1, 8, 6))
    with pytest.raises(RuntimeError, match="ran twice"):
        capture.add_hidden(MICRO, torch.randn(1, 8, 6))


def test_a_full_store_names_the_settings_that_make_room() -> None:
    capture = capture_for("delta", store=RowStore(device_bytes=8, host_bytes=8))
    with pytest.raises(ValueError, match=r"delta\.store_device_gb"):
        capture.add_hidden(MICRO, torch.randn(1, 8, 6))


def test_another_batch_than_the_captured_one_is_refused() -> None:
    capture = capture_for("delta")
    capture.add_hidden(replace(MICRO, rows=torch.tensor([1, 0])), torch.randn(1, 8, 6))
    capture.add_outputs(-torch.rand(8), None)
    ids, ones, lengths = torch.arange(3), torch.ones(3), torch.tensor([2, 3, 1])
    with pytest.raises(RuntimeError, match="same batch"):
        capture.solve(ones, lengths, rewards=ones, groups=ids, keys=ids, round_number=0)


def test_a_stopwatch_adds_up_its_blocks() -> None:
    watch = Stopwatch(torch.device("cpu"))
    for _ in range(2):
        with watch:
            torch.ones(10).sum()
    first = watch.seconds
    assert 0 < first < 1
    assert watch.seconds == first


def test_slices_of_sequences_give_the_weights_of_the_whole(tmp_path: Path) -> None:
    methods = ("delta", "dapo-ft")
    on_two_ranks(solve_sliced, tmp_path, methods, log=tmp_path / "log")

    micro, hidden, logps, advantages = whole_batch()
    # The core on padded tensors, in the batch's own order: the micro-batch's sequences 1, 2, 0 are rows 0, 1, 2 of it.
    order = [1, 2, 0]
    ends = torch.tensor(LENGTHS).cumsum(0).tolist()
    starts = [0, *torch.tensor(RESPONSES).cumsum(0).tolist()]
    spans = [slice(ends[n] - RESPONSES[n] - 1, ends[n] - 1) for n in order]
    masks = [micro.response_mask[starts[n] : starts[n + 1]] for n in order]
    pad = torch.nn.utils.rnn.pad_sequence
    for method in methods:
        record = credit_record(
            pad([hidden[0, span] for span in spans], batch_first=True),
            pad([logps[span] for span in spans], batch_first=True),
            advantages,
            pad(masks, batch_first=True),
            rule=read_settings({"method": method}).method.rule,
            entropy=pad([-logps[span] for span in spans], batch_first=True),
        )
        expected = torch.zeros(sum(RESPONSES))
        expected[torch.cat(masks)] = record.weights
        assert record.weights.std() > 0.05
        for rank in range(2):
            found = torch.load(tmp_path / f"{rank}.pt")[method]
            torch.testing.assert_close(found, expected, atol=rounding(10, size=4.0), rtol=0)
