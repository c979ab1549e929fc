"""Everything of verl that the plug-in touches, in one file: the worker, the loss, the trainer mode.
`tests/adapters/verl/test_canary.py` looks up every name that is used here.

One step of verl's trainer: sample, balance, old log-probs, (reference, values), advantages, update. The worker keeps hidden states
while it computes old log-probs; once advantages are there the trainer asks it for token weights, which are stored beside the batch
as `delta_weights`; in the update the stock loss gets them through `rollout_is_weights`, which every stock loss multiplies tokens by.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import ray
import torch
import torch.distributed as dist
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf, open_dict
from packaging.version import Version
from tensordict import TensorDict
from torch import Tensor
from torch.distributed.tensor import DTensor
from transfer_queue import KVBatchMeta
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.debug import marked_timer
from verl.utils.metric import AggregationType, Metric
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.utils.padding import no_padding_2_padding

from delta_rlvr.adapters.verl.capture import MicroBatch, PassCapture, response_advantages, stable_numbers
from delta_rlvr.adapters.verl.checks import check_config
from delta_rlvr.adapters.verl.loss import multiplied, spread
from delta_rlvr.adapters.verl.run_folder import RunFolder, refuse_used_folder
from delta_rlvr.adapters.verl.settings import SettingsError, VerlSettings, read_settings
from delta_rlvr.objectives import portable

VERL_VERSIONS = ("0.9", "0.10")
MODE = "delta_sync"
# Modes that verl has and we do not: named so that a launch says why it stops.
ASYNC_MODES = ("delta_colocate_async", "delta_separate_async")

WEIGHTS = "delta_weights"
DETAIL = ("alpha", "margin", "margin_initial")
_ROW = "delta_row"
_SETTINGS = "delta"

if not Version(VERL_VERSIONS[0]) <= Version(version("verl")) < Version(VERL_VERSIONS[1]):
    raise ImportError(
        f"delta-rlvr plugs into verl>={VERL_VERSIONS[0]},<{VERL_VERSIONS[1]}; verl {version('verl')} is installed"
    )


def weighs(settings: VerlSettings) -> bool:
    """Whether the method has token weights that are solved for once a rollout batch."""
    return not settings.method.rule.constant


# ---------------------------------------------------------------------------------------------------------------- the worker


class DeltaWorker(ActorRolloutRefWorker):
    """verl's actor worker, which also keeps hidden states and solves for token weights."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[attr-defined]
    def init_model(self) -> None:
        super().init_model()
        if self.actor is None:
            return
        self.delta_engine: Any = self.actor.engine
        self.delta_settings = read_settings(self.config[_SETTINGS])
        self.delta_capture: PassCapture | None = None
        self.delta_pass_seconds = 0.0
        self.delta_store = self.delta_settings.store(ranks_on_node=_ranks_on_node())
        self.loss_fn = functools.partial(weighted_loss, self.loss_fn, self.delta_settings)
        self.actor.set_loss_fn(self.loss_fn)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_log_prob(self, data: TensorDict) -> TensorDict | None:
        # With LoRA the reference policy is this same model with its adapters off: not the old policy.
        if not weighs(self.delta_settings) or tu.get(data, "no_lora_adapter", False):
            return super().compute_log_prob(data)
        data[_ROW] = torch.arange(len(data))
        began = time.perf_counter()
        with self._capturing(float(tu.get(data, "temperature"))):
            output = super().compute_log_prob(data)
        self.delta_pass_seconds = time.perf_counter() - began
        return output

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_token_weights(self, data: TensorDict) -> TensorDict | None:
        """Token weights of the batch whose old log-probs were computed last, over all data-parallel ranks."""
        if self.delta_capture is None:
            raise RuntimeError("token weights were asked for before the old-log-prob pass of the batch")
        capture, self.delta_capture = self.delta_capture, None
        device = _device_of(self.delta_engine)
        began = time.perf_counter()
        lengths = data["response_mask"].offsets().diff()
        record, arrays = capture.solve(
            response_advantages(data["advantages"], data["response_mask"]).to(device),
            lengths.to(device),
            groups=stable_numbers([str(uid) for uid in tu.get(data, "uid")]).to(device),
            keys=stable_numbers(_identities(data)).to(device),
            round_number=int(tu.get(data, "round_number")),
        )
        seconds = time.perf_counter() - began
        metrics = {f"delta/{name}": value for name, value in record.summary().items()}
        metrics |= self._timing(capture.watch.seconds, seconds, record.store_bytes)
        self.delta_store.clear()
        if not self.delta_engine.is_mp_src_rank_with_outputs():
            return None
        wanted = ("weights", *(DETAIL if tu.get(data, "detail", False) else ()))
        fields: dict[str, Any] = {
            f"delta_{name}": torch.nested.as_nested_tensor(
                list(arrays[name].cpu().split(lengths.tolist())), layout=torch.jagged
            )
            for name in wanted
            if name in arrays
        }
        return tu.get_tensordict(tensor_dict=fields, non_tensor_dict={"metrics": metrics})

    def _timing(self, capture: float, solve: float, stored: int) -> dict[str, float]:
        """Of the slowest rank; but the solve of the rank that came to it last, since the others only waited for it."""
        own = torch.tensor([capture, -solve, self.delta_pass_seconds, float(stored)], dtype=torch.float64)
        own = own.to(_device_of(self.delta_engine))
        dist.all_reduce(own, op=dist.ReduceOp.MAX, group=_all_actor_ranks(self.delta_engine))
        capture, solve, whole, stored_most = own[0].item(), -own[1].item(), own[2].item(), own[3].item()
        return {
            "delta/seconds_capture": capture,
            "delta/seconds_solve": solve,
            "delta/seconds_old_log_prob": whole - capture,
            "delta/overhead": (capture + solve) / max(whole - capture, 1e-9),
            "delta/store_bytes": stored_most,
        }

    @contextmanager
    def _capturing(self, temperature: float) -> Iterator[None]:
        """Hand every micro-batch's hidden states, log-probs and entropies to a fresh capture while the pass runs."""
        engine = self.delta_engine
        settings = self.delta_settings
        self.delta_capture = None
        current: list[MicroBatch] = []
        stock_step = engine.forward_step

        def keep_hidden(_: torch.nn.Module, __: Any, output: Any) -> None:
            assert self.delta_capture is not None
            hidden = output[0] if isinstance(output, tuple) else output.last_hidden_state
            self.delta_capture.add_hidden(current[-1], hidden)

        def forward_step(micro_batch: TensorDict, loss_function: Any, forward_only: bool) -> Any:
            if self.delta_capture is None:
                # Only here are the parameters of an offloaded model back on the device.
                self.delta_capture = PassCapture(
                    settings,
                    store=self.delta_store,
                    process_group=_all_actor_ranks(engine),
                    slice_group=engine.ulysses_parallel_group,
                    head=_whole_head(engine) if "head" in settings.method.rule.needs else None,
                    temperature=temperature,
                    device=_device_of(engine),
                )
            current[:] = [_described(micro_batch, _device_of(engine))]
            loss, output = stock_step(micro_batch, loss_function=loss_function, forward_only=forward_only)
            entropy = output["model_output"].get("entropy")
            self.delta_capture.add_outputs(
                output["model_output"]["log_probs"].values(), None if entropy is None else entropy.values()
            )
            return loss, output

        hook = engine.module.get_decoder().register_forward_hook(keep_hidden)
        engine.forward_step = forward_step
        try:
            yield
        finally:
            del engine.forward_step  # the class's own method shows again
            hook.remove()


