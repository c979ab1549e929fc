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


def imported() -> dict[str, set[str]]:
    """The modules that each file of the adapter imports."""
    modules: dict[str, set[str]] = {}
    for path in FOLDER.rglob("*.py"):
        names = modules.setdefault(path.relative_to(FOLDER).as_posix(), set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
    return modules


def importers(*prefixes: str) -> set[str]:
    """The files that import one of these modules or a part of it."""
    return {
        path
        for path, modules in imported().items()
        if any(f"{module}.".startswith(f"{prefix}.") for module in modules for prefix in prefixes)
    }


def test_one_folder_alone_touches_verl() -> None:
    """`internals` has all of it; `plugin` may register a failure of that very folder."""
    touching = importers("verl", "transfer_queue", "tensordict", "ray", "omegaconf", "hydra")
    assert {path for path in touching if not path.startswith("internals/")} == {"plugin.py"}


def test_only_fronts_know_a_trainer_and_each_knows_its_own() -> None:
    """The day verl drops a trainer, its front goes, and nothing else changes."""
    fronts = {"internals/front.py", "internals/v1.py", "internals/classic.py", "plugin.py"}
    assert importers("verl.trainer") == fronts
    assert importers("verl.trainer.ppo.v1", "transfer_queue") == {"internals/v1.py", "plugin.py"}
    assert importers("verl.trainer.ppo.ray_trainer") == {"internals/classic.py", "plugin.py"}
    own = "delta_rlvr.adapters.verl.internals"
    assert importers(f"{own}.v1", f"{own}.classic") == set()
    assert importers(f"{own}.front") == {"internals/v1.py", "internals/classic.py"}


def parameters(function: Any) -> list[str]:
    names = inspect.signature(inspect.unwrap(function)).parameters
    # Ray's own is there once another test has made the class remote.
    return [name for name in names if name != "_ray_trace_ctx"]


def test_methods_that_are_overridden_or_called(verl: Any) -> None:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.utils.tracking import Tracking
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
        RayPPOTrainer._load_checkpoint: ["self"],
        RayPPOTrainer._save_checkpoint: ["self"],
        RayPPOTrainer._compute_old_log_prob: ["self", "batch"],
        RayPPOTrainer._update_actor: ["self", "batch"],
        RayPPOTrainer.fit: ["self"],
        Tracking.log: ["self", "data", "step", "backend"],
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
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    both = ("actor_rollout_wg", "global_steps", "total_training_steps", "tokenizer")
    for owner, names in (
        (FSDPEngine, ("module", "ulysses_parallel_group", "device_mesh", "_autocast_dtype")),
        (RayPPOTrainer, both),
        (PPOTrainer, (*both, "role_worker_mapping", "timing_raw")),
    ):
        source = inspect.getsource(owner)
        assert [name for name in names if f"self.{name}" not in source] == [], owner


def test_what_the_queue_of_a_batch_is_asked_for(verl: Any) -> None:
    import transfer_queue

    batch = transfer_queue.KVBatchMeta(keys=["a"], tags=[{}], partition_id="train", fields=["x"])
    assert (batch.keys, batch.tags, batch.partition_id, batch.fields) == (["a"], [{}], "train", ["x"])
    assert {"keys", "partition_id", "select_fields"} <= set(parameters(transfer_queue.kv_batch_get))


def test_the_stock_trainer_still_asks_for_the_literal_sync(verl: Any) -> None:
    """The reason why our mode tells it "sync"; the day it asks otherwise, the disguise can go."""
    from verl.trainer.ppo.v1 import trainer_base

    assert inspect.getsource(trainer_base).count('self.trainer_mode != "sync"') >= 3


def assert_in_order(function: Any, *calls: str) -> None:
    source = inspect.getsource(function)
    order = [source.index(call) for call in calls]
    assert order == sorted(order)


def test_old_log_probs_come_before_advantages_and_advantages_before_the_update(verl: Any) -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    steps = ("_compute_old_log_prob", "_compute_advantage", "_update_actor")
    assert_in_order(PPOTrainer._step_once, *(f"self.{name}(" for name in steps))
    assert '"calculate_entropy": True' in inspect.getsource(PPOTrainer._compute_old_log_prob)


def test_the_classic_trainer_calls_what_its_front_holds_on_to_in_this_order(verl: Any) -> None:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    assert parameters(RayPPOTrainer.__init__)[:4] == ["self", "config", "tokenizer", "role_worker_mapping"]
    assert parameters(RayPPOTrainer._balance_batch)[:2] == ["self", "batch"]
    assert_in_order(
        RayPPOTrainer.fit,
        "from verl.utils.tracking import Tracking",
        "self._load_checkpoint()",
        "repeat_times=rollout_n, interleave=True",
        "self._balance_batch(batch, metrics=metrics)",
        "self._compute_old_log_prob(batch)",
        "compute_advantage(",
        "actor_output = self._update_actor(batch)",
        "reduce_metrics(actor_output.meta_info",
        "logger.log(data=metrics, step=self.global_steps)",
    )
    old_log_prob = inspect.getsource(RayPPOTrainer._compute_old_log_prob)
    assert '"entropys": entropy' in old_log_prob
    assert "calculate_entropy=True" in old_log_prob


def test_micro_batches_are_in_host_memory_until_the_forward_step_moves_them(verl: Any) -> None:
    """So that describing one to the capture never waits for the device."""
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    step = inspect.getsource(FSDPEngineWithLMHead.forward_step)
    assert "micro_batch = micro_batch.to(get_device_id())" in step


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
        chosen = torch.eye(24).view(24, 4, 6)
        alone = torch.tensor([stock_loss(name, one) for one in chosen]).view(4, 6)
        for given, total in ((weights, alone * weights), (None, alone)):
            close = pytest.approx(float(total.sum()), abs=rounding(24, size=40.0))
            assert stock_loss(name, given) == close, name
        assert (alone != 0).sum() > 20, name
    # The loss that is refused does not: half of a response weighs more, whichever half it is.
    halves = torch.ones(4, 6)
    halves[:, 3:] = 4.0
    close = pytest.approx(stock_loss("geo_mean", halves.flip(1)), abs=rounding(24, size=3.0))
    assert stock_loss("geo_mean", halves) == close


def test_every_setting_that_is_checked_stands_in_verls_config(verl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from omegaconf import OmegaConf
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    from delta_rlvr.adapters.verl import checks
    from delta_rlvr.adapters.verl.settings import read_settings
    from verl_workers import whole_config

    config = whole_config("anything", "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2")
    read: set[str] = set()
    select = checks.select
    monkeypatch.setattr(checks, "select", lambda given, path, *rest: read.add(path) or select(given, path, *rest))
    for mode in ("sync", "delta_sync"):
        config.trainer.v1.trainer_mode = mode
        list(checks.config_problems(config, read_settings({"method": "delta"})))
    assert len(read) >= 13
    for path in read:
        parent, name = path.rsplit(".", 1)
        assert name in OmegaConf.select(config, parent), path
    known = {str(getattr(name, "value", name)) for name in ADV_ESTIMATOR_REGISTRY}
    assert set(checks.RESPONSE_ADVANTAGES) <= known
