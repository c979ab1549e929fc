"""One decoder layer of many policies at once, and the ways its tokens attend to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

Attention: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries [row head time head_width], keys and values [row kv_head time head_width] -> [row head time head_width];
a row is one sequence of one run."""


@dataclass(frozen=True)
class Shape:
    """What the policies of a stack have in common."""

    layers: int
    heads: int
    kv_heads: int
    head_width: int
    rope_theta: float
    norm_eps: float
    qk_norm: bool
    """Queries and keys are normalised head by head, as in Qwen3."""
    qkv_bias: bool
    """Queries, keys and values have a bias, as in Qwen2."""
    tied: bool
    """The embedding is the head too."""
    padding_id: int | None
    """The embedding of this token gets no gradient (torch.nn.Embedding's padding_idx)."""

    def inverse_frequencies(self, device: torch.device) -> Float[Tensor, " half_head_width"]:
        """Of the rotary positions."""
        exponents = torch.arange(0, self.head_width, 2, device=device).float() / self.head_width
        return 1.0 / self.rope_theta**exponents


class StackedLayer(nn.Module):
    """One decoder layer of every run. Matrices are [run in out], so that their gradients come out of a product as they are."""

    input_norm: nn.Parameter
    qkv: nn.Parameter
    qkv_bias: nn.Parameter
    out: nn.Parameter
    q_norm: nn.Parameter
    k_norm: nn.Parameter
    mlp_norm: nn.Parameter
    gate_up: nn.Parameter
    down: nn.Parameter

    def __init__(self, shape: Shape, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.shape = shape
        for name, weight in weights.items():
            self.register_parameter(name, as_parameter(weight))

    def forward(
        self,
        stream: Float[Tensor, "run batch time width"],
        rotation: tuple[Tensor, Tensor],
        attend: Attention,
        dtype: torch.dtype,
    ) -> Float[Tensor, "run batch time width"]:
        shape, (runs, batch, time, _) = self.shape, stream.shape
        rotated = shape.heads + shape.kv_heads
        normed = rms_norm(stream, self.input_norm, shape.norm_eps).to(dtype)
        bias = self.qkv_bias if shape.qkv_bias else None
        parts = _product(normed, self.qkv, bias).unflatten(-1, (-1, shape.head_width))
        # Queries and keys go through the norm and the rotation together: half the launches.
        query_key, value = parts[..., :rotated, :].float(), parts[..., rotated:, :]
        if shape.qk_norm:
            query_key = rms_norm(query_key, self._query_key_norm(), shape.norm_eps)
        query_key = _rotate(query_key, rotation).to(dtype)
        query, key, value = (
            part.flatten(0, 1).transpose(1, 2)
            for part in (query_key[..., : shape.heads, :], query_key[..., shape.heads :, :], value)
        )
        mixed = attend(query, key, value).transpose(1, 2).reshape(runs, batch, time, -1)
        stream = stream + _product(mixed, self.out)
        normed = rms_norm(stream, self.mlp_norm, shape.norm_eps).to(dtype)
        gate, up = _product(normed, self.gate_up).chunk(2, dim=-1)
        return stream + _product(F.silu(gate) * up, self.down)

    def _query_key_norm(self) -> Float[Tensor, "run head head_width"]:
        query = self.q_norm[:, None].expand(-1, self.shape.heads, -1)
        key = self.k_norm[:, None].expand(-1, self.shape.kv_heads, -1)
        return torch.cat([query, key], dim=1)


def attention(
    query: Float[Tensor, "row head time head_width"],
    key: Float[Tensor, "row kv_head key head_width"],
    value: Float[Tensor, "row kv_head key head_width"],
    bias: Float[Tensor, "some_rows one time key"] | None = None,
) -> Float[Tensor, "row head time head_width"]:
    """With the bias added to the scores; without one, each token attends to itself and to those before it."""
    key, value = for_all_heads(query, key, value)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, is_causal=bias is None)


