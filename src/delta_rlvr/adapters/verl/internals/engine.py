"""What is asked of verl's FSDP engine."""

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
    """While a forward pass runs, hand each micro-batch's hidden states, log-probs and entropies to a capture.

    `start` makes the capture, at the first micro-batch: only then are the parameters of an offloaded model back on the device.
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
        del engine.forward_step  # the class's own method shows again
        hook.remove()


def warm_up(engine: Any) -> None:
    """Compile what a solve will run, so that no step waits for it."""
    width = engine.module.config.get_text_config().hidden_size
    kernels.warm_up(width, engine._autocast_dtype, device_of(engine), ranks=not Reducer(all_actor_ranks(engine)).alone)


def whole_head(engine: Any) -> Tensor:
    """The LM head's weight in the dtype of the pass. A collective: every rank comes here at its first micro-batch."""
    weight = engine.module.get_output_embeddings().weight.detach().to(engine._autocast_dtype)
    return weight.full_tensor() if isinstance(weight, DTensor) else weight.clone()


def device_of(engine: Any) -> torch.device:
    """Where the pass runs, whatever offloading does to the parameters in between."""
    return torch.device(engine.device_mesh.device_type)


def all_actor_ranks(engine: Any) -> Any:
    """Data-parallel and sequence-parallel ranks together: with slices of sequences, sums run over both."""
    return engine.get_data_parallel_group() if engine.ulysses_parallel_group is None else dist.group.WORLD


def ranks_on_node() -> int:
    """Workers of this node, which share its memory."""
    return int(os.environ.get("RAY_LOCAL_WORLD_SIZE", 1))
