"""verl's classic trainer, `RayPPOTrainer` (`trainer.use_v1=False`), with token weights.

With a `delta` block in the config, `RayPPOTrainer(config, ...)` makes a `DeltaRayTrainer`, so that verl's launch command and task
runners need no change. `fit` is one long loop, which calls these methods in this order:

    _load_checkpoint        the step of the resumed checkpoint is known: open the run folder
    _balance_batch          the batch is still in the order of sampling: number the responses
    _compute_old_log_prob   the worker keeps hidden states; keep the entropies
    _update_actor           the advantages are known: solve, and put the weights into the batch
    Tracking.log            the metrics of the step are complete: write them to the run folder
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from omegaconf import DictConfig
from torch import Tensor
from verl.protocol import DataProto
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.utils import tensordict_utils as tu
from verl.utils import tracking

from delta_rlvr.adapters.verl.internals import controller
from delta_rlvr.adapters.verl.internals.front import CreditRun, put_worker
from delta_rlvr.adapters.verl.settings import BLOCK, DETAIL, REWARDS, WEIGHTS, SettingsError

_TOKEN_FIELDS = ("responses", "response_mask", "advantages", *REWARDS, WEIGHTS)
_DUMPED_TOKEN_FIELDS = ("old_log_probs", *DETAIL.values())


class DeltaRayTrainer(RayPPOTrainer):
    """verl's classic trainer with token weights between advantages and update."""

    def __init__(
        self, config: DictConfig, tokenizer: Any, role_worker_mapping: dict[Any, Any], *args: Any, **kwargs: Any
    ):
        self.delta = CreditRun(config)
        self.delta_batch: DataProto | None = None
        self.delta_entropy: Tensor | None = None
        if self.delta.settings.on_worker:
            put_worker(role_worker_mapping)
        super().__init__(config, tokenizer, role_worker_mapping, *args, **kwargs)

    def fit(self) -> None:
        with self.delta.recorded(), self._metrics_observed():
            super().fit()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        self.delta.open_folder(
            self.config, self.tokenizer, resumed_from=self.global_steps, steps_planned=self.total_training_steps
        )

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        self.delta.saved_checkpoint(self.global_steps)

    def _balance_batch(self, batch: DataProto, *args: Any, **kwargs: Any) -> None:
        _number_responses(batch)
        super()._balance_batch(batch, *args, **kwargs)

    def _compute_old_log_prob(self, batch: DataProto) -> Any:
        if "session_id" not in batch.non_tensor_batch:  # trainer.balance_batch=False
            _number_responses(batch)
        output, mfu = super()._compute_old_log_prob(batch)
        self.delta_entropy = output.batch["entropys"]
        return output, mfu

    def _update_actor(self, batch: DataProto) -> DataProto:
        if "session_id" not in batch.non_tensor_batch:  # bypass mode without trainer.balance_batch
            _number_responses(batch)
        metrics = self._weigh(batch) if self.delta.settings.weighs else {}
        self.delta_batch = batch
        output = super()._update_actor(batch)
        output.meta_info["metrics"].update(metrics)
        return output

    def _weigh(self, batch: DataProto) -> dict[str, float]:
        """Put token weights into the batch, padded like its other fields of response tokens."""
        began = time.perf_counter()
        settings, detail = self.delta.settings, self._looks_closely()
        tensors = ["attention_mask", "response_mask", "advantages", REWARDS[0]]
        if not settings.on_worker:
            read = (*controller.fields_for(settings), controller.CORRECTION)
            if "entropy" in read:
                batch.batch["entropy"] = self.delta_entropy
            tensors += [name for name in read if name in batch.batch and name not in tensors]
        asked = batch.select(batch_keys=tensors, non_tensor_batch_keys=["uid", "index", "session_id"]).to_tensordict()
        if settings.on_worker:
            tu.assign_non_tensor(asked, round_number=self.global_steps, detail=detail)
            solved = self.actor_rollout_wg.compute_token_weights(asked)
            metrics = tu.get(solved, "metrics")
        else:
            batch.batch.pop("entropy", None)
            solved, metrics = controller.weigh(
                settings,
                asked,
                temperature=self.config.actor_rollout_ref.rollout.temperature,
                round_number=self.global_steps,
                detail=detail,
            )
        shape = tuple(batch.batch["response_mask"].shape)
        for name in (WEIGHTS, controller.CORRECTION, *DETAIL.values()):
            if name in solved.keys():  # noqa: SIM118 - a TensorDict looks into its values
                batch.batch[name] = solved[name].to_padded_tensor(0.0, output_size=shape)
        return {**metrics, "timing_s/credit": time.perf_counter() - began}

    def _looks_closely(self) -> bool:
        return self.delta.looks_closely(self.global_steps, self.total_training_steps)

    @contextmanager
    def _metrics_observed(self) -> Iterator[None]:
        """Replace the logger class that `fit` uses by one that also writes the run folder."""
        stock = tracking.Tracking
        write_step = self._write_step

        class Observed(stock):  # type: ignore[valid-type, misc]
            def log(self, data: dict[str, Any], step: int, backend: Any = None) -> None:
                super().log(data, step, backend)
                write_step(data, step)

        tracking.Tracking = Observed  # type: ignore[misc]
        try:
            yield
        finally:
            tracking.Tracking = stock  # type: ignore[misc]

    def _write_step(self, metrics: dict[str, Any], step: int) -> None:
        batch, self.delta_batch = self.delta_batch, None
        if batch is None:  # a validation, or a step without an update
            return
        times = {
            name.removeprefix("timing_s/"): value for name, value in metrics.items() if name.startswith("timing_s/")
        }
        table = functools.partial(self._table, batch)
        self.delta.write_step(step, metrics, times, table, dump=self._looks_closely())

    def _table(self, batch: DataProto, dump: bool) -> dict[str, list[Any]]:
        """Return the fields of every response for the run folder, as lists and tensors without padding."""
        tensors, others = batch.batch, batch.non_tensor_batch
        width = tensors["responses"].shape[1]
        attention = tensors["attention_mask"].bool()
        lengths = attention[:, -width:].sum(1).tolist()

        def rows(padded: Tensor) -> list[Tensor]:
            return [row[:length] for row, length in zip(padded, lengths, strict=True)]

        table: dict[str, list[Any]] = {
            name: rows(tensors[name])
            for name in (*_TOKEN_FIELDS, *(_DUMPED_TOKEN_FIELDS if dump else ()))
            if name in tensors.keys()  # noqa: SIM118 - a TensorDict looks into its values
        }
        if dump and self.delta_entropy is not None:
            table["entropy"] = rows(self.delta_entropy)
        table["prompts"] = [
            prompt[valid] for prompt, valid in zip(tensors["prompts"], attention[:, :-width], strict=True)
        ]
        for name in ("uid", "session_id", "reward_model", "extra_info"):
            if name in others:
                table[name] = list(others[name])
        graded = batch.meta_info.get("reward_extra_keys", [])
        table["extra_fields"] = [
            {"reward_extra_info": {name: others[name][row] for name in graded}} for row in range(len(lengths))
        ]
        return table


