"""Prompts with several responses each, laid out without padding between them.

A run's tokens stand in one row: what all of its prompts begin with (shots, a system message), the rest of each prompt, and then the
valid tokens of all responses, one after another. Everything but attention works on these tokens alone. For attention, responses are
laid out with padding again, each behind its own prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from delta_rlvr.study.stack.layers import causal_attention, for_all_heads

# Kernels of attention take a bias as it is where its rows are a multiple of this long.
_MULTIPLE = 8


@dataclass(frozen=True)
class Packing:
    """Moves tokens between places with padding and a row without it. Padding gets whatever stands first in the row."""

    packed: Int[Tensor, " run_row"]
    """The place of each token of a row, over all runs."""
    places: Int[Tensor, " run_place"]
    """The token of each place."""
    valid: Bool[Tensor, " run_place"]

    @classmethod
    def over(cls, mask: Bool[Tensor, "run place"]) -> Packing:
        """Rows are as long as the run with the most tokens needs; in the others some padding stands at the end."""
        runs, count = mask.shape
        order = torch.argsort(~mask, dim=-1, stable=True)
        longest = int(mask.sum(dim=-1).max())
        rank = torch.argsort(order, dim=-1)
        run = torch.arange(runs, device=mask.device)[:, None]
        return cls(
            (order[:, :longest] + run * count).flatten(),
            (torch.where(rank < longest, rank, 0) + run * longest).flatten(),
            mask.flatten(),
        )

    def pack(self, values: Shaped[Tensor, "run place *rest"]) -> Shaped[Tensor, "run row *rest"]:
        return _Pack.apply(values, self)

    def unpack(self, values: Shaped[Tensor, "run row *rest"]) -> Shaped[Tensor, "run place *rest"]:
        return _Unpack.apply(values, self)


class _Pack(torch.autograd.Function):
    """Every token has one place, so that the gradient is moved back and nothing is added up."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return _taken(values, packing.packed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        spread = _taken(gradient, ctx.packing.places)
        padding = ~ctx.packing.valid.view(*spread.shape[:2], *[1] * (spread.dim() - 2))
        return spread.masked_fill_(padding, 0.0), None


