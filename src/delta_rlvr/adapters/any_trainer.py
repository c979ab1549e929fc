"""Token weights for any trainer that has log-probs, as arrays (docs/your_engine.md).

    weights = token_weights(logps, advantages, mask)            # numpy or torch, [batch, time]
    advantages = advantages[:, None] * weights                   # or multiply the loss of each token

Responses are padded (`[batch, time]` with a mask) or a list with one array each. Ranks that share a batch pass `ranks=`: a torch
process group, or a function that gathers one Python object from each rank, in rank order (such as `comm.allgather` of mpi4py).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.bounds import check_types
from delta_rlvr.credit.checks import not_finite, require, require_integer, require_shape
from delta_rlvr.credit.reduce import Reducer
from delta_rlvr.credit.rule import NEEDS, TokenRule
from delta_rlvr.credit.stream import TOKEN_ARRAYS, CreditStream
from delta_rlvr.objectives import get_method, rewarded_alike

Array: TypeAlias = Any
"""A numpy array or a tensor [batch, time], or a sequence of such arrays [time], one per response."""
AllGather: TypeAlias = Callable[[Any], list[Any]]


def token_weights(
    logps: Array | None,
    advantages: Array,
    mask: Array,
    *,
    method: str | TokenRule = "delta-scalar",
    groups: Any = None,
    rewards: Any = None,
    ranks: dist.ProcessGroup | Reducer | AllGather | None = None,
    temperature: float = 1.0,
    keys: Any = None,
    round_number: int = 0,
    **arrays: Array,
) -> Array:
    """Return one weight per token: float32, as NumPy or torch and in the layout of `mask`, 0 outside of it.

    Args:
        logps: log-probs of the sampled tokens under the policy before the update (None for rules that need none).
        advantages: one per response, or one per token, equal within a response.
        mask: the tokens that are trained on.
        method: any method whose needs are among the arguments.
        groups: a whole number per response, the same for all responses to a prompt.
        rewards: with `groups`: a group of equal rewards then has no signal, even if rounding left it small advantages.
        ranks: the connection of the ranks that share the batch; every rank must call this.
        temperature: the sampling temperature.
        keys: a number for each response, for rules that draw.
        round_number: the number of the batch, for rules that draw.
        arrays: `entropy`, `tokens` and the other arrays per token that the rule needs.
    """
    rule = get_method(method).rule
    check_types(token_weights, {"ranks": ranks})
    for name in arrays:
        require(name in TOKEN_ARRAYS, f"{name}: no such array per token (there are: {', '.join(TOKEN_ARRAYS)})")
    require(rewards is None or groups is not None, "rewards are compared within groups: pass groups=, too")
    given = {name: values for name, values in {"logps": logps, **arrays}.items() if values is not None}
    have = {*given, *(() if groups is None else ("groups",))}
    for need in rule.needs:
        if need not in have:
            names = [*TOKEN_ARRAYS, "groups"]
            way = f"pass {need}=" if need in names else "use delta_rlvr.token_coefficients or CreditStream"
            raise ValueError(f"method {method!r} needs {NEEDS.get(need, repr(need))}: {way}")
    reducer = _reducer(ranks, _device(mask))
    problem: ValueError | None = None
    try:
        # No collective in here: an error may occur on one rank alone.
        layout = _Layout(mask)
        valid = layout.valid(mask)
        device = valid.device
        lengths = layout.counts(valid)
        per_response = layout.per_response(advantages, valid)
        ids: dict[str, Any] = {
            name: None if values is None else _tensor(name, values, device)
            for name, values in (("groups", groups), ("keys", keys))
        }
        shared = None if rewards is None else _tensor("rewards", rewards, device).double()
        if shared is not None:
            for name, values in (("advantages", per_response), ("groups", ids["groups"]), ("rewards", shared)):
                require_shape(name, values, (len(lengths),), "[batch]")
            require_integer("groups", ids["groups"])
            require(bool(shared.isfinite().all()), "rewards: not finite (NaN or inf)")
        stream = CreditStream(rule, temperature=temperature, process_group=reducer, device=device)
        packed: dict[str, Any] = {
            name: layout.packed(name, values).to(device)[valid] for name, values in given.items() if name in rule.needs
        }
        stream.add(None, lengths=lengths, **packed)
    except ValueError as error:
        problem = error
    reducer.agree(problem)
    if shared is not None:
        per_response = per_response.masked_fill(_alike(shared, ids["groups"], reducer), 0.0)
    record = stream.solve(per_response, **ids, round_number=round_number)
    flat = torch.zeros(len(valid), dtype=torch.float32, device=device)
    flat[valid] = record.weights
    return layout.restored(flat)


def response_advantages(
    advantages: Float[Tensor, " response_token"],
    response_mask: Bool[Tensor, " response_token"],
    response_lengths: Int[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """Return A_i of each response from packed token advantages; 0 where a response has no valid token."""
    row = torch.repeat_interleave(torch.arange(len(response_lengths), device=response_mask.device), response_lengths)[
        response_mask
    ]
    values = advantages[response_mask]
    shared = torch.zeros(len(response_lengths), dtype=values.dtype, device=values.device)
    shared[row] = values
    if not values.isfinite().all():
        raise not_finite("advantages", ~values.isfinite(), row)
    uneven = (values - shared[row]).abs() > 1e-6
    if uneven.any():
        raise ValueError(
            f"advantages: they differ within response {int(row[uneven][0])}; token credit needs one advantage per response, "
            "as in GRPO"
        )
    return shared


class _Layout:
    """The caller's layout of tokens: packs arrays, and restores the layout."""

    def __init__(self, mask: Array):
        self.listed = isinstance(mask, Sequence)
        first = mask[0] if self.listed and len(mask) else mask
        self.numpy = not isinstance(first, Tensor)
        if self.listed:
            require(all(np.ndim(row) == 1 for row in mask), "mask: a list needs one array [time] per response")
            self.lengths = torch.tensor([len(row) for row in mask], dtype=torch.int64)
        else:
            self.shape = tuple(np.shape(mask))
            if len(self.shape) != 2:
                raise ValueError(f"mask: shape {self.shape} does not fit; [batch, time] is needed, or a list of [time]")
            self.lengths = torch.full(self.shape[:1], self.shape[1])

    def packed(self, name: str, values: Array) -> Tensor:
        if not self.listed:
            flat = _tensor(name, values)
            require_shape(name, flat, self.shape, "the mask's [batch, time]")
            return flat.flatten()
        rows = [_tensor(name, row) for row in values]
        require(
            [tuple(row.shape) for row in rows] == [(length,) for length in self.lengths.tolist()],
            f"{name}: a list of arrays has other lengths than the mask's",
        )
        return torch.cat(rows) if rows else torch.zeros(0)

    def valid(self, mask: Array) -> Bool[Tensor, " place"]:
        values = self.packed("mask", mask)
        valid = values.bool()
        require(bool((valid == values).all()), "mask: a token is trained on (1, True) or not (0, False)")
        return valid

    def counts(self, valid: Bool[Tensor, " place"]) -> Int[Tensor, " batch"]:
        """Valid tokens of each response."""
        row = torch.repeat_interleave(torch.arange(len(self.lengths)), self.lengths).to(valid.device)
        return torch.bincount(row[valid], minlength=len(self.lengths))

    def per_response(self, advantages: Array, valid: Bool[Tensor, " place"]) -> Float[Tensor, " batch"]:
        many = isinstance(advantages, Sequence) and len(advantages) and np.ndim(advantages[0]) == 1
        if many or np.ndim(advantages) == 2:
            flat = self.packed("advantages", advantages).to(valid.device)
            return response_advantages(flat, valid, self.lengths.to(valid.device))
        return _tensor("advantages", advantages, valid.device)

    def restored(self, flat: Float[Tensor, " place"]) -> Array:
        rows = flat.split(self.lengths.tolist()) if self.listed else flat.view(self.shape)
        if not self.numpy:
            return list(rows) if self.listed else rows
        return [row.numpy() for row in rows] if self.listed else rows.numpy()


