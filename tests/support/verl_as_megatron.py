"""Test support, not product: an engine that verl takes for Megatron's, on a machine that has none.

It reads Megatron's own settings (`model_engine=megatron`), is registered under Megatron's name, and trains with FSDP2 underneath. It
has nothing to hook for hidden states.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from verl.workers.config.engine import EngineConfig, FSDPEngineConfig
from verl.workers.config.optimizer import FSDPOptimizerConfig, OptimizerConfig
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead


def _shared(config: Any, base: type, *without: str) -> dict[str, Any]:
    return {one.name: getattr(config, one.name) for one in fields(base) if one.name not in without}


@EngineRegistry.register(model_type="language_model", backend="megatron", device="cuda")
class AsMegatron(FSDPEngineWithLMHead):
    def __init__(self, model_config: Any, engine_config: Any, optimizer_config: Any, checkpoint_config: Any) -> None:
        assert engine_config.strategy == "megatron"
        assert engine_config.tensor_model_parallel_size == 1
        engine = FSDPEngineConfig(
            strategy="fsdp2",
            mixed_precision={"param_dtype": "fp32"},
            use_torch_compile=False,
            **_shared(engine_config, EngineConfig, "strategy"),
        )
        optimizer = FSDPOptimizerConfig(**_shared(optimizer_config, OptimizerConfig))
        super().__init__(model_config, engine, optimizer, checkpoint_config)

    def initialize(self) -> None:
        super().initialize()
        self.module.get_decoder = None
