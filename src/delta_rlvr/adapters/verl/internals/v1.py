"""The front for verl's V1 trainer: the mode `delta_sync`. This is the one file that knows that trainer and its TransferQueue."""

from __future__ import annotations

import functools
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.debug import marked_timer

from delta_rlvr.adapters.verl.internals.front import CreditRun, put_worker
from delta_rlvr.adapters.verl.settings import BLOCK, DETAIL, REWARDS, WEIGHTS, SettingsError

MODE = "delta_sync"
# Modes that verl has and we do not: named so that a launch says why it stops.
ASYNC_MODES = ("delta_colocate_async", "delta_separate_async")

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


@register_trainer(MODE)
class DeltaTrainerSync(PPOTrainerSync):
    """verl's synchronous trainer with token weights between advantages and update."""

    def __init__(self, config: DictConfig):
        self.delta = CreditRun(config)
        with open_dict(config):
            # The stock trainer asks for the literal "sync" where it tells synchronous modes from asynchronous ones.
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        put_worker(self.role_worker_mapping)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_advantage(batch, metrics=metrics)
        if not self.delta.settings.weighs:
            return batch
        with marked_timer("credit", self.timing_raw, color="cyan"):
            request = KVBatchMeta(
                keys=batch.keys,
                tags=batch.tags,
                partition_id=batch.partition_id,
                fields=["uid", "index", "session_id", "response_mask", "advantages", self._rewards_field],
                extra_info={"round_number": self.global_steps, "detail": self._looks_closely()},
            )
            solved = self.actor_rollout_wg.compute_token_weights(request)
            metrics.update(solved.extra_info["metrics"][0])  # one entry per rank, all of the same sums
        # Workers fetch the fields that are named here, and drop the others in silence. (None names all.)
        if batch.fields is not None and WEIGHTS not in batch.fields:
            batch.fields = [*batch.fields, WEIGHTS]
        return batch

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        table = functools.partial(_table, batch)
        self.delta.write_step(global_steps, metrics, timing_raw, table, dump=self._looks_closely())

    @property
    def _rewards_field(self) -> str:
        """What the advantages were made of."""
        penalized, graded = REWARDS
        return penalized if self.config.algorithm.use_kl_in_reward else graded

    def _looks_closely(self) -> bool:
        return self.delta.looks_closely(self.global_steps, self.total_training_steps)

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        self.delta.saved_checkpoint(self.global_steps)

    def fit(self, agent_loop_manager: Any) -> None:
        self.delta.open_folder(
            self.config,
            self.tokenizer,
            resumed_from=self.global_steps,
            steps_planned=self.total_training_steps,
        )
        with self.delta.recorded():
            super().fit(agent_loop_manager)


def _table(batch: KVBatchMeta, dump: bool) -> dict[str, list[Any]]:
    """What the run folder wants to know of every response that is not padding: plain lists and tensors."""
    data = tq.kv_batch_get(
        keys=[
            key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)
        ],
        partition_id=batch.partition_id,
        select_fields=[*_OF_EVERY_RESPONSE, *(_OF_DUMPED_RESPONSES if dump else ())],
    )
    return {key: _rows(tu.get(data, key)) for key in list(data.keys())}


def _rows(values: Any) -> list[Any]:
    return list(values.unbind()) if isinstance(values, Tensor) else list(values)


def _refusing(mode: str) -> type[PPOTrainer]:
    class Refusing(PPOTrainerSync):
        def __init__(self, config: DictConfig):
            raise SettingsError(
                f"trainer.v1.trainer_mode={mode}: asynchronous training reuses batches over several policies, for which token "
                f"coefficients are not defined yet; set trainer.v1.trainer_mode={MODE}"
            )

    return Refusing


for _mode in ASYNC_MODES:
    register_trainer(_mode)(_refusing(_mode))


def _guard_stock_modes() -> None:
    """A `delta` block under a stock mode would be ignored in silence, and the run would be plain DAPO: stop it."""
    stock_init = PPOTrainer.__init__

    @functools.wraps(stock_init)
    def guarded(self: PPOTrainer, config: DictConfig) -> None:
        if BLOCK in config and not isinstance(self, DeltaTrainerSync):
            raise SettingsError(
                f"the config has a delta block, but trainer.v1.trainer_mode={config.trainer.v1.trainer_mode} would ignore it: "
                f"set trainer.v1.trainer_mode={MODE}, or remove the block"
            )
        stock_init(self, config)

    if not hasattr(stock_init, "__wrapped__"):
        PPOTrainer.__init__ = guarded  # type: ignore[method-assign]


_guard_stock_modes()
