"""What the recipes import of engines that do not install on a CPU: the names and signatures that were read there, and no more behind
them than a test needs. Each function says where it was read."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor


def modules(patch: pytest.MonkeyPatch, **contents: dict[str, Any]) -> None:
    """Modules with these names (dots written as two underscores), each inside its parents."""
    for name, content in contents.items():
        path = name.replace("__", ".")
        parts = path.split(".")
        for end in range(1, len(parts) + 1):
            here = ".".join(parts[:end])
            if here not in sys.modules:
                module = ModuleType(here)
                module.__path__ = []  # type: ignore[attr-defined]
                patch.setitem(sys.modules, here, module)
            if end > 1:
                setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], sys.modules[here])
        vars(sys.modules[path]).update(content)


class Ranks:
    """Ranks that are threads, and what they gather."""

    def __init__(self, count: int):
        self.count = count
        self.here = threading.local()
        self.barrier = threading.Barrier(count)
        self.board: list[Any] = [None] * count

    def all_gather(self, value: Any) -> list[Any]:
        self.board[self.here.rank] = value
        self.barrier.wait(30)
        gathered = list(self.board)
        self.barrier.wait(30)
        return gathered

    def run(self, function: Any) -> list[Any]:
        """What `function(rank)` gives on each; the first failure, if there is one."""
        results: list[Any] = [None] * self.count

        def be(rank: int) -> None:
            self.here.rank = rank
            try:
                results[rank] = function(rank)
            except BaseException as error:
                results[rank] = error
                self.barrier.abort()

        threads = [threading.Thread(target=be, args=(rank,)) for rank in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        failed = [result for result in results if isinstance(result, BaseException)]
        for error in sorted(failed, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
            raise error
        return results


def slime(patch: pytest.MonkeyPatch, ranks: Ranks, context_parallel: int = 1) -> None:
    """slime 0.3.1, commit 624b824a: slime/backends/megatron_utils/{loss,cp_utils}.py, and Megatron's mpu as it is called there.

    Context parallelism cuts a response in halves here; slime's own zigzag has two pieces a rank.
    """

    def slice_log_prob_with_cp(log_prob: Tensor, total_length: int, response_length: int) -> Tensor:
        assert len(log_prob) == response_length <= total_length
        if context_parallel == 1:
            return log_prob
        return log_prob.tensor_split(context_parallel)[ranks.here.rank % context_parallel]

    mpu = SimpleNamespace(
        get_context_parallel_world_size=lambda: context_parallel,
        get_data_parallel_group=lambda with_context_parallel=False: ranks.all_gather if with_context_parallel else None,
    )
    modules(
        patch,
        megatron__core={"mpu": mpu},
        slime__backends__megatron_utils__cp_utils={"slice_log_prob_with_cp": slice_log_prob_with_cp},
    )


def nemo_rl(patch: pytest.MonkeyPatch) -> ModuleType:
    """NeMo-RL v0.7.0 and commit 7ea279ab: nemo_rl/algorithms/{advantage_estimator,grpo}.py."""

    class GRPOAdvantageEstimator:
        def __init__(self, estimator_config: Any, loss_config: Any):
            self.configs = estimator_config, loss_config

        def compute_advantage(self, prompt_ids: Tensor, rewards: Tensor, mask: Tensor, **kwargs: Any) -> Tensor:
            groups = prompt_ids.unique(dim=0, return_inverse=True)[1]
            means = torch.stack([rewards[groups == group].mean() for group in groups])
            return (rewards - means).unsqueeze(-1).expand(mask.shape)

    content = {"GRPOAdvantageEstimator": GRPOAdvantageEstimator}
    modules(patch, nemo_rl__algorithms__advantage_estimator=content, nemo_rl__algorithms__grpo=content)
    grpo = sys.modules["nemo_rl.algorithms.grpo"]

    def _create_advantage_estimator(master_config: Any) -> Any:
        assert master_config.grpo.adv_estimator.name == "grpo"
        return grpo.GRPOAdvantageEstimator(master_config.grpo.adv_estimator, master_config.loss_fn)

    grpo._create_advantage_estimator = _create_advantage_estimator  # type: ignore[attr-defined]
    return grpo


def prime_rl(patch: pytest.MonkeyPatch) -> ModuleType:
    """prime-rl, commit 559b4477: src/prime_rl/trainer/rl/loss.py and src/prime_rl/configs/trainer.py."""

    @dataclass
    class LossInputs:
        trainer_logprobs: Tensor
        inference_logprobs: Tensor
        ref_logprobs: Tensor | None
        advantages: Tensor
        loss_mask: Tensor
        loss_weights: Tensor | None = field(default=None)

    @dataclass
    class LossOutputs:
        loss: Tensor
        metrics: dict[str, Tensor]

    @dataclass
    class DefaultLossConfig:
        dppo_mask_low: float = 0.2
        dppo_mask_high: float = 0.2
        adv_tau: float = 1.0
        kl_tau: float = 1e-3

    def default_loss_fn(inputs: LossInputs, loss_config: DefaultLossConfig) -> LossOutputs:
        ratio = (inputs.trainer_logprobs - inputs.inference_logprobs).exp()
        loss = -(inputs.loss_mask * loss_config.adv_tau * inputs.advantages * ratio).sum()
        return LossOutputs(loss, {"is_masked": inputs.loss_mask.float().mean()})

    content = {"LossInputs": LossInputs, "LossOutputs": LossOutputs, "default_loss_fn": default_loss_fn}
    modules(
        patch, prime_rl__trainer__rl__loss=content, prime_rl__configs__trainer={"DefaultLossConfig": DefaultLossConfig}
    )
    return sys.modules["prime_rl.trainer.rl.loss"]
