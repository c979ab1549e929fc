"""verl's actor worker, extended to keep hidden states and to solve for token weights."""

from __future__ import annotations

import functools
import time
from typing import Any

import torch
import torch.distributed as dist
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker

from delta_rlvr.adapters.metrics import tracked
from delta_rlvr.adapters.verl.capture import PassCapture
from delta_rlvr.adapters.verl.internals import engine as engines
from delta_rlvr.adapters.verl.internals.fields import ROW, asked, nested, response_lengths
from delta_rlvr.adapters.verl.internals.loss import weighted_loss
from delta_rlvr.adapters.verl.settings import BLOCK, DETAIL, WEIGHTS, read_settings


class DeltaWorker(ActorRolloutRefWorker):
    """The worker of an actor, with the `delta` block in its part of the config."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[attr-defined]
    def init_model(self) -> None:
        super().init_model()
        if self.actor is None:
            return
        self.delta_engine: Any = self.actor.engine
        self.delta_settings = read_settings(self.config[BLOCK])
        self.delta_capture: PassCapture | None = None
        self.delta_pass_seconds = 0.0
        self.delta_store = self.delta_settings.store(engines.ranks_on_node())
        self.loss_fn = functools.partial(weighted_loss, self.loss_fn, self.delta_settings)
        self.actor.set_loss_fn(self.loss_fn)
        if self.delta_settings.method.rule.stores is not None:
            engines.warm_up(self.delta_engine)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_log_prob(self, data: TensorDict) -> TensorDict | None:
        # With LoRA the reference policy is this model without its adapters, which is not the old policy.
        if not self.delta_settings.weighs or tu.get(data, "no_lora_adapter", False):
            return super().compute_log_prob(data)
        data[ROW] = torch.arange(len(data))
        self.delta_capture = None
        began = time.perf_counter()
        start = functools.partial(self._start_capture, float(tu.get(data, "temperature")))
        with engines.watched_pass(self.delta_engine, start):
            output = super().compute_log_prob(data)
        self.delta_pass_seconds = time.perf_counter() - began
        return output

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_token_weights(self, data: TensorDict) -> TensorDict | None:
        """Return the token weights of the batch whose old log-probs were computed last, over all data-parallel ranks.

        `detail` adds the arrays of `DETAIL` and diagnostics of the weights.
        """
        if self.delta_capture is None:
            raise RuntimeError("compute_token_weights was called before the old-log-prob pass of the batch")
        capture, self.delta_capture = self.delta_capture, None
        detail = bool(tu.get(data, "detail", False))
        began = time.perf_counter()
        lengths = response_lengths(data)
        record, arrays = capture.solve(
            response_lengths=lengths, round_number=int(tu.get(data, "round_number")), **asked(data)
        )
        seconds = time.perf_counter() - began
        if detail:
            record = capture.diagnosed(record)
        metrics = tracked(record.summary() | self._timing(capture.watch.seconds, seconds, record.store_bytes))
        self.delta_store.clear()
        if not self.delta_engine.is_mp_src_rank_with_outputs():
            return None
        wanted = {"weights": WEIGHTS} | (DETAIL if detail else {})
        fields: dict[str, Any] = {
            field: nested(arrays[name], lengths) for name, field in wanted.items() if name in arrays
        }
        return tu.get_tensordict(tensor_dict=fields, non_tensor_dict={"metrics": metrics})

    def _start_capture(self, temperature: float) -> PassCapture:
        engine, settings = self.delta_engine, self.delta_settings
        self.delta_capture = PassCapture(
            settings,
            store=self.delta_store,
            process_group=engines.all_actor_ranks(engine),
            slice_group=engine.ulysses_parallel_group,
            head=engines.whole_head(engine) if "head" in settings.method.rule.needs else None,
            temperature=temperature,
            device=engines.device_of(engine),
        )
        return self.delta_capture

    def _timing(self, capture: float, solve: float, stored: int) -> dict[str, float]:
        """Return the times of the slowest rank, but the solve of the fastest: ranks that came earlier only waited for the last."""
        own = torch.tensor([capture, -solve, self.delta_pass_seconds, float(stored)], dtype=torch.float64)
        own = own.to(engines.device_of(self.delta_engine))
        dist.all_reduce(own, op=dist.ReduceOp.MAX, group=engines.all_actor_ranks(self.delta_engine))
        capture, solve, whole, stored_most = own[0].item(), -own[1].item(), own[2].item(), own[3].item()
        return {
            "seconds_capture": capture,
            "seconds_solve": solve,
            "seconds_old_log_prob": whole - capture,
            "overhead": (capture + solve) / max(whole - capture, 1e-9),
            "store_bytes": stored_most,
        }
