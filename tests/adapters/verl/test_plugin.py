"""A plug-in that fails, a mode that is not there, a block that would be ignored: the launch stops and says why."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from delta_rlvr.adapters.verl.settings import SettingsError
from verl_environment import CPU, MEGATRON


def whole(*overrides: str, **strategy: Any) -> Any:
    """A launch's config, before our trainer has seen it."""
    from omegaconf import OmegaConf, open_dict

    from delta_rlvr.models import resolve_model
    from verl_workers import whole_config

    made = whole_config(resolve_model("builtin"), *overrides, **strategy)
    with open_dict(made):
        del made.actor_rollout_ref.delta
    OmegaConf.resolve(made)
    return made


@pytest.fixture(scope="module")
def sound(verl_environment: None) -> Any:
    return whole("trainer.v1.trainer_mode=delta_sync", "+delta.method=delta")


@pytest.fixture
def config(sound: Any) -> Any:
    from omegaconf import OmegaConf

    config = sound.copy()
    OmegaConf.set_struct(config, False)
    return config


def v1(config: Any, mode: str = "delta_sync") -> Any:
    from verl.trainer.ppo.v1 import get_trainer_cls

    return get_trainer_cls(mode)(config)


def classic(config: Any, kind: Any = None) -> Any:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    return (kind or RayPPOTrainer)(config=config, tokenizer=None, role_worker_mapping={}, resource_pool_manager=None)


def test_a_sound_config_becomes_a_trainer_before_anything_is_started(config: Any) -> None:
    from delta_rlvr.adapters.verl.internals.v1 import DeltaTrainerSync

    trainer = v1(config)
    assert type(trainer) is DeltaTrainerSync  # what docs/verl.md says to derive from
    assert trainer.trainer_mode == "sync"  # what the stock trainer's branches ask for
    assert config.actor_rollout_ref.delta.method == "delta"  # what workers are told
    trainer._init_resource_pool_mgr()
    (worker,) = trainer.role_worker_mapping.values()
    assert "DeltaWorker" in str(worker)


@pytest.mark.parametrize("trainer", [v1, classic])
def test_wrong_settings_stop_the_launch_in_the_trainers_constructor(config: Any, trainer: Any) -> None:
    config.algorithm.rollout_correction.bypass_mode = True
    with pytest.raises(SettingsError, match="bypass_mode=True: method 'delta' needs hidden states"):
        trainer(config)


SEPARATE = [
    "actor_rollout_ref.rollout.nnodes=1",
    "actor_rollout_ref.rollout.n_gpus_per_node=1",
    "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl",
    "trainer.v1.separate_async.parameter_sync_step=1",
    "data.train_batch_size=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
]


@pytest.mark.parametrize(("mode", "extra"), [("colocate_async", []), ("separate_async", SEPARATE)])
@pytest.mark.parametrize("strategy", [CPU, MEGATRON], ids=["fsdp2", "megatron"])
def test_asynchronous_modes_and_megatron_take_what_needs_log_probs_alone(
    verl_environment: None, mode: str, extra: list[str], strategy: tuple[str, ...]
) -> None:
    """Up to where a worker would start; and what needs hidden states is refused by that need."""
    ours = f"delta_{mode}"
    made = whole(f"trainer.v1.trainer_mode={ours}", "+delta.method=delta-scalar", *extra, strategy=strategy)
    refused = made.copy()
    trainer = v1(made, ours)
    assert trainer.trainer_mode == mode
    trainer._init_resource_pool_mgr()
    assert not any("DeltaWorker" in str(worker) for worker in trainer.role_worker_mapping.values())
    refused.delta.method = "delta"
    with pytest.raises(SettingsError, match=r"hidden states.*; engines that do: TRL, verl \(fsdp2\)"):
        v1(refused, ours)


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_a_delta_block_under_a_stock_mode_is_not_ignored_in_silence(config: Any, mode: str) -> None:
    config.trainer.v1.trainer_mode = mode
    with pytest.raises(SettingsError, match=f"trainer_mode={mode} would ignore it"):
        v1(config, mode)


def test_a_stock_run_without_a_block_is_left_alone(config: Any) -> None:
    del config.delta
    config.trainer.v1.trainer_mode = "sync"
    assert v1(config, "sync").trainer_mode == "sync"


@pytest.mark.parametrize(
    ("trainer", "told"),
    [
        (v1, r"failed to import on this node: ImportError: .*0\.10\.2 is installed"),
        (classic, r"delta block would be ignored: .*0\.10\.2 is installed"),
    ],
)
def test_a_plug_in_that_fails_to_import_stops_the_launch_with_its_reason(
    config: Any, monkeypatch: pytest.MonkeyPatch, trainer: Any, told: str
) -> None:
    """A classic launch also on a verl that has dropped the V1 trainer."""
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    from delta_rlvr.adapters.verl.plugin import register_failure

    monkeypatch.setattr(RayPPOTrainer, "__new__", RayPPOTrainer.__new__)
    for mode in ("delta_sync", "delta_colocate_async", "delta_separate_async"):
        monkeypatch.setitem(TRAINER_REGISTRY, mode, TRAINER_REGISTRY[mode])
    if trainer is classic:
        monkeypatch.setitem(sys.modules, "verl.trainer.ppo.v1.trainer_base", None)
    register_failure(ImportError("delta-rlvr plugs into verl>=0.9,<0.10; verl 0.10.2 is installed"))
    with pytest.raises(RuntimeError, match=told):
        trainer(config)


def test_the_classic_trainer_is_ours_where_the_config_has_a_block(config: Any) -> None:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    from delta_rlvr.adapters.verl.internals.classic import DeltaRayTrainer

    assert type(RayPPOTrainer.__new__(RayPPOTrainer, config)) is DeltaRayTrainer
    assert type(RayPPOTrainer.__new__(RayPPOTrainer, config={})) is RayPPOTrainer


def test_a_trainer_that_would_ignore_the_block_is_refused(config: Any) -> None:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    class Recipe(RayPPOTrainer):
        pass

    with pytest.raises(SettingsError, match=r"Recipe would ignore it: derive it from .*DeltaRayTrainer"):
        classic(config, Recipe)


def test_a_folder_that_holds_a_run_is_refused_before_workers_start(config: Any, tmp_path: Any) -> None:
    (tmp_path / "run.json").write_text("{}")
    config.delta.run_folder = str(tmp_path)
    config.trainer.resume_mode = "disable"
    with pytest.raises(SettingsError, match="holds a run"):
        v1(config)