def _described(micro_batch: TensorDict, device: torch.device) -> MicroBatch:
    mask, responses = micro_batch["response_mask"], micro_batch["responses"]
    return MicroBatch(
        rows=micro_batch[_ROW].to(device),
        sequence_lengths=micro_batch["input_ids"].offsets().diff().to(device),
        response_lengths=mask.offsets().diff().to(device),
        response_mask=mask.values().to(device=device, dtype=torch.bool),
        response_ids=responses.values().to(device),
    )


def _identities(data: TensorDict) -> list[str]:
    """A text that belongs to a response alone, the same in every run: the problem's index and the number of the sample."""
    index, session = tu.get(data, "index"), tu.get(data, "session_id")
    if index is None or session is None:
        raise RuntimeError(
            "the batch has no index or no session_id: a custom agent loop must keep both fields"
        )
    return [f"{problem}/{number}" for problem, number in zip(_listed(index), _listed(session), strict=True)]


def _listed(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, Tensor) else list(values)


def _whole_head(engine: Any) -> Tensor:
    """The LM head's weight in the dtype of the pass. A collective: every rank comes here at its first micro-batch."""
    weight = engine.module.get_output_embeddings().weight.detach().to(engine._autocast_dtype)
    return weight.full_tensor() if isinstance(weight, DTensor) else weight.clone()