@dataclass(frozen=True)
class SharedPromptAttention:
    """For rows that hold a prompt and then several responses to it. A response attends to the prompt and to itself."""

    prompt: int
    """Places of the prompt, padding after it included."""
    copies: int
    """Responses to the prompt."""
    bias: Float[Tensor, "response one time key"]
    """Added to the scores of a response's tokens with the prompt's places and its own: 0, or -inf where it must not look."""

    def __call__(
        self,
        query: Float[Tensor, "row head time head_width"],
        key: Float[Tensor, "row kv_head time head_width"],
        value: Float[Tensor, "row kv_head time head_width"],
    ) -> Float[Tensor, "row head time head_width"]:
        key, value = for_all_heads(query, key, value)
        first = F.scaled_dot_product_attention(
            query[:, :, : self.prompt], key[:, :, : self.prompt], value[:, :, : self.prompt], is_causal=True
        )
        then = F.scaled_dot_product_attention(
            self._of_responses(query), self._seen(key), self._seen(value), attn_mask=self.bias
        )
        then = then.unflatten(0, (-1, self.copies)).transpose(1, 2).flatten(2, 3)
        return torch.cat([first, then], dim=2)

    def _of_responses(self, part: Tensor) -> Float[Tensor, "response head time head_width"]:
        return part[:, :, self.prompt :].unflatten(2, (self.copies, -1)).transpose(1, 2).flatten(0, 1)

    def _seen(self, part: Tensor) -> Float[Tensor, "response head key head_width"]:
        """The prompt's places, then the response's own."""
        of_prompt = part[:, :, : self.prompt].repeat_interleave(self.copies, dim=0)
        return torch.cat([of_prompt, self._of_responses(part)], dim=2)


def response_bias(
    lengths: Int[Tensor, " row"], prompt: int, copies: int, time: int, dtype: torch.dtype
) -> Float[Tensor, "response one time key"]:
    """What a response of `time` places may look at: the tokens of its prompt, of these `lengths` in `prompt` places, and its own up to
    the one that looks."""
    place = torch.arange(prompt + time, device=lengths.device)
    in_prompt = place < lengths[:, None, None]
    in_response = (place >= prompt) & (place <= place[prompt:, None])
    return as_bias((in_prompt | in_response).repeat_interleave(copies, dim=0)[:, None], dtype)


def as_bias(seen: Bool[Tensor, "..."], dtype: torch.dtype) -> Float[Tensor, "..."]:
    """To be added to attention scores: 0 where a token is seen, else -inf."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)


def round_up(number: int, multiple: int = 8) -> int:
    """To a multiple; kernels of attention take a bias as it is where its rows are a multiple of 8 long."""
    return -(-number // multiple) * multiple


def for_all_heads(query: Tensor, *shared: Tensor) -> list[Tensor]:
    """Keys and values, one for each head of the query."""
    # Repeated by hand: with enable_gqa, float32 on CUDA would fall back to the kernel that keeps all scores.
    return [part.repeat_interleave(query.shape[1] // part.shape[1], dim=1) for part in shared]


def as_parameter(weight: Tensor) -> nn.Parameter:
    return weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight)


def _product(
    rows: Float[Tensor, "run batch time inputs"],
    weight: Float[Tensor, "run inputs outputs"],
    bias: Float[Tensor, "run outputs"] | None = None,
) -> Float[Tensor, "run batch time outputs"]:
    """One batched product over runs."""
    flat, weight = rows.flatten(1, 2), weight.to(rows.dtype)
    if bias is None:
        product = torch.bmm(flat, weight)
    else:
        product = torch.baddbmm(bias[:, None].to(rows.dtype), flat, weight)
    return product.unflatten(1, rows.shape[1:3])


def rms_norm(values: Tensor, weight: Tensor, eps: float) -> Tensor:
    """In float32. `weight` is [run ... width]; batch and time follow the run in `values`."""
    normed = F.rms_norm(values, values.shape[-1:], eps=eps)
    return normed * weight[:, None, None]


def _rotate(values: Float[Tensor, "run batch time head head_width"], rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions: the two halves of a head are the two coordinates. Rolled by half a head, the second stands
    before the first, and the sine carries the sign."""
    cosine, signed_sine = rotation
    return torch.addcmul(values * cosine, values.roll(values.shape[-1] // 2, dims=-1), signed_sine)
