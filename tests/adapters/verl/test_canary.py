"""Canaries: every name and habit of verl that `internals` relies on. When verl moves one, this file says which."""

from __future__ import annotations

import ast
import inspect
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import delta_rlvr.adapters.verl as package
from rounding import rounding

FOLDER = Path(package.__file__).parent


@pytest.fixture(scope="module")
def verl(verl_environment: None) -> Any:
    import verl

    return verl


def test_the_version_is_one_that_the_adapter_was_written_for(verl: Any) -> None:
    assert version("verl").startswith("0.9.")


def test_one_file_alone_touches_verl() -> None:
    """`internals` has all of it; `plugin` may register a failure of that very file."""
    engine = {"verl", "transfer_queue", "tensordict", "ray", "omegaconf", "hydra"}
    touching = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            if any(name.split(".")[0] in engine for name in names):
                touching.add(path.name)
    assert touching == {"internals.py", "plugin.py"}


def test_the_mode_is_registered_by_importing_verl(verl: Any) -> None:
    from verl.trainer.ppo.v1 import get_trainer_cls

    from delta_rlvr.adapters.verl.internals import DeltaTrainerSync

    assert get_trainer_cls("delta_sync") is DeltaTrainerSync


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(inspect.unwrap(function)).parameters)


def test_methods_that_are_overridden_or_called(verl: Any) -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
    from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
    from verl.workers.utils.losses import ppo_loss
    from verl.workers.utils.padding import no_padding_2_padding

    expected = {
        PPOTrainer.__init__: ["self", "config"],
        PPOTrainer._init_resource_pool_mgr: ["self"],
        PPOTrainer._compute_advantage: ["self", "batch", "metrics"],
        PPOTrainer._compute_metrics: ["self", "batch", "metrics", "timing_raw", "global_steps", "epoch"],
        PPOTrainer._save_checkpoint: ["self"],
        PPOTrainer.fit: ["self", "agent_loop_manager"],
        ActorRolloutRefWorker.init_model: ["self"],
        ActorRolloutRefWorker.compute_log_prob: ["self", "data"],
        TrainingWorker.set_loss_fn: ["self", "loss_fn"],
        FSDPEngineWithLMHead.forward_step: ["self", "micro_batch", "loss_function", "forward_only"],
        FSDPEngineWithLMHead.get_data_parallel_group: ["self"],
        FSDPEngineWithLMHead.is_mp_src_rank_with_outputs: ["self"],
        ppo_loss: ["config", "model_output", "data", "dp_group"],
        no_padding_2_padding: ["tensor", "data"],
    }
    for function, names in expected.items():
        assert parameters(function) == names, function


def test_attributes_of_engine_and_trainer(verl: Any) -> None:
    from verl.trainer.ppo.v1 import trainer_base
    from verl.workers.engine.fsdp import transformer_impl

    engine = inspect.getsource(transformer_impl.FSDPEngine)
    for name in ("self.module", "self.ulysses_parallel_group", "self.device_mesh", "self._autocast_dtype"):
        assert name in engine, name
    trainer = inspect.getsource(trainer_base.PPOTrainer)
    for name in (
        "self.role_worker_mapping",
        "self.actor_rollout_wg",
        "self.timing_raw",
        "self.global_steps",
        "self.total_training_steps",
        "self.tokenizer",
    ):
        assert name in trainer, name


def test_what_the_queue_of_a_batch_is_asked_for(verl: Any) -> None:
    import transfer_queue

    batch = transfer_queue.KVBatchMeta(keys=["a"], tags=[{}], partition_id="train", fields=["x"])
    assert (batch.keys, batch.tags, batch.partition_id, batch.fields) == (["a"], [{}], "train", ["x"])
    assert {"keys", "partition_id", "select_fields"} <= set(parameters(transfer_queue.kv_batch_get))


def test_the_stock_trainer_still_asks_for_the_literal_sync(verl: Any) -> None:
    """The reason why our mode tells it "sync"; the day it asks otherwise, the disguise can go."""
    from verl.trainer.ppo.v1 import trainer_base

    assert inspect.getsource(trainer_base).count('self.trainer_mode != "sync"') >= 3


def test_old_log_probs_come_before_advantages_and_advantages_before_the_update(verl: Any) -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    step = inspect.getsource(PPOTrainer._step_once)
    order = [
        step.index(f"self.{name}(")
        for name in ("_compute_old_log_prob", "_compute_advantage", "_update_actor")
    ]
    assert order == sorted(order)
    assert '"calculate_entropy": True' in inspect.getsource(PPOTrainer._compute_old_log_prob)


def stock_loss(name: str, weights: Any) -> float:
    """One of verl's losses on a small fixed batch [4, 6], averaged over its tokens."""
    import torch
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config import FSDPActorConfig, PolicyLossConfig

    draw = torch.Generator().manual_seed(0)
    old = -torch.rand(4, 6, generator=draw)
    config = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        policy_loss=PolicyLossConfig(loss_mode=name, dro_beta=0.1),
    )
    torch.manual_seed(0)  # clip_cov draws the tokens it clips
    value, _ = get_policy_loss_fn(name)(
        old_log_prob=old,
        log_prob=old + 0.01 * torch.randn(4, 6, generator=draw),
        advantages=torch.tensor([1.0, -1.0, 0.5, -0.5])[:, None].expand(4, 6),
        response_mask=torch.ones(4, 6).bool(),
        loss_agg_mode="token-mean",
        config=config,
        rollout_is_weights=weights,
    )
    return float(value)


def test_stock_losses_multiply_each_token_by_its_weight(verl: Any) -> None:
    """The loss is a sum over tokens, each times its weight: the tokens' own losses add up to it under any weights."""
    import torch

    from delta_rlvr.adapters.verl.checks import WEIGHTED_LOSSES

    weights = torch.rand(4, 6, generator=torch.Generator().manual_seed(1)) + 0.5
    for name in WEIGHTED_LOSSES:
        alone = torch.zeros(4, 6)
        for row in range(4):
            for time in range(6):
                chosen = torch.zeros(4, 6)
                chosen[row, time] = 1.0
                alone[row, time] = stock_loss(name, chosen)
        assert stock_loss(name, weights) == pytest.approx(
            float((alone * weights).sum()), abs=rounding(24, size=40.0)
        ), name
        assert stock_loss(name, None) == pytest.approx(float(alone.sum()), abs=rounding(24, size=40.0)), name
        assert (alone != 0).sum() > 20, name


def test_the_loss_that_we_refuse_does_not(verl: Any) -> None:
    import torch

    halves = torch.ones(4, 6)
    halves[:, 3:] = 4.0
    swapped = halves.flip(1)
    assert stock_loss("geo_mean", halves) == pytest.approx(
        stock_loss("geo_mean", swapped), abs=rounding(24, size=3.0)
    )


def test_every_setting_that_is_checked_stands_in_verls_config(verl: Any) -> None:
    from omegaconf import OmegaConf
    from verl_workers import whole_config

    from delta_rlvr.adapters.verl.checks import PATHS, RESPONSE_ADVANTAGES

    config = whole_config("anything")
    for path in PATHS:
        parent, name = path.rsplit(".", 1)
        assert name in OmegaConf.select(config, parent), path
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    assert set(RESPONSE_ADVANTAGES) <= {str(getattr(name, "value", name)) for name in ADV_ESTIMATOR_REGISTRY}
