"""verl's V1 trainer with token weights: the modes `delta_sync`, `delta_colocate_async` and `delta_separate_async`. Only this file uses
that trainer and its TransferQueue."""

from __future__ import annotations

import functools
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.debug import marked_timer

from delta_rlvr.adapters.verl.internals import controller
from delta_rlvr.adapters.verl.internals.front import CreditRun, put_worker
from delta_rlvr.adapters.verl.settings import BLOCK, DETAIL, MODE, REWARDS, WEIGHTS, SettingsError

_OF_EVERY_RESPONSE = (
    "prompts",
    "responses",
    "response_mask",
    "advantages",
    *REWARDS,
    "uid",
    "session_id",
    "reward_model",
    "extra_info",
    "extra_fields",
    WEIGHTS,
)
_OF_DUMPED_RESPONSES = ("old_log_probs", "entropy", *DETAIL.values())


class CreditTrainer(PPOTrainer):
    """The base class of the modes: token weights between advantages and update."""

    delta_mode: str
    """verl's mode that it extends."""

    def __init__(self, config: DictConfig):
        self.delta = CreditRun(config)
        with open_dict(config):
            # verl's trainers compare this with the names of their modes.
            config.trainer.v1.trainer_mode = self.delta_mode
        super().__init__(config)

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        if self.delta.settings.on_worker:
            put_worker(self.role_worker_mapping)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_advantage(batch, metrics=metrics)
        settings = self.delta.settings
        if not settings.weighs:
            return batch
        with marked_timer("credit", self.timing_raw, color="cyan"):
            solve = self._solve_on_worker if settings.on_worker else self._solve_here
            metrics.update(solve(batch))
        # Workers get only the fields that are named here. (None names all.)
        if batch.fields is not None:
            named = (WEIGHTS,) if settings.on_worker else (WEIGHTS, controller.CORRECTION)
            batch.fields = [*batch.fields, *(name for name in named if name not in batch.fields)]
        return batch

    def _solve_on_worker(self, batch: KVBatchMeta) -> dict[str, float]:
        request = KVBatchMeta(
            keys=batch.keys,
            tags=batch.tags,
            partition_id=batch.partition_id,
            fields=["uid", "index", "session_id", "response_mask", "advantages", self._rewards_field],
            extra_info={"round_number": self._round_number, "detail": self._looks_closely()},
        )
        solved = self.actor_rollout_wg.compute_token_weights(request)
        return solved.extra_info["metrics"][0]  # one entry per rank, all equal

    def _solve_here(self, batch: KVBatchMeta) -> dict[str, float]:
        settings = self.delta.settings
        wanted = [*controller.fields_for(settings), controller.CORRECTION, self._rewards_field]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=wanted)
        fields, metrics = controller.weigh(
            settings,
            data,
            temperature=self.config.actor_rollout_ref.rollout.temperature,
            round_number=self._round_number,
            detail=self._looks_closely(),
        )
        put = TensorDict(fields, batch_size=len(batch))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=put)
        return metrics

    @property
    def _round_number(self) -> int:
        """A unique number of this batch: a step of `separate_async` has several."""
        return self.global_steps * self.parameter_sync_step + self.local_trigger_step

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        table = functools.partial(_table, batch)
        self.delta.write_step(global_steps, metrics, timing_raw, table, dump=self._looks_closely())

    @property
    def _rewards_field(self) -> str:
        """The field of the rewards behind the advantages."""
        penalized, graded = REWARDS
        return penalized if self.config.algorithm.use_kl_in_reward else graded

    def _looks_closely(self) -> bool:
        return self.delta.looks_closely(self.global_steps, self.total_training_steps)

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        self.delta.saved_checkpoint(self.global_steps)

    def fit(self, agent_loop_manager: Any) -> None:
        self.delta.open_folder(
            self.config, self.tokenizer, resumed_from=self.global_steps, steps_planned=self.total_training_steps
        )
        with self.delta.recorded():
            super().fit(agent_loop_manager)


def _table(batch: KVBatchMeta, dump: bool) -> dict[str, list[Any]]:
    """Return the fields of every response for the run folder, as lists and tensors without padding responses."""
    data = tq.kv_batch_get(
        keys=[key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)],
        partition_id=batch.partition_id,
        select_fields=[*_OF_EVERY_RESPONSE, *(_OF_DUMPED_RESPONSES if dump else ())],
    )
    return {key: _rows(tu.get(data, key)) for key in list(data.keys())}


def _rows(values: Any) -> list[Any]:
    return list(values.unbind()) if isinstance(values, Tensor) else list(values)


@register_trainer(MODE)
class DeltaTrainerSync(CreditTrainer, PPOTrainerSync):
    """verl's synchronous trainer."""

    delta_mode = "sync"


@register_trainer("delta_colocate_async")
class DeltaTrainerColocateAsync(CreditTrainer, PPOTrainerColocateAsync):
    """verl's asynchronous trainer on the GPUs of the rollouts."""

    delta_mode = "colocate_async"


@register_trainer("delta_separate_async")
class DeltaTrainerSeparateAsync(CreditTrainer, PPOTrainerSeparateAsync):
    """verl's asynchronous trainer beside the GPUs of the rollouts."""

    delta_mode = "separate_async"


def _guard_stock_modes() -> None:
    """Refuse a `delta` block with one of verl's own modes, which would ignore it and train with plain DAPO."""
    stock_init = PPOTrainer.__init__

    @functools.wraps(stock_init)
    def guarded(self: PPOTrainer, config: DictConfig) -> None:
        if BLOCK in config and not isinstance(self, CreditTrainer):
            mode = config.trainer.v1.trainer_mode
            raise SettingsError(
                f"the config has a delta block, but trainer.v1.trainer_mode={mode} would ignore it: "
                f"set trainer.v1.trainer_mode=delta_{mode}, or remove the block"
            )
        stock_init(self, config)

    if not hasattr(stock_init, "__wrapped__"):
        PPOTrainer.__init__ = guarded  # type: ignore[method-assign]


_guard_stock_modes()
