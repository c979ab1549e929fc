"""What is known here of transformers' models: which of them can be stacked, and the names of their weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from delta_evidence.stack.layers import Shape

if TYPE_CHECKING:
    from transformers import PreTrainedModel


KINDS = ("Qwen3ForCausalLM", "Qwen2ForCausalLM", "LlamaForCausalLM")


def shape_of(model: PreTrainedModel) -> Shape:
    """The shape, or an error that says what of the model is not supported."""
    kind = type(model).__name__
    if kind not in KINDS:
        raise ValueError(f"model: {', '.join(KINDS[:-1])} or {KINDS[-1]} can be stacked, not {kind}")
    config = model.config
    if not hasattr(config, "rope_parameters"):
        raise ValueError("model: its settings have no rope_parameters; stacking needs transformers 5 or later")
    wrong = {
        "attention_bias": getattr(config, "attention_bias", False),
        "mlp_bias": getattr(config, "mlp_bias", False),
        "attention_dropout": getattr(config, "attention_dropout", 0.0) != 0,
        "a hidden_act other than silu": config.hidden_act != "silu",
        "sliding-window attention": "sliding_attention" in (getattr(config, "layer_types", None) or ()),
        "rope scaling": config.rope_parameters["rope_type"] != "default",
    }
    obstacles = [name for name, present in wrong.items() if present]
    if obstacles:
        raise ValueError(f"model: cannot be stacked, as it has {', '.join(obstacles)}")
    return Shape(
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_width=model.model.layers[0].self_attn.head_dim,
        rope_theta=config.rope_parameters["rope_theta"],
        norm_eps=config.rms_norm_eps,
        qk_norm=kind == "Qwen3ForCausalLM",
        qkv_bias=kind == "Qwen2ForCausalLM",
        tied=model.lm_head.weight is model.model.embed_tokens.weight,
        padding_id=model.model.embed_tokens.padding_idx,
    )


def layer_weights(model: PreTrainedModel, number: int) -> dict[str, Tensor]:
    """The weights of a layer under our names: matrices as [in out], those with the same input side by side."""
    return {
        name: _turned(torch.cat([part.detach() for part in parts]))
        for name, parts in _named_parts(model, number).items()
    }


def split_layer_weight(
    model: PreTrainedModel, number: int, name: str, weight: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """The model's weights that one of ours stands for, each with its part of it."""
    targets = _named_parts(model, number)[name]
    yield from zip(targets, _turned(weight).split([len(target) for target in targets]), strict=True)


def _turned(weight: Tensor) -> Tensor:
    """Matrices are [out in] in transformers and [in out] here; norms and biases are the same."""
    return weight.T if weight.dim() == 2 else weight


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
    if attention.q_proj.bias is not None:
        parts["qkv_bias"] = [attention.q_proj.bias, attention.k_proj.bias, attention.v_proj.bias]
    if hasattr(attention, "q_norm"):
        parts |= {"q_norm": [attention.q_norm.weight], "k_norm": [attention.k_norm.weight]}
    return parts