def _device_of(engine: Any) -> torch.device:
    """Where the pass runs, whatever offloading does to the parameters in between."""
    return torch.device(engine.device_mesh.device_type)


def _all_actor_ranks(engine: Any) -> Any:
    """Data-parallel and sequence-parallel ranks together: with slices of sequences, sums run over both."""
    return engine.get_data_parallel_group() if engine.ulysses_parallel_group is None else dist.group.WORLD


def _ranks_on_node() -> int:
    return int(os.environ.get("RAY_LOCAL_WORLD_SIZE", 1))


# ------------------------------------------------------------------------------------------------------------------ the loss


def weighted_loss(
    stock: Callable[..., tuple[Tensor, dict[str, Any]]],
    settings: VerlSettings,
    model_output: Mapping[str, Tensor],
    data: TensorDict,
    dp_group: Any = None,
) -> tuple[Tensor, dict[str, Any]]:
    """verl's own loss, each token of it multiplied by its weight. Clip, dual clip, averages, KL and entropy stay verl's."""
    weights = None
    if weighs(settings):
        if WEIGHTS not in data:
            raise RuntimeError(f"the batch has no {WEIGHTS}: they were lost between the solve and the update")
        weights = list(data[WEIGHTS].unbind())
    elif settings.method.surrogate.reweighs:
        weights = _new_weights(settings, model_output, data)
    if weights is None:
        return stock(model_output=model_output, data=data, dp_group=dp_group)
    correction = list(data["rollout_is_weights"].unbind()) if "rollout_is_weights" in data else None
    weighed = data.copy()
    weighed["rollout_is_weights"] = torch.nested.as_nested_tensor(
        multiplied(weights, correction), layout=torch.jagged
    )
    loss, metrics = stock(model_output=model_output, data=weighed, dp_group=dp_group)
    # What the loss was given, seen from inside of it: a coefficient that never arrived cannot show up here.
    mask = torch.cat([row.bool() for row in data["response_mask"].unbind()])[None]
    tokens = (data["batch_num_tokens"] or int(mask.sum())) / data["dp_size"]
    mean, away = spread(torch.cat(weights)[None].to(mask.device), mask, tokens)
    metrics["actor/delta_weight_mean"] = Metric(value=mean, aggregation=AggregationType.SUM)
    metrics["actor/delta_weight_away_from_one"] = Metric(value=away, aggregation=AggregationType.SUM)
    return loss, metrics


def _new_weights(
    settings: VerlSettings, model_output: Mapping[str, Tensor], data: TensorDict
) -> list[Tensor]:
    """The surrogate's weights at the current policy. They are positive, so that scaling the loss is scaling the advantage."""
    padded = data.select("response_mask", "old_log_probs", "advantages").to_padded_tensor()
    logps = no_padding_2_padding(model_output["log_probs"], data)
    weights = settings.method.surrogate.reweigh(
        logps.detach() - padded["old_log_probs"], padded["advantages"], padded["response_mask"].bool()
    )
    lengths = data["response_mask"].offsets().diff().tolist()
    return [row[:length] for row, length in zip(weights, lengths, strict=True)]


# --------------------------------------------------------------------------------------------------------------- the trainer


