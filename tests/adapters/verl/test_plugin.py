"""A plug-in that fails, a mode that is not there, a block that would be ignored: the launch stops and says why."""

from __future__ import annotations

from typing import Any

import pytest

from delta_rlvr.adapters.verl.settings import SettingsError
from verl_environment import CPU, MEGATRON


@pytest.fixture(scope="module")
def config(verl_environment: None) -> Any:
    from omegaconf import OmegaConf, open_dict

    from delta_rlvr.models import resolve_model
    from verl_workers import whole_config

    made = whole_config(resolve_model("builtin"), "trainer.v1.trainer_mode=delta_sync", "+delta.method=delta")
    with open_dict(made):
        del made.actor_rollout_ref.delta
    OmegaConf.resolve(made)
    return made


def test_a_sound_config_becomes_a_trainer_before_anything_is_started(config: Any) -> None:
    from verl.trainer.ppo.v1 import get_trainer_cls

    config = config.copy()
    trainer = get_trainer_cls("delta_sync")(config)
    assert trainer.trainer_mode == "sync"  # what the stock trainer's branches ask for
    assert config.actor_rollout_ref.delta.method == "delta"  # what workers are told
    trainer._init_resource_pool_mgr()
    (worker,) = trainer.role_worker_mapping.values()
    assert "DeltaWorker" in str(worker)


def test_wrong_settings_stop_the_launch_in_the_trainers_constructor(config: Any) -> None:
    from verl.trainer.ppo.v1 import get_trainer_cls

    wrong = config.copy()
    wrong.algorithm.rollout_correction.bypass_mode = True
    with pytest.raises(SettingsError, match="bypass_mode=True: method 'delta' needs hidden states"):
        get_trainer_cls("delta_sync")(wrong)


SEPARATE = [
    "actor_rollout_ref.rollout.nnodes=1",
    "actor_rollout_ref.rollout.n_gpus_per_node=1",
    "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl",
    "trainer.v1.separate_async.parameter_sync_step=1",
    "data.train_batch_size=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
]


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
@pytest.mark.parametrize("strategy", [CPU, MEGATRON], ids=["fsdp2", "megatron"])
def test_asynchronous_modes_and_megatron_take_what_needs_log_probs_alone(
    verl_environment: None, mode: str, strategy: tuple[str, ...]
) -> None:
    """Up to where a worker would start; and what needs hidden states is refused by that need."""
    from omegaconf import OmegaConf, open_dict
    from verl.trainer.ppo.v1 import get_trainer_cls

    from delta_rlvr.models import resolve_model
    from verl_workers import whole_config

    extra = SEPARATE if mode == "separate_async" else []
    made = whole_config(
        resolve_model("builtin"),
        f"trainer.v1.trainer_mode=delta_{mode}",
        "+delta.method=delta-scalar",
        *extra,
        strategy=strategy,
    )
    with open_dict(made):
        del made.actor_rollout_ref.delta
    OmegaConf.resolve(made)
    refused = made.copy()
    trainer = get_trainer_cls(f"delta_{mode}")(made)
    assert trainer.trainer_mode == mode
    trainer._init_resource_pool_mgr()
    assert not any("DeltaWorker" in str(worker) for worker in trainer.role_worker_mapping.values())
    refused.delta.method = "delta"
    with pytest.raises(SettingsError, match=r"hidden states .*; those that do: TRL, verl \(fsdp2\)"):
        get_trainer_cls(f"delta_{mode}")(refused)


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_a_delta_block_under_a_stock_mode_is_not_ignored_in_silence(config: Any, mode: str) -> None:
    from verl.trainer.ppo.v1 import get_trainer_cls

    stock = config.copy()
    stock.trainer.v1.trainer_mode = mode
    with pytest.raises(SettingsError, match=f"trainer_mode={mode} would ignore it"):
        get_trainer_cls(mode)(stock)


def test_a_stock_run_without_a_block_is_left_alone(config: Any) -> None:
    from omegaconf import open_dict
    from verl.trainer.ppo.v1 import get_trainer_cls

    stock = config.copy()
    with open_dict(stock):
        del stock.delta
    stock.trainer.v1.trainer_mode = "sync"
    assert get_trainer_cls("sync")(stock).trainer_mode == "sync"


def test_a_plug_in_that_fails_to_import_stops_the_launch_with_its_reason(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    from delta_rlvr.adapters.verl.plugin import register_failure

    monkeypatch.setattr(RayPPOTrainer, "__new__", RayPPOTrainer.__new__)
    monkeypatch.setitem(TRAINER_REGISTRY, "delta_sync", TRAINER_REGISTRY["delta_sync"])
    register_failure(ImportError("delta-rlvr plugs into verl>=0.9,<0.10; verl 0.10.2 is installed"))
    with pytest.raises(
        RuntimeError, match=r"failed to import on this node: ImportError: .*0\.10\.2 is installed"
    ):
        get_trainer_cls("delta_sync")(config.copy())


def test_a_plug_in_that_fails_to_import_stops_a_classic_launch_too(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a verl that has dropped the V1 trainer."""
    import sys

    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    from delta_rlvr.adapters.verl.plugin import register_failure

    monkeypatch.setattr(RayPPOTrainer, "__new__", RayPPOTrainer.__new__)
    monkeypatch.setitem(sys.modules, "verl.trainer.ppo.v1.trainer_base", None)
    register_failure(ImportError("verl 0.10.2 is installed"))
    with pytest.raises(RuntimeError, match=r"delta block would be ignored, .*0\.10\.2 is installed"):
        RayPPOTrainer(
            config=config.copy(), tokenizer=None, role_worker_mapping={}, resource_pool_manager=None
        )


def test_the_classic_trainer_is_ours_where_the_config_has_a_block(config: Any) -> None:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    from delta_rlvr.adapters.verl.internals.classic import DeltaRayTrainer

    assert type(RayPPOTrainer.__new__(RayPPOTrainer, config)) is DeltaRayTrainer
    assert type(RayPPOTrainer.__new__(RayPPOTrainer, config={})) is RayPPOTrainer


def test_wrong_settings_stop_the_classic_launch_before_a_worker_exists(config: Any) -> None:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    wrong = config.copy()
    wrong.algorithm.rollout_correction.bypass_mode = True
    with pytest.raises(SettingsError, match="bypass_mode=True: method 'delta' needs hidden states"):
        RayPPOTrainer(config=wrong, tokenizer=None, role_worker_mapping={}, resource_pool_manager=None)


def test_a_trainer_that_would_ignore_the_block_is_refused(config: Any) -> None:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    class Recipe(RayPPOTrainer):
        pass

    with pytest.raises(SettingsError, match=r"Recipe would ignore it: derive it from .*DeltaRayTrainer"):
        Recipe(config=config.copy(), tokenizer=None, role_worker_mapping={}, resource_pool_manager=None)


def test_a_folder_that_holds_a_run_is_refused_before_workers_start(config: Any, tmp_path: Any) -> None:
    from omegaconf import open_dict
    from verl.trainer.ppo.v1 import get_trainer_cls

    (tmp_path / "run.json").write_text("{}")
    used = config.copy()
    with open_dict(used):
        used.delta.run_folder = str(tmp_path)
        used.trainer.resume_mode = "disable"
    with pytest.raises(SettingsError, match="holds a run"):
        get_trainer_cls("delta_sync")(used)
