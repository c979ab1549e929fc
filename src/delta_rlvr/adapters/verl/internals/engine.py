"""Access to verl's FSDP engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from tensordict import TensorDict
from torch import Tensor
from torch.distributed.tensor import DTensor

from delta_rlvr.adapters.verl.capture import MicroBatch, PassCapture
from delta_rlvr.adapters.verl.internals.fields import described
from delta_rlvr.credit import kernels
from delta_rlvr.credit.reduce import Reducer


@contextmanager
def watched_pass(engine: Any, start: Callable[[], PassCapture]) -> Iterator[None]:
    """Pass the hidden states, log-probs and entropies of each micro-batch in the block to a capture.

    `start` makes the capture at the first micro-batch, when the parameters of an offloaded model are back on the device.
    """
    capture: PassCapture | None = None
    current: MicroBatch | None = None
    stock_step = engine.forward_step

    def keep_hidden(_: torch.nn.Module, __: Any, output: Any) -> None:
        assert capture is not None
        assert current is not None
        capture.add_hidden(current, output[0] if isinstance(output, tuple) else output.last_hidden_state)

    def forward_step(micro_batch: TensorDict, loss_function: Any, forward_only: bool) -> Any:
        nonlocal capture, current
        if capture is None:
            capture = start()
        current = described(micro_batch)
        loss, output = stock_step(micro_batch, loss_function=loss_function, forward_only=forward_only)
        entropy = output["model_output"].get("entropy")
        capture.add_outputs(output["model_output"]["log_probs"].values(), None if entropy is None else entropy.values())
        return loss, output

    hook = engine.module.get_decoder().register_forward_hook(keep_hidden)
    engine.forward_step = forward_step
    try:
        yield
    finally:
        del engine.forward_step  # restores the method of the class
        hook.remove()


def warm_up(engine: Any) -> None:
    """Compile the kernels of a solve, so that no step has to."""
    width = engine.module.config.get_text_config().hidden_size
    kernels.warm_up(width, engine._autocast_dtype, device_of(engine), ranks=not Reducer(all_actor_ranks(engine)).alone)


def whole_head(engine: Any) -> Tensor:
    """Return the LM head's weight in the dtype of the pass. This is a collective: every rank calls it at its first micro-batch."""
    weight = engine.module.get_output_embeddings().weight.detach().to(engine._autocast_dtype)
    return weight.full_tensor() if isinstance(weight, DTensor) else weight.clone()


def device_of(engine: Any) -> torch.device:
    """Return the device of the pass, wherever the parameters are offloaded to."""
    return torch.device(engine.device_mesh.device_type)


def all_actor_ranks(engine: Any) -> Any:
    """Return the group of all data-parallel and sequence-parallel ranks, over which sums are taken."""
    return engine.get_data_parallel_group() if engine.ulysses_parallel_group is None else dist.group.WORLD


def ranks_on_node() -> int:
    """Return the number of workers that share this node's memory."""
    return int(os.environ.get("RAY_LOCAL_WORLD_SIZE", 1))
