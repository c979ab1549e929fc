"""The same as on one rank, on two, as `torchrun` starts them (`accelerate launch --cpu` silently starts one process)."""

import pytest
import torch

import ranks_main
from by_hand import Options, assert_as_by_hand
from ranks import on_two_ranks
from ranks_main import EVERY_SHAPE, METHODS, SHAPES
from support_methods import TRAINABLE

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two-ranks")
    on_two_ranks(ranks_main.main, folder, log=folder / "log")
    return lambda name: [torch.load(folder / f"{name}.{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize(
    ("method", "shape"),
    [(method, shape) for method in METHODS for shape in (SHAPES if method in EVERY_SHAPE else SHAPES[:1])],
)
def test_every_method_by_hand(two_ranks, method, shape):
    ranks = two_ranks(f"{method}, {shape}")
    rows = [len(rank["generations"][0]["rows"]) for rank in ranks]
    assert rows == [12, 12]  # really two processes, with half of the batch each
    hand = assert_as_by_hand(ranks, TRAINABLE[method], shape, options=Options(against_loops=False))
    if shape == "several updates":
        assert max(hand.clipped) > 0.2


def test_a_rank_without_a_valid_token(two_ranks):
    ranks = two_ranks("uneven")
    hand = assert_as_by_hand(ranks, TRAINABLE["delta"], "accumulation 4", options=Options(mask_truncated=True))
    assert not hand.weights[0][12:].any()
    assert hand.weights[0][:12].any()
    assert all(micro["loss"] == 0 for micro in ranks[1]["losses"])


def test_copies_of_a_prompt_lie_side_by_side_over_the_ranks(two_ranks):
    """`_groups` counts on this order."""
    first, second = two_ranks("order")
    prompts, groups = first["prompts"] + second["prompts"], first["groups"] + second["groups"]
    assert groups == [0] * 8 + [1] * 8 + [2] * 8
    assert len(set(zip(prompts, groups, strict=True))) == len(set(prompts)) == 3


def test_the_ranks_of_a_node_know_of_each_other(two_ranks):
    """Each may pin its part of the host's memory alone."""
    assert [rank["ranks_on_node"] for rank in two_ranks("order")] == [2, 2]


def test_equal_rewards_are_no_signal_on_any_rank(two_ranks):
    for rank in two_ranks("alike"):
        assert rank["advantages"] == [0.0] * 12
        assert rank["signal"] == [0.0]


def test_a_sharded_head_is_gathered(two_ranks):
    for rank in two_ranks("sharded head"):
        assert rank["local_rows"] < 585
        assert rank["same"]


def test_an_infinite_reward_on_one_rank_stops_both(two_ranks):
    for message in two_ranks("refused"):
        assert "'reward' gave inf for response 14 of the batch" in message  # 12 rows on the first rank, then the third