@register_trainer(MODE)
class DeltaTrainerSync(PPOTrainerSync):
    """verl's synchronous trainer with token weights between advantages and update."""

    def __init__(self, config: DictConfig):
        self.delta_settings = settings_of(config)
        with open_dict(config):
            # Workers start in another folder, and know a rule's file by its whole path.
            config[_SETTINGS].method = portable(config[_SETTINGS].method)
            config.actor_rollout_ref[_SETTINGS] = config[
                _SETTINGS
            ]  # workers are given this part of the config alone
            # The stock trainer asks for the literal "sync" where it tells synchronous modes from asynchronous ones.
            config.trainer.v1.trainer_mode = "sync"
        refuse_used_folder(self.delta_settings, config.trainer.resume_mode)
        super().__init__(config)
        self.delta_folder: RunFolder | None = None

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef):
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(DeltaWorker)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_advantage(batch, metrics=metrics)
        if not weighs(self.delta_settings):
            return batch
        with marked_timer("delta", self.timing_raw, color="cyan"):
            request = KVBatchMeta(
                keys=batch.keys,
                tags=batch.tags,
                partition_id=batch.partition_id,
                fields=["uid", "index", "session_id", "response_mask", "advantages"],
                extra_info={"round_number": self.global_steps, "detail": self._dumps_this_step()},
            )
            solved = self.actor_rollout_wg.compute_token_weights(request)
            metrics.update(solved.extra_info["metrics"][0])  # one entry a rank, all of the same sums
        # Workers fetch the fields that are named here, and drop the others in silence. (None names all.)
        if batch.fields is not None and WEIGHTS not in batch.fields:
            batch.fields = [*batch.fields, WEIGHTS]
        return batch

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        if self.delta_folder is not None:
            table = self._token_table(batch)
            self.delta_folder.write_step(
                global_steps, metrics, timing_raw, table, dump=self._dumps_this_step()
            )

    def _token_table(self, batch: KVBatchMeta) -> dict[str, list[Any]]:
        """What the run folder wants to know of every response that is not padding: plain lists and tensors."""
        real = [number for number, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
        fields = [
            "prompts",
            "responses",
            "response_mask",
            "advantages",
            "rm_scores",
            "uid",
            "session_id",
            "reward_model",
        ]
        fields += ["extra_info", "extra_fields", WEIGHTS]
        if self._dumps_this_step():
            fields += ["old_log_probs", "entropy", *(f"delta_{name}" for name in DETAIL)]
        data = tq.kv_batch_get(
            keys=[batch.keys[number] for number in real],
            partition_id=batch.partition_id,
            select_fields=fields,
        )
        return {key: _rows(tu.get(data, key)) for key in list(data.keys())}

    def _dumps_this_step(self) -> bool:
        every = self.delta_settings.rollouts_every
        last = self.global_steps >= self.total_training_steps
        return self.delta_settings.run_folder is not None and (
            self.global_steps % every == 0 or self.global_steps == 1 or last
        )

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        if self.delta_folder is not None:
            self.delta_folder.checkpoint(self.global_steps)

    def fit(self, agent_loop_manager: Any) -> None:
        if self.delta_settings.run_folder is not None:
            self.delta_folder = RunFolder.open(
                self.delta_settings,
                OmegaConf.to_container(self.config, resolve=True),  # type: ignore[arg-type]
                self.tokenizer,
                resumed_from=self.global_steps,
                steps_planned=self.total_training_steps,
            )
        try:
            super().fit(agent_loop_manager)
        except BaseException as error:
            if self.delta_folder is not None:
                self.delta_folder.failed(error)
            raise
        if self.delta_folder is not None:
            self.delta_folder.finished()


def _rows(values: Any) -> list[Any]:
    return list(values.unbind()) if isinstance(values, Tensor) else list(values)


def settings_of(config: DictConfig) -> VerlSettings:
    """The checked settings of a whole verl config."""
    block = OmegaConf.to_container(config[_SETTINGS], resolve=True) if _SETTINGS in config else None
    settings = read_settings(block)  # type: ignore[arg-type]
    check_config(OmegaConf.to_container(config, resolve=True), settings)  # type: ignore[arg-type]
    return settings


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
        if _SETTINGS in config and not isinstance(self, DeltaTrainerSync):
            raise SettingsError(
                f"the config has a delta block, but trainer.v1.trainer_mode={config.trainer.v1.trainer_mode} would ignore it: "
                f"set trainer.v1.trainer_mode={MODE}, or remove the block"
            )
        stock_init(self, config)

    if not hasattr(stock_init, "__wrapped__"):
        PPOTrainer.__init__ = guarded  # type: ignore[method-assign]


_guard_stock_modes()
