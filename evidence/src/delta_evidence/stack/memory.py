"""What a stack needs of the device's memory, and what is done when there is not enough."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch

from delta_evidence.stack.model_weights import shape_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")

# Of a row's logits while a token is drawn: float32, and three times float64 (the logits, their softmax, its running sum).
_DRAW_BYTES = 28


def free_memory() -> None:
    """Give back what nothing refers to any more, so that the next stack can have it."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def with_fewer_rows(work: Callable[[int], T], rows: int, least: int, tell: Callable[[str], None]) -> tuple[T, int]:
    """`work(rows)`, each time with half as many rows for as long as the device runs out of memory; and how many it took."""
    while True:
        try:
            return work(rows), rows
        except torch.OutOfMemoryError:
            if rows <= least:
                raise
        # Here, and not in the handler: the error holds on to the tensors of the pass that failed.
        free_memory()
        rows = max(least, rows // 2)
        tell(f"the device ran out of memory: going on with {rows} rows at once")


def bytes_per_run(
    model: PreTrainedModel, compute_dtype: torch.dtype, *, rows: int, prompts: int, prompt_time: int, time: int
) -> int:
    """What each run of a stack holds on to: weights, gradient, optimizer, and the memory of sampling `rows` responses of up to
    `time` tokens to `prompts` prompts. The activations of a pass come on top; `rows_at_once` bounds those of all runs together."""
    shape, cast = shape_of(model), compute_dtype != torch.float32
    # Weight, gradient and Adam's two moments in float32; cast to 16 bits once for sampling and once for a training pass.
    weights = sum(weight.numel() for weight in model.parameters()) * (16 + 4 * cast)
    token = 2 * shape.layers * shape.kv_heads * shape.head_width * compute_dtype.itemsize
    cache = token * (rows * time + prompts * prompt_time)
    return weights + cache + rows * model.config.vocab_size * _DRAW_BYTES


def runs_that_fit(device: torch.device, each: int, most: int) -> int:
    """As many runs as half of the device's free memory holds; the other half is for the activations of a pass."""
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, min(most, free // 2 // each))