class GatheringReducer(Reducer):
    """Collectives by the caller's function that gathers an object from every rank."""

    def __init__(self, all_gather: AllGather, device: torch.device | None = None):
        super().__init__(None, device)
        self._all_gather = all_gather
        self._rank: int | None = None

    @property
    def alone(self) -> bool:
        return False

    @property
    def rank(self) -> int:
        if self._rank is None:
            mine = uuid.uuid4().hex
            self._rank = self._all_gather(mine).index(mine)
        return self._rank

    def sum(self, values: Tensor) -> Tensor:
        parts = self._gathered(values)
        return values.copy_(torch.stack(parts).sum(0).to(values.device))

    def maximum(self, value: int) -> int:
        return max(self._all_gather(value))

    def gather(self, values: Tensor) -> Tensor:
        return torch.cat(self._gathered(values)).to(values.device)

    def _gathered(self, values: Tensor) -> list[Tensor]:
        # A copy: ranks may be threads, and `sum` writes in place.
        return [torch.as_tensor(part) for part in self._all_gather(values.cpu().numpy().copy())]

    def gather_counts(self, count: int) -> list[int]:
        return list(self._all_gather(count))


def _reducer(ranks: Any, device: torch.device) -> Reducer:
    if isinstance(ranks, Reducer):
        return ranks
    return GatheringReducer(ranks, device) if callable(ranks) else Reducer(ranks, device)


def _alike(rewards: Float[Tensor, " batch"], groups: Int[Tensor, " batch"], reducer: Reducer) -> Bool[Tensor, " batch"]:
    """Return which responses are in a group whose rewards are equal over all ranks."""
    all_groups, all_rewards = reducer.gather(groups), reducer.gather(rewards)
    alike = rewarded_alike(all_rewards, all_groups.unique(return_inverse=True)[1])
    return torch.isin(groups, all_groups[alike])


def _device(mask: Array) -> torch.device:
    first = mask[0] if isinstance(mask, Sequence) and len(mask) else mask
    return first.device if isinstance(first, Tensor) else torch.device("cpu")


def _tensor(name: str, values: Any, device: torch.device | None = None) -> Tensor:
    if isinstance(values, Tensor):
        tensor = values.detach()
    else:
        try:
            # A copy: torch accepts neither negative strides nor a foreign byte order.
            array = np.array(values, order="C")
            tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: this is not an array of numbers ({error})") from error
    return tensor if device is None else tensor.to(device)