def _number_responses(batch: DataProto) -> None:
    """Set the problem of each response and its number among that problem's, as in the V1 trainer."""
    fields = batch.non_tensor_batch
    problems = [(extra or {}).get("index", 0) for extra in fields["extra_info"]]
    seen: Counter[str] = Counter()
    numbers = []
    for uid in fields["uid"]:
        numbers.append(seen[uid])
        seen[uid] += 1
    fields["index"] = np.array(problems, dtype=object)
    fields["session_id"] = np.array(numbers, dtype=object)


def _choose_by_config() -> None:
    """Let a config with a `delta` block choose our trainer, and refuse trainers that would ignore the block."""

    def chosen(cls: type, *args: Any, **kwargs: Any) -> Any:
        config = kwargs["config"] if "config" in kwargs else args[0]
        if BLOCK not in config or issubclass(cls, DeltaRayTrainer):
            return object.__new__(cls)
        if cls is not RayPPOTrainer:
            raise SettingsError(
                f"the config has a delta block, but the trainer {cls.__module__}.{cls.__qualname__} would ignore it: derive it from "
                f"{DeltaRayTrainer.__module__}.{DeltaRayTrainer.__qualname__}, or remove the block"
            )
        return object.__new__(DeltaRayTrainer)

    RayPPOTrainer.__new__ = staticmethod(chosen)  # type: ignore[assignment]


_choose_by_config()
