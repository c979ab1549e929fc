"""Many policies of one shape, run side by side: every weight has a leading axis "run".

The runs of a study (seeds, methods) are small models that each leave most of a machine idle. Stacked, a linear layer of
all of them is one batched product. Nothing is shared between runs but the launch: outputs and gradients of run r depend
on `weight[r]` alone, and gradients of run r lie in `grad[r]`.

Weights are float32. Products are taken in `compute_dtype`; the residual stream, norms, rotations and softmax are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Of float32 logits held at once; the backward pass of a chunk takes about twice as much for a moment.
_LOGIT_BYTES = 1 << 29

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
    norm_eps: float
    qk_norm: bool
    """Queries and keys are normalised head by head, as in Qwen3."""
    tied: bool
    """The embedding is the head too."""
    padding_id: int | None
    """The embedding of this token gets no gradient (torch.nn.Embedding's padding_idx)."""


class StackedLayer(nn.Module):
    """One decoder layer of every run. Matrices are [run in out], so that their gradients come out of a product as they are."""

    input_norm: nn.Parameter
    qkv: nn.Parameter
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
            self.register_parameter(name, _parameter(weight))

    def forward(
        self,
        stream: Float[Tensor, "run batch time width"],
        rotation: tuple[Tensor, Tensor],
        attend: Attention,
        dtype: torch.dtype,
    ) -> Float[Tensor, "run batch time width"]:
        shape, (runs, batch, time, _) = self.shape, stream.shape
        rotated = shape.heads + shape.kv_heads
        normed = _rms_norm(stream, self.input_norm, shape.norm_eps).to(dtype)
        parts = _product(normed, self.qkv).unflatten(-1, (-1, shape.head_width))
        # Queries and keys go through the norm and the rotation together: half the launches.
        query_key, value = parts[..., :rotated, :].float(), parts[..., rotated:, :]
        if shape.qk_norm:
            query_key = _rms_norm(query_key, self._query_key_norm(), shape.norm_eps)
        query_key = _rotate(query_key, rotation).to(dtype)
        query, key, value = (
            part.flatten(0, 1).transpose(1, 2)
            for part in (query_key[..., : shape.heads, :], query_key[..., shape.heads :, :], value)
        )
        mixed = attend(query, key, value).transpose(1, 2).reshape(runs, batch, time, -1)
        stream = stream + _product(mixed, self.out)
        normed = _rms_norm(stream, self.mlp_norm, shape.norm_eps).to(dtype)
        gate, up = _product(normed, self.gate_up).chunk(2, dim=-1)
        return stream + _product(F.silu(gate) * up, self.down)

    def _query_key_norm(self) -> Float[Tensor, "run head head_width"]:
        return torch.cat(
            [
                self.q_norm[:, None].expand(-1, self.shape.heads, -1),
                self.k_norm[:, None].expand(-1, self.shape.kv_heads, -1),
            ],
            dim=1,
        )


class StackedPolicy(nn.Module):
    """The policies of several runs: Qwen3 or Llama without biases, with default rotary positions.

    Build one with `from_model` (every run starts from the same weights) or `from_models` (one run each).
    """

    embedding: nn.Parameter
    untied_head: nn.Parameter | None
    inverse_frequencies: Tensor

    def __init__(
        self,
        shape: Shape,
        compute_dtype: torch.dtype,
        *,
        embedding: Tensor,
        layers: Sequence[dict[str, Tensor]],
        norm: Tensor,
        head: Tensor | None,
        inverse_frequencies: Tensor,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.compute_dtype = compute_dtype
        self.embedding = _parameter(embedding)
        self.layers = nn.ModuleList(StackedLayer(shape, weights) for weights in layers)
        self.norm = _parameter(norm)
        self.register_parameter("untied_head", None if head is None else _parameter(head))
        self.register_buffer("inverse_frequencies", inverse_frequencies, persistent=False)

    @classmethod
    def from_model(
        cls, model: PreTrainedModel, runs: int, *, compute_dtype: torch.dtype = torch.float32
    ) -> StackedPolicy:
        """`runs` policies, each with the weights of `model`."""
        if runs < 1:
            raise ValueError(f"runs: at least one is needed, not {runs}")
        return cls.from_models([model] * runs, compute_dtype=compute_dtype)

    @classmethod
    def from_models(
        cls, models: Sequence[PreTrainedModel], *, compute_dtype: torch.dtype = torch.float32
    ) -> StackedPolicy:
        """One run a model; all of one shape."""
        if not models:
            raise ValueError("models: at least one is needed")
        if compute_dtype not in (torch.float32, torch.bfloat16):
            raise ValueError(f"compute_dtype: torch.float32 or torch.bfloat16, not {compute_dtype}")
        shape = _shape_of(models[0])
        for number, model in enumerate(models):
            if _shape_of(model) != shape or _sizes(model) != _sizes(models[0]):
                raise ValueError(
                    f"models: number {number} has another shape than number 0; stack those of one shape"
                )

        def stacked(weight_of: Callable[[PreTrainedModel], Tensor]) -> Tensor:
            return torch.stack([weight_of(model).detach().float() for model in models])

        def layer_weight(number: int, name: str) -> Tensor:
            return stacked(lambda model: _layer_weights(model, number)[name])

        return cls(
            shape,
            compute_dtype,
            embedding=stacked(lambda model: model.model.embed_tokens.weight),
            layers=[
                {name: layer_weight(number, name) for name in _layer_weights(models[0], number)}
                for number in range(shape.layers)
            ],
            norm=stacked(lambda model: model.model.norm.weight),
            head=None if shape.tied else stacked(lambda model: model.lm_head.weight),
            inverse_frequencies=models[0].model.rotary_emb.inv_freq.detach().clone().float(),
        )

    @property
    def runs(self) -> int:
        return self.embedding.shape[0]

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def head(self) -> Float[Tensor, "run vocab width"]:
        """The LM head's weights; those of the embedding where the two are tied."""
        return self.embedding if self.untied_head is None else self.untied_head

    def hidden(
        self, ids: Int[Tensor, "run batch time"], mask: Bool[Tensor, "run batch time"]
    ) -> Float[Tensor, "run batch time width"]:
        """The LM head's input. `mask` is False at padding, on either side; what stands there is finite and means nothing.

        Valid tokens are moved to the front of their row, in order. Causal attention then needs no mask, which keeps the
        fast kernels, and a token's place is its position: the count of valid tokens before it.
        """
        _require_same_shape("mask", mask, ids)
        packed, order = pack(ids, mask)
        places = torch.arange(ids.shape[-1], device=ids.device)
        hidden = self.run_layers(packed, places, [causal_attention] * len(self.layers))
        back = torch.argsort(order, dim=-1)
        return hidden.gather(2, back[..., None].expand_as(hidden))

    def response_hidden(
        self,
        prompts: Int[Tensor, "run prompt prompt_time"],
        prompt_mask: Bool[Tensor, "run prompt prompt_time"],
        responses: Int[Tensor, "run batch time"],
        copies: int = 1,
    ) -> Float[Tensor, "run batch time width"]:
        """The LM head's input at the positions that predict the tokens of responses, which have padding on the right only.

        There are `copies` responses to each prompt, next to each other (batch = prompt x copies), as the sampler makes
        them. A prompt is read once for all of them: the same numbers and gradients as `hidden` of prompt and response
        in one row each, for a fraction of the work where prompts are long.
        """
        _require_same_shape("prompt_mask", prompt_mask, prompts)
        runs, count, _ = prompts.shape
        if responses.shape[:2] != (runs, count * copies):
            raise ValueError(
                f"responses: shape {tuple(responses.shape)} does not fit {runs} runs x {count} prompts x {copies} copies"
            )
        time = responses.shape[-1]
        lengths = prompt_mask.sum(dim=-1)
        # Kernels take the bias as it is where its rows are a multiple of 8 long.
        prompt = round_up(int(lengths.max()) + time, 8) - time
        packed = _resized(pack(prompts, prompt_mask)[0], prompt)
        rows = torch.cat([packed, responses.view(runs, count, copies * time)], dim=-1)
        places = torch.arange(prompt + time, device=rows.device)
        own = (lengths[..., None] + places[:time]).repeat(1, 1, copies)
        positions = torch.cat([places[:prompt].expand(runs, count, -1), own], dim=-1)
        seen = (
            places <= places[prompt:, None]
        )  # causal among the response's own; then without the prompt's padding
        seen = seen & ((places < lengths[..., None]) | (places >= prompt))[..., None, :]
        bias = torch.zeros(seen.shape, dtype=self.compute_dtype, device=rows.device).masked_fill_(
            ~seen, -torch.inf
        )
        bias = bias.flatten(0, 1).repeat_interleave(copies, dim=0)[:, None]
        attention = SharedPromptAttention(prompt, copies, bias.expand(-1, self.shape.heads, -1, -1))
        hidden = self.run_layers(rows, positions, [attention] * len(self.layers))
        last = hidden.gather(2, (lengths - 1)[..., None, None].expand(-1, -1, 1, hidden.shape[-1]))
        of_responses = hidden[:, :, prompt:].reshape(runs, count * copies, time, -1)
        return torch.cat([last.repeat_interleave(copies, dim=1), of_responses[:, :, :-1]], dim=2)

    def run_layers(
        self,
        ids: Int[Tensor, "run batch time"],
        positions: Int[Tensor, "*rows time"],
        attentions: Sequence[Attention],
    ) -> Float[Tensor, "run batch time width"]:
        """Embedding, layers (each with its attention) and final norm. `positions` is [time], or [run batch time]
        where rows differ."""
        angles = positions[..., None, None].float() * self.inverse_frequencies
        sine = angles.sin()
        # The sign of the half turn stands in the sine, see `_rotate`.
        rotation = torch.cat([angles, angles], dim=-1).cos(), torch.cat([-sine, sine], dim=-1)
        stream = self._embed(ids)
        for layer, attend in zip(self.layers, attentions, strict=True):
            stream = layer(stream, rotation, attend, self.compute_dtype)
        return _rms_norm(stream, self.norm, self.shape.norm_eps).to(self.compute_dtype)

    def _embed(self, ids: Int[Tensor, "run batch time"]) -> Float[Tensor, "run batch time width"]:
        runs, vocab, width = self.embedding.shape
        offsets = torch.arange(0, runs * vocab, vocab, device=ids.device)
        embedded = F.embedding(ids + offsets[:, None, None], self.embedding.view(runs * vocab, width))
        if self.shape.padding_id is None or not torch.is_grad_enabled():
            return embedded
        return torch.where((ids == self.shape.padding_id)[..., None], embedded.detach(), embedded)

    def logits(self, hidden: Float[Tensor, "run row width"]) -> Float[Tensor, "run row vocab"]:
        """In float32, of a product in the compute dtype."""
        return torch.bmm(hidden, self.head.to(hidden.dtype).transpose(1, 2)).float()

    def token_logps(
        self,
        hidden: Float[Tensor, "run batch time width"],
        tokens: Int[Tensor, "run batch time"],
        temperature: float = 1.0,
        entropy: bool = False,
    ) -> tuple[Float[Tensor, "run batch time"], Float[Tensor, "run batch time"] | None]:
        """Log-prob of each token at the position that predicts it and, if asked for, the (detached) entropy there.

        Logits are made in chunks. Where a gradient is wanted and there is more than one chunk, the backward pass
        makes them again: all of them would not fit for a vocabulary of 49,152.
        """
        if temperature <= 0:
            raise ValueError(f"temperature: above 0 is needed, not {temperature}")
        _require_same_shape("tokens", tokens, hidden[..., 0])
        rows = max(1, _LOGIT_BYTES // (4 * self.head.shape[0] * self.head.shape[1]))
        chunks = list(
            zip(hidden.flatten(1, 2).split(rows, 1), tokens.flatten(1, 2).split(rows, 1), strict=True)
        )
        # Without a gradient `checkpoint` would only warn; with one chunk there is nothing to save.
        again = len(chunks) > 1 and torch.is_grad_enabled()
        parts = [
            checkpoint(
                self._chunk_logps, *chunk, temperature, entropy, use_reentrant=False, preserve_rng_state=False
            )
            if again
            else self._chunk_logps(*chunk, temperature, entropy)
            for chunk in chunks
        ]
        logps, entropies = (
            torch.cat(of_chunks, dim=1).view(tokens.shape) for of_chunks in zip(*parts, strict=True)
        )
        return logps, entropies if entropy else None

    def _chunk_logps(
        self,
        hidden: Float[Tensor, "run row width"],
        tokens: Int[Tensor, "run row"],
        temperature: float,
        entropy: bool,
    ) -> tuple[Float[Tensor, "run row"], Float[Tensor, "run row"]]:
        logits = self.logits(hidden)
        if temperature != 1:
            logits = logits / temperature
        normalizer = logits.logsumexp(dim=-1)
        logps = logits.gather(-1, tokens[..., None])[..., 0] - normalizer
        if not entropy:
            return logps, torch.empty_like(logps)
        with torch.no_grad():
            # H = log Z - E[logit]
            expected = (logits - normalizer[..., None]).exp_().mul_(logits).sum(dim=-1)
            return logps, normalizer - expected

    @torch.no_grad()
    def compute_copy(self) -> StackedPolicy:
        """The same policies with their matrices cast to the compute dtype once, for many forward passes without a
        gradient. What needs no cast is this policy's own; `refresh` brings the rest up to date."""
        return StackedPolicy(
            replace(self.shape, tied=False),
            self.compute_dtype,
            embedding=self.embedding,
            layers=[
                {name: self._cast(weight) for name, weight in layer.named_parameters()}
                for layer in self.layers
            ],
            norm=self.norm,
            head=self._cast(self.head),
            inverse_frequencies=self.inverse_frequencies,
        )

    def _cast(self, weight: Tensor) -> Tensor:
        return weight.to(self.compute_dtype) if weight.dim() == 3 else weight

    @torch.no_grad()
    def refresh(self, source: StackedPolicy) -> None:
        """Bring a `compute_copy` up to date with the policy it was made from, in place."""
        pairs = [(self.head, source.head)]
        for layer, of_source in zip(self.layers, source.layers, strict=True):
            pairs += zip(layer.parameters(), of_source.parameters(), strict=True)
        stale = [(copy, weight) for copy, weight in pairs if copy.dtype != weight.dtype]
        if stale:
            torch._foreach_copy_([copy for copy, _ in stale], [weight for _, weight in stale])

    @torch.no_grad()
    def load_into(self, run: int, model: PreTrainedModel) -> None:
        """Copy the weights of one run into a transformers model of the same shape."""
        if (
            _shape_of(model) != self.shape
            or model.model.embed_tokens.weight.shape != self.embedding.shape[1:]
        ):
            raise ValueError("model: another shape than the policies of the stack")
        model.model.embed_tokens.weight.copy_(self.embedding[run])
        model.model.norm.weight.copy_(self.norm[run])
        if self.untied_head is not None:
            model.lm_head.weight.copy_(self.untied_head[run])
        for number, layer in enumerate(self.layers):
            for name, weight in layer.named_parameters():
                for target, part in _split_layer_weight(model, number, name, weight[run]):
                    target.copy_(part)


def pack(
    ids: Int[Tensor, "run batch time"], mask: Bool[Tensor, "run batch time"]
) -> tuple[Int[Tensor, "run batch time"], Int[Tensor, "run batch time"]]:
    """Valid tokens moved to the front of their row, in order; and where each came from."""
    order = torch.argsort(~mask, dim=-1, stable=True)
    return ids.gather(-1, order), order


def causal_attention(
    query: Float[Tensor, "row head time head_width"],
    key: Float[Tensor, "row kv_head time head_width"],
    value: Float[Tensor, "row kv_head time head_width"],
) -> Float[Tensor, "row head time head_width"]:
    """Each token attends to itself and to those before it."""
    key, value = _for_all_heads(query, key, value)
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


@dataclass(frozen=True)
class SharedPromptAttention:
    """For rows that hold a prompt and then several responses to it. A response attends to the prompt and to itself."""

    prompt: int
    """Places of the prompt, padding after it included."""
    copies: int
    bias: Float[Tensor, "row one time key"]
    """Added to the scores of a response's tokens with the prompt's places and its own: 0, or -inf where it must not look."""

    def __call__(
        self,
        query: Float[Tensor, "row head time head_width"],
        key: Float[Tensor, "row kv_head time head_width"],
        value: Float[Tensor, "row kv_head time head_width"],
    ) -> Float[Tensor, "row head time head_width"]:
        key, value = _for_all_heads(query, key, value)
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


def _for_all_heads(query: Tensor, *shared: Tensor) -> list[Tensor]:
    """Keys and values, one for each head of the query."""
    # Repeated by hand: with enable_gqa, float32 on CUDA would fall back to the kernel that keeps all scores.
    return [part.repeat_interleave(query.shape[1] // part.shape[1], dim=1) for part in shared]


@torch.no_grad()
def clip_gradients(policy: StackedPolicy, max_norm: float) -> Float[Tensor, " run"]:
    """Scale each run's gradient down to `max_norm` as torch.nn.utils.clip_grad_norm_ would do for that run alone;
    the norms before."""
    gradients = [parameter.grad for parameter in policy.parameters() if parameter.grad is not None]
    if not gradients:
        raise ValueError("policy: no gradients to clip; call backward() first")
    by_parameter = torch.stack(
        [torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients]
    )
    norms = torch.linalg.vector_norm(by_parameter, dim=0)
    scales = (max_norm / (norms + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(scales.view(-1, *[1] * (gradient.dim() - 1)))
    return norms


def _parameter(weight: Tensor) -> nn.Parameter:
    return weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight)


def _product(
    rows: Float[Tensor, "run batch time inputs"], weight: Float[Tensor, "run inputs outputs"]
) -> Tensor:
    """One batched product over runs."""
    return torch.bmm(rows.flatten(1, 2), weight.to(rows.dtype)).unflatten(1, rows.shape[1:3])


def _rms_norm(values: Tensor, weight: Tensor, eps: float) -> Tensor:
    """In float32. `weight` is [run ... width]; batch and time follow the run in `values`."""
    normed = F.rms_norm(values, values.shape[-1:], eps=eps)
    return normed * weight[:, None, None]


def _rotate(
    values: Float[Tensor, "run batch time head head_width"], rotation: tuple[Tensor, Tensor]
) -> Tensor:
    """Rotary positions: the two halves of a head are the two coordinates. Rolled by half a head, the second stands
    before the first, and the sine carries the sign."""
    cosine, signed_sine = rotation
    return torch.addcmul(values * cosine, values.roll(values.shape[-1] // 2, dims=-1), signed_sine)


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _resized(ids: Int[Tensor, "run batch time"], time: int) -> Int[Tensor, "run batch other"]:
    """Cut at the end, or filled up with some token; nothing valid stands there."""
    return F.pad(ids, (0, time - ids.shape[-1]))


def _require_same_shape(name: str, value: Tensor, other: Tensor) -> None:
    if value.shape != other.shape:
        raise ValueError(
            f"{name}: shape {tuple(value.shape)} does not fit; [run batch time] is {tuple(other.shape)} here"
        )


# What follows knows transformers' models: their settings and the names of their weights.


def _shape_of(model: PreTrainedModel) -> Shape:
    """The shape, or an error that says what of the model is not supported."""
    kind = type(model).__name__
    if kind not in ("Qwen3ForCausalLM", "LlamaForCausalLM"):
        raise ValueError(f"model: Qwen3ForCausalLM or LlamaForCausalLM can be stacked, not {kind}")
    config = model.config
    wrong = {
        "attention_bias": getattr(config, "attention_bias", False),
        "mlp_bias": getattr(config, "mlp_bias", False),
        "attention_dropout": getattr(config, "attention_dropout", 0.0) != 0,
        "a hidden_act other than silu": config.hidden_act != "silu",
        "sliding-window attention": "sliding_attention" in (getattr(config, "layer_types", None) or ()),
        "rope scaling": model.model.rotary_emb.rope_type != "default",
    }
    found = [name for name, present in wrong.items() if present]
    if found:
        raise ValueError(f"model: cannot be stacked, as it has {', '.join(found)}")
    return Shape(
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_width=model.model.layers[0].self_attn.head_dim,
        norm_eps=config.rms_norm_eps,
        qk_norm=kind == "Qwen3ForCausalLM",
        tied=model.lm_head.weight is model.model.embed_tokens.weight,
        padding_id=model.model.embed_tokens.padding_idx,
    )


def _sizes(model: PreTrainedModel) -> list[torch.Size]:
    return [weight.shape for weight in model.parameters()]


def _layer_weights(model: PreTrainedModel, number: int) -> dict[str, Tensor]:
    """The weights of a layer under our names: matrices as [in out], those with the same input side by side."""
    return {
        name: torch.cat([part.detach() for part in parts]).T if parts[0].dim() == 2 else parts[0].detach()
        for name, parts in _named_parts(model, number).items()
    }


def _split_layer_weight(
    model: PreTrainedModel, number: int, name: str, weight: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """The model's weights that one of ours stands for, each with its part of it."""
    targets = _named_parts(model, number)[name]
    whole = weight.T if weight.dim() == 2 else weight
    yield from zip(targets, whole.split([len(target) for target in targets]), strict=True)


def _named_parts(model: PreTrainedModel, number: int) -> dict[str, list[Tensor]]:
    layer = model.model.layers[number]
    attention, mlp = layer.self_attn, layer.mlp
    parts = {
        "input_norm": [layer.input_layernorm.weight],
        "qkv": [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight],
        "out": [attention.o_proj.weight],
        "mlp_norm": [layer.post_attention_layernorm.weight],
        "gate_up": [mlp.gate_proj.weight, mlp.up_proj.weight],
        "down": [mlp.down_proj.weight],
    }
    if hasattr(attention, "q_norm"):
        parts |= {"q_norm": [attention.q_norm.weight], "k_norm": [attention.k_norm.weight]}
    return parts
