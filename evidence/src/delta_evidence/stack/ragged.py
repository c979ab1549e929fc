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

from delta_evidence.stack.layers import as_bias, attention, response_bias, round_up


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
        return _Moved.apply(values, self.packed, self.places, self.valid)

    def unpack(self, values: Shaped[Tensor, "run row *rest"]) -> Shaped[Tensor, "run place *rest"]:
        # Of what stands in padding there is no gradient: nothing valid looks at it.
        return _Moved.apply(values, self.places, self.packed, None)


class _Moved(torch.autograd.Function):
    """Every token has one place, so that the gradient is moved back and nothing is added up; at places that are not `valid` it is 0."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, there: Tensor, back: Tensor, valid: Tensor | None) -> Tensor:
        ctx.back, ctx.valid = back, valid
        return _taken(values, there)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        moved = _taken(gradient, ctx.back)
        if ctx.valid is not None:
            moved.masked_fill_(~ctx.valid.view(*moved.shape[:2], *[1] * (moved.dim() - 2)), 0.0)
        return moved, None, None, None


def _taken(values: Shaped[Tensor, "run some *rest"], chosen: Int[Tensor, " run_other"]) -> Tensor:
    return values.flatten(0, 1).index_select(0, chosen).unflatten(0, (len(values), -1))


@dataclass(frozen=True)
class SharedPrompts:
    """The prompts of each run in one row: `prefix` tokens that all begin with, then `rest` places for each of `count` prompts."""

    ids: Int[Tensor, "run token"]
    positions: Int[Tensor, "run token"]
    prefix: int
    """The same number in every run."""
    count: int
    rest: int
    """Padding after a prompt is among them."""
    last: Int[Tensor, "run prompt"]
    """Where in the row each prompt ends."""
    bias: Float[Tensor, "one one rest key"]
    """Added to the scores of the rest of a prompt: 0, or -inf where it must not look. Padding comes after all that looks."""

    @classmethod
    def over(
        cls, prompts: Int[Tensor, "run prompt prompt_time"], lengths: Int[Tensor, "run prompt"], dtype: torch.dtype
    ) -> SharedPrompts:
        """For prompts whose valid tokens come first."""
        runs, count, _ = prompts.shape
        prefix = shared_prefix(prompts, lengths)
        rest = round_up(int(lengths.max()) - prefix)
        whole = prefix + rest
        # Or cut: no valid token stands behind the longest.
        prompts = F.pad(prompts, (0, whole - prompts.shape[-1]))
        key = torch.arange(whole, device=prompts.device)
        return cls(
            torch.cat([prompts[:, 0, :prefix], prompts[:, :, prefix:].flatten(1)], dim=1),
            torch.cat([key[:prefix].expand(runs, -1), key[prefix:].repeat(runs, count)], dim=1),
            prefix,
            count,
            rest,
            torch.arange(count, device=prompts.device) * rest + lengths - 1,
            as_bias((key <= key[prefix:, None])[None, None], dtype),
        )

    @property
    def length(self) -> int:
        """Tokens of a row."""
        return self.prefix + self.count * self.rest

    def keys(
        self, part: Float[Tensor, "run kv_head token head_width"]
    ) -> Float[Tensor, "run_prompt kv_head key head_width"]:
        """Keys or values of the whole of each prompt."""
        shared = part[:, None, :, : self.prefix].expand(-1, self.count, -1, -1, -1)
        rests = part[:, :, self.prefix : self.length].unflatten(2, (self.count, -1)).transpose(1, 2)
        return torch.cat([shared, rests], dim=3).flatten(0, 1)

    def attend(
        self,
        query: Float[Tensor, "run head token head_width"],
        key: Float[Tensor, "run kv_head token head_width"],
        value: Float[Tensor, "run kv_head token head_width"],
        keys: Float[Tensor, "run_prompt kv_head key head_width"],
        values: Float[Tensor, "run_prompt kv_head key head_width"],
    ) -> Float[Tensor, "run head row head_width"]:
        """What the prompts' tokens see. `keys` and `values` are those of whole prompts, which others look at too."""
        rests = query[:, :, self.prefix : self.length].unflatten(2, (self.count, -1)).transpose(1, 2)
        mixed = attention(rests.flatten(0, 1), keys, values, self.bias)
        mixed = mixed.unflatten(0, (-1, self.count)).transpose(1, 2).flatten(2, 3)
        if not self.prefix:
            return mixed
        first = attention(*(part[:, :, : self.prefix] for part in (query, key, value)))
        return torch.cat([first, mixed], dim=2)

    def ends(self, hidden: Float[Tensor, "run token width"]) -> Float[Tensor, "run prompt width"]:
        """What stands at the last token of each prompt."""
        return hidden.gather(1, self.last[..., None].expand(-1, -1, hidden.shape[-1]))


