"""The environment of a process that runs verl on CPU."""

from __future__ import annotations

import os
from pathlib import Path

ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",  # verl registers its FSDP engine for cuda and npu alone
    "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
    "VERL_LOGGING_LEVEL": "WARN",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "disabled",  # this machine alone, and no token file in the home folder
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "HYDRA_FULL_ERROR": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}

ANY_STRATEGY = (
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.clip_ratio_low=0.2",
    "actor_rollout_ref.actor.clip_ratio_high=0.28",
    "actor_rollout_ref.actor.clip_ratio_c=10.0",
    "actor_rollout_ref.rollout.name=hf_cpu",
    "actor_rollout_ref.rollout.load_format=auto",
    "algorithm.adv_estimator=grpo",
    "trainer.device=cpu",
)
"""What training a tiny model on CPU, as DAPO clips, needs to say in verl's config, whatever the strategy."""
CPU = (
    *ANY_STRATEGY,
    "actor_rollout_ref.actor.strategy=fsdp2",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
)
MEGATRON = (*ANY_STRATEGY, "model_engine=megatron", "actor_rollout_ref.model.external_lib=verl_as_megatron")
"""Megatron's settings; `verl_as_megatron` stands in for the engine."""


def environment() -> dict[str, str]:
    """The environment of a process that runs verl on CPU."""
    paths = [str(Path(__file__).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)}