class _Unpack(torch.autograd.Function):
    """Of what stands in padding there is no gradient: nothing valid looks at it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return _taken(values, packing.places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return _taken(gradient, ctx.packing.packed), None


def _taken(values: Shaped[Tensor, "run some *rest"], chosen: Int[Tensor, " run_other"]) -> Tensor:
    return values.flatten(0, 1).index_select(0, chosen).unflatten(0, (len(values), -1))


@dataclass(frozen=True)
class Ragged:
    """Where each token of a run stands: `prefix` of them, then `count` times `rest`, then those of the responses."""

    ids: Int[Tensor, "run one token"]
    positions: Int[Tensor, "run one token"]
    prefix: int
    """Tokens that all prompts of a run begin with; the same number in every run."""
    count: int
    """Prompts of a run."""
    rest: int
    """Places for the rest of a prompt, padding after it included."""
    copies: int
    """Responses to each prompt."""
    packing: Packing
    """Of the responses."""
    last: Int[Tensor, "run prompt"]
    """The last token of each prompt."""
    prompt_bias: Float[Tensor, "one one rest key"]
    """Added to the scores of the rest of a prompt: 0, or -inf where it must not look."""
    bias: Float[Tensor, "response one time key"]
    """The same for responses, which look at their prompt and at themselves."""

    @classmethod
    def over(
        cls,
        prompts: Int[Tensor, "run prompt prompt_time"],
        lengths: Int[Tensor, "run prompt"],
        responses: Int[Tensor, "run batch time"],
        mask: Bool[Tensor, "run batch time"],
        copies: int,
        dtype: torch.dtype,
    ) -> Ragged:
        """For prompts and responses whose valid tokens come first."""
        (runs, count, _), device = prompts.shape, prompts.device
        prefix = shared_prefix(prompts, lengths)
        rest = _round_up(int(lengths.max()) - prefix)
        time = _round_up(responses.shape[-1])
        whole = prefix + rest
        prompts = F.pad(
            prompts, (0, whole - prompts.shape[-1])
        )  # or cut: no valid token stands behind the longest
        responses, mask = (F.pad(part, (0, time - part.shape[-1])) for part in (responses, mask))
        packing = Packing.over(mask.flatten(1))

        key = torch.arange(whole + time, device=device)
        own = lengths.repeat_interleave(copies, dim=1)[..., None] + key[:time]
        ids = [prompts[:, 0, :prefix], prompts[:, :, prefix:].flatten(1), packing.pack(responses.flatten(1))]
        positions = [
            key[:prefix].expand(runs, -1),
            key[prefix:whole].repeat(runs, count),
            packing.pack(own.flatten(1)),
        ]
        seen_by_prompt = key[:whole] <= key[prefix:whole, None]
        in_prompt = key < lengths.flatten()[:, None, None]
        in_response = (key >= whole) & (key <= key[whole:, None])
        seen = (in_prompt | in_response).repeat_interleave(copies, dim=0)
        return cls(
            torch.cat(ids, dim=1)[:, None],
            torch.cat(positions, dim=1)[:, None],
            prefix,
            count,
            rest,
            copies,
            packing,
            torch.arange(count, device=device) * rest + lengths - 1,
            _bias(seen_by_prompt[None, None], dtype),
            _bias(seen[:, None], dtype),
        )

    def attend(
        self,
        query: Float[Tensor, "run head token head_width"],
        key: Float[Tensor, "run kv_head token head_width"],
        value: Float[Tensor, "run kv_head token head_width"],
    ) -> Float[Tensor, "run head token head_width"]:
        """Each part of the row with what it may look at."""
        mixed = []
        if self.prefix:
            mixed.append(causal_attention(*(part[:, :, : self.prefix] for part in (query, key, value))))
        key, value = (part.transpose(1, 2) for part in (key, value))
        key_of_prompt, value_of_prompt = self._prompt_keys(key), self._prompt_keys(value)
        start, end = self.prefix, self.prefix + self.count * self.rest
        of_rest = query[:, :, start:end].unflatten(2, (self.count, -1)).transpose(1, 2).flatten(0, 1)
        of_rest = _attention(of_rest, key_of_prompt, value_of_prompt, self.prompt_bias)
        mixed.append(of_rest.unflatten(0, (-1, self.count)).transpose(1, 2).flatten(2, 3))
        of_responses = _attention(
            self._by_response(query.transpose(1, 2)).transpose(1, 2),
            torch.cat([key_of_prompt.repeat_interleave(self.copies, dim=0), self._by_response(key)], dim=1),
            torch.cat(
                [value_of_prompt.repeat_interleave(self.copies, dim=0), self._by_response(value)], dim=1
            ),
            self.bias,
        )
        places = of_responses.transpose(1, 2).unflatten(0, (len(query), -1)).flatten(1, 2)
        mixed.append(self.packing.pack(places).transpose(1, 2))
        return torch.cat(mixed, dim=2)

    def predicting(self, hidden: Float[Tensor, "run token width"]) -> Float[Tensor, "run batch time width"]:
        """The states that predict the tokens of the responses: the prompt's last, then those of the tokens before."""
        end = self.prefix + self.count * self.rest
        last = hidden.gather(1, self.last[..., None].expand(-1, -1, hidden.shape[-1]))
        of_responses = self.packing.unpack(hidden[:, end:]).unflatten(1, (self.count * self.copies, -1))
        return torch.cat(
            [last.repeat_interleave(self.copies, dim=1)[:, :, None], of_responses[:, :, :-1]], dim=2
        )

    def _prompt_keys(self, part: Tensor) -> Float[Tensor, "run_prompt key kv_head head_width"]:
        end = self.prefix + self.count * self.rest
        rests = part[:, self.prefix : end].unflatten(1, (self.count, -1))
        shared = part[:, None, : self.prefix].expand(-1, self.count, -1, -1, -1)
        return torch.cat([shared, rests], dim=2).flatten(0, 1)

    def _by_response(self, part: Tensor) -> Float[Tensor, "response time any_head head_width"]:
        end = self.prefix + self.count * self.rest
        placed = self.packing.unpack(part[:, end:])
        return placed.unflatten(1, (self.count * self.copies, -1)).flatten(0, 1)


def shared_prefix(prompts: Int[Tensor, "run prompt prompt_time"], lengths: Int[Tensor, "run prompt"]) -> int:
    """How many tokens all prompts of a run begin with, in the run that has the fewest of them, less those that no kernel wants.
    Each prompt keeps one token of its own."""
    same = (prompts == prompts[:, :1]).all(dim=1).long().cumprod(dim=-1).sum(dim=-1)
    shared = torch.minimum(same.min(), lengths.min() - 1)
    return int(shared) // _MULTIPLE * _MULTIPLE


def _attention(
    query: Float[Tensor, "row head time head_width"],
    key: Float[Tensor, "row key kv_head head_width"],
    value: Float[Tensor, "row key kv_head head_width"],
    bias: Float[Tensor, "some_rows one time key"],
) -> Float[Tensor, "row head time head_width"]:
    key, value = for_all_heads(query, key.transpose(1, 2), value.transpose(1, 2))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)


def _bias(seen: Bool[Tensor, "..."], dtype: torch.dtype) -> Float[Tensor, "..."]:
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)


def _round_up(number: int) -> int:
    return -(-number // _MULTIPLE) * _MULTIPLE
