"""The delta block and the rest of the config: what is understood, what is refused, and with which words. Neither verl nor Ray."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.adapters.verl.checks import RESPONSE_ADVANTAGES, WEIGHTED_LOSSES, check_config, select
from delta_rlvr.adapters.verl.settings import SettingsError, VerlSettings, read_settings
from delta_rlvr.credit import Delta
from delta_rlvr.credit.rules.forking import ForkingTokens
from delta_rlvr.credit.rules.uniform import Uniform
from delta_rlvr.objectives import FutureClip

ACTOR, MODE = "actor_rollout_ref.actor", "trainer.v1.trainer_mode"
CORRECTION = "algorithm.rollout_correction"


def sound() -> dict[str, Any]:
    """A config that DelTA runs with."""
    return {
        "actor_rollout_ref": {
            "actor": {
                "strategy": "fsdp2",
                "loss_agg_mode": "token-mean",
                "policy_loss": {"loss_mode": "vanilla"},
                "clip_ratio_c": 10.0,
                "ulysses_sequence_parallel_size": 1,
                "use_prefix_grouper": False,
            },
            "model": {"use_remove_padding": True},
        },
        "algorithm": {"adv_estimator": "grpo", "rollout_correction": {"bypass_mode": False, "rollout_rs": None}},
        "distillation": {"enabled": False},
        "trainer": {"use_v1": True, "v1": {"trainer_mode": "delta_sync"}},
    }


def changed(path: str, value: Any, config: dict[str, Any] | None = None) -> dict[str, Any]:
    config = sound() if config is None else config
    *parents, last = path.split(".")
    place = config
    for parent in parents:
        place = place[parent]
    place[last] = value
    return config


def test_the_method_is_spelled_with_its_settings() -> None:
    settings = read_settings({"method": "delta?lambda_min=0.5&lambda_max=1.5&scope=group"})
    assert settings.method.rule == Delta(lambda_min=0.5, lambda_max=1.5, scope="group")
    assert read_settings({"method": "dapo-ft?quantile=0.9"}).method.rule == ForkingTokens(0.9)
    assert read_settings({"method": "dapo"}).method.rule == Uniform()
    future = read_settings({"method": "fipo?weight_high=1.5&dual=5"}).method.surrogate
    assert future == FutureClip(weight_high=1.5, dual=5.0)


def test_budgets_are_gigabytes_per_rank_as_with_trl() -> None:
    settings = read_settings({"method": "delta", "store_device_gb": 1.5, "store_host_gb": 2})
    store = settings.store(ranks_on_node=8)
    assert (store.device_bytes, store.host_bytes) == (1_500_000_000, 2_000_000_000)
    free = read_settings({"method": "delta"}).store(8)
    # The store itself shares free host memory out between the ranks of a node.
    assert (free.device_bytes, free.host_bytes, free.ranks_on_node) == (None, None, 8)


def test_settings_are_called_as_with_trl() -> None:
    assert {one.name for one in fields(VerlSettings)} <= {one.name for one in fields(DeltaTrainerConfig)}


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (None, "delta.method is missing"),
        ({"run_folder": "here"}, "delta.method is missing"),
        ({"method": "delat"}, "did you mean 'delta'"),
        ({"method": "delta", "lambda_min": 0.8}, r"\+delta.method='delta\?lambda_min=0.8'"),
        ({"method": "delta", "run_folde": "here"}, "did you mean 'run_folder'"),
        ({"method": "delta?proxy=full"}, "gradient over all parameters .* verl .* does not give; .* none"),
        ({"method": "oracle"}, "labels of the decisive tokens, which verl .* does not give"),
        ({"method": "delta?lambda_min=1.3"}, "above lambda_max"),
        ({"method": "delta", "store_device_gb": -1}, "store_device_gb=-1"),
        ({"method": "delta", "rollouts_every": -1}, "rollouts_every=-1"),
        ({"method": "delta", "run_folder": ""}, "run_folder"),
    ],
)
def test_a_wrong_block_is_refused_by_name(block: dict[str, Any] | None, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read_settings(block)


@pytest.mark.parametrize(
    ("method", "path", "value", "words"),
    [
        ("delta", f"{ACTOR}.strategy", "megatron", "hidden states.* engines that do: TRL, verl .fsdp2"),
        ("fipo", f"{ACTOR}.strategy", "megatron", "ratio to the old one, inside the loss"),
        ("delta", MODE, "delta_colocate_async", "hidden states.* Set it to delta_sync"),
        ("dapo", MODE, "sync", "would ignore the delta block; set it to delta_sync"),
        ("delta", f"{CORRECTION}.bypass_mode", True, "hidden states.* Set it to False"),
        ("gtpo", f"{CORRECTION}.bypass_mode", True, "entropy of the old policy .* verl .any strategy"),
        ("delta", f"{CORRECTION}.rollout_rs", "token_k1", "set it to null"),
        ("delta", "algorithm.adv_estimator", "gae", "one advantage per response"),
        ("delta", "distillation.enabled", True, "replaces the policy loss"),
        ("delta", f"{ACTOR}.policy_loss.loss_mode", "geo_mean", "does not weigh single tokens"),
        ("delta", f"{ACTOR}.loss_agg_mode", "seq-mean-token-sum", "averages by token-mean"),
        ("delta", f"{ACTOR}.use_prefix_grouper", True, "use_prefix_grouper"),
        ("grpo", f"{ACTOR}.loss_agg_mode", "token-mean", "averages by seq-mean-token-mean"),
        ("sapo", f"{ACTOR}.policy_loss.loss_mode", "vanilla", "loss_mode=sapo"),
        ("dapo", f"{ACTOR}.policy_loss.loss_mode", "gspo", "set it to vanilla"),
        ("fipo", f"{ACTOR}.clip_ratio_c", 3.0, "dual clip at 10.0"),
        ("delta-topk", f"{ACTOR}.strategy", "fsdp", "LM head's weight, .* Set it to fsdp2"),
        ("delta-top50", f"{ACTOR}.ulysses_sequence_parallel_size", 2, "needs whole responses"),
    ],
)
def test_a_contradiction_is_refused_with_the_way_out(method: str, path: str, value: Any, words: str) -> None:
    config = changed(path, value)
    with pytest.raises(SettingsError, match=words) as refusal:
        check_config(config, read_settings({"method": method}))
    assert path in str(refusal.value)


def test_all_contradictions_are_shown_at_once() -> None:
    config = changed(f"{ACTOR}.strategy", "megatron")
    config["algorithm"]["adv_estimator"] = "gae"
    with pytest.raises(SettingsError) as refusal:
        check_config(config, read_settings({"method": "delta"}))
    assert str(refusal.value).count("\n  - ") == 2


@pytest.mark.parametrize(
    "settings",
    [
        {f"{ACTOR}.strategy": "megatron"},
        {f"{ACTOR}.strategy": "veomni", MODE: "delta_separate_async"},
        {MODE: "delta_colocate_async"},
        {f"{CORRECTION}.bypass_mode": True},
        {f"{CORRECTION}.rollout_rs": "token_k1"},
        {f"{ACTOR}.ulysses_sequence_parallel_size": 2},
    ],
)
@pytest.mark.parametrize("method", ["delta-scalar", "delta-random", "ktae", "dapo"])
def test_what_needs_log_probs_alone_runs_everywhere(method: str, settings: dict[str, Any]) -> None:
    config = sound()
    for path, value in settings.items():
        config = changed(path, value, config)
    check_config(config, read_settings({"method": method}))


def test_sequence_parallelism_needs_packed_sequences() -> None:
    config = changed(f"{ACTOR}.ulysses_sequence_parallel_size", 4)
    for method in ("delta", "delta-context"):
        check_config(config, read_settings({"method": method}))
    config["actor_rollout_ref"]["model"]["use_remove_padding"] = False
    with pytest.raises(SettingsError, match="use_remove_padding=True"):
        check_config(config, read_settings({"method": "delta"}))


def test_other_stock_losses_may_be_weighed() -> None:
    for loss in WEIGHTED_LOSSES:
        check_config(changed(f"{ACTOR}.policy_loss.loss_mode", loss), read_settings({"method": "delta"}))
    for estimator in RESPONSE_ADVANTAGES:
        check_config(changed("algorithm.adv_estimator", estimator), read_settings({"method": "delta"}))


def test_a_missing_part_of_the_config_reads_as_the_default() -> None:
    assert select({"a": {"b": None}}, "a.b.c", 7) == 7
    assert select({}, "a.b", "x") == "x"
    assert select({"a": {"b": 0}}, "a.b", 7) == 0
