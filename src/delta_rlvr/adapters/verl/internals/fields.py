"""The fields of a batch. verl's V1 trainer has nested responses, its classic trainer pads them on the right."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

from delta_rlvr.adapters.any_trainer import response_advantages
from delta_rlvr.adapters.verl.capture import MicroBatch, stable_numbers
from delta_rlvr.adapters.verl.settings import REWARDS

ROW = "delta_row"
"""The field with a sequence's index in the rank's batch, for its micro-batches."""


def response_lengths(data: TensorDict) -> Int[Tensor, " batch"]:
    """Return the number of tokens of each response, masked ones included."""
    mask = data["response_mask"]
    if mask.is_nested:
        return mask.offsets().diff()
    return data["attention_mask"][:, -mask.shape[1] :].sum(1)


def packed(data: TensorDict, key: str) -> Tensor:
    """Return a field of response tokens, response by response without padding."""
    values = data[key]
    return values.values() if values.is_nested else values[_inside(response_lengths(data), values.shape[1])]


def response_rewards(data: TensorDict) -> Float[Tensor, " batch"]:
    """Return R_i of each response, from rewards per token."""
    values = packed(data, next(name for name in REWARDS if name in data))
    lengths = response_lengths(data)
    row = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    return torch.zeros(len(lengths), dtype=values.dtype).index_add(0, row, values)


def asked(data: TensorDict) -> dict[str, Tensor]:
    """Return what every solve needs of each response: advantage, reward, group and a key."""
    mask = packed(data, "response_mask").bool()
    return {
        "advantages": response_advantages(packed(data, "advantages"), mask, response_lengths(data)),
        "rewards": response_rewards(data),
        "groups": stable_numbers([str(uid) for uid in tu.get(data, "uid")]),
        "keys": stable_numbers(identities(data)),
    }


def nested(values: Tensor, lengths: Int[Tensor, " batch"]) -> Tensor:
    """Return packed values as a nested tensor with one row per response."""
    return torch.nested.as_nested_tensor(list(values.cpu().split(lengths.tolist())), layout=torch.jagged)


def described(micro_batch: TensorDict) -> MicroBatch:
    """Return a micro-batch for the capture. Until the engine's forward step moves it, it is in host memory."""
    return MicroBatch(
        rows=micro_batch[ROW].cpu(),
        sequence_lengths=micro_batch["input_ids"].offsets().diff().cpu(),
        response_lengths=response_lengths(micro_batch).cpu(),
        response_mask=packed(micro_batch, "response_mask").cpu().bool(),
        response_ids=packed(micro_batch, "responses").cpu(),
    )


def identities(data: TensorDict) -> list[str]:
    """Return a unique text for each response, the same in every run: the problem's index and the number of the sample."""
    index, session = tu.get(data, "index"), tu.get(data, "session_id")
    if index is None or session is None:
        raise RuntimeError("the batch lacks the field index or session_id: a custom agent loop must keep both")
    return [f"{problem}/{number}" for problem, number in zip(_listed(index), _listed(session), strict=True)]


def _inside(lengths: Int[Tensor, " batch"], width: int) -> Bool[Tensor, "batch time"]:
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def _listed(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, Tensor) else list(values)