@dataclass(frozen=True)
class Ragged:
    """Prompts, and behind them in the same row the tokens of all responses."""

    ids: Int[Tensor, "run one token"]
    positions: Int[Tensor, "run one token"]
    prompts: SharedPrompts
    copies: int
    """Responses to each prompt."""
    packing: Packing
    """Of the responses."""
    bias: Float[Tensor, "response one time key"]
    """Added to the scores of a response with its prompt's places and its own."""

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
        shared = SharedPrompts.over(prompts, lengths, dtype)
        time = round_up(responses.shape[-1])
        responses, mask = (F.pad(part, (0, time - part.shape[-1])) for part in (responses, mask))
        packing = Packing.over(mask.flatten(1))
        places = lengths.repeat_interleave(copies, dim=1)[..., None] + torch.arange(time, device=lengths.device)
        return cls(
            torch.cat([shared.ids, packing.pack(responses.flatten(1))], dim=1)[:, None],
            torch.cat([shared.positions, packing.pack(places.flatten(1))], dim=1)[:, None],
            shared,
            copies,
            packing,
            response_bias(lengths.flatten(), shared.prefix + shared.rest, copies, time, dtype),
        )

    def attend(
        self,
        query: Float[Tensor, "run head token head_width"],
        key: Float[Tensor, "run kv_head token head_width"],
        value: Float[Tensor, "run kv_head token head_width"],
    ) -> Float[Tensor, "run head token head_width"]:
        """Prompts look at themselves, responses at their prompt and themselves."""
        keys, values = self.prompts.keys(key), self.prompts.keys(value)
        of_prompts = self.prompts.attend(query, key, value, keys, values)
        keys, values = (
            torch.cat([prompt.repeat_interleave(self.copies, dim=0), self._placed(own)], dim=2)
            for prompt, own in ((keys, key), (values, value))
        )
        of_responses = attention(self._placed(query), keys, values, self.bias)
        places = of_responses.transpose(1, 2).unflatten(0, (len(query), -1)).flatten(1, 2)
        return torch.cat([of_prompts, self.packing.pack(places).transpose(1, 2)], dim=2)

    def predicting(self, hidden: Float[Tensor, "run token width"]) -> Float[Tensor, "run batch time width"]:
        """The states that predict the tokens of the responses: the prompt's last, then those of the tokens before."""
        last = self.prompts.ends(hidden).repeat_interleave(self.copies, dim=1)
        own = self.packing.unpack(hidden[:, self.prompts.length :]).unflatten(1, (last.shape[1], -1))
        return torch.cat([last[:, :, None], own[:, :, :-1]], dim=2)

    def _placed(
        self, part: Float[Tensor, "run any_head token head_width"]
    ) -> Float[Tensor, "response any_head time head_width"]:
        """The responses' tokens, each response in a row of its own."""
        own = self.packing.unpack(part[:, :, self.prompts.length :].transpose(1, 2))
        return own.unflatten(1, (self.prompts.count * self.copies, -1)).flatten(0, 1).transpose(1, 2)


def shared_prefix(prompts: Int[Tensor, "run prompt prompt_time"], lengths: Int[Tensor, "run prompt"]) -> int:
    """How many tokens all prompts of a run begin with, in the run that has the fewest of them, less those that no kernel wants.
    Each prompt keeps one token of its own."""
    same = (prompts == prompts[:, :1]).all(dim=1).long().cumprod(dim=-1).sum(dim=-1)
    shared = torch.minimum(same.min(), lengths.min() - 1)
    return int(shared) // 8 * 8
