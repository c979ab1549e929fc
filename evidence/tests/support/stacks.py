"""Small models of every kind that can be stacked, stacks of several, and a pass of a stack over whole rows."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from delta_evidence.judging import Judge
from delta_evidence.rollouts import make_collector
from delta_evidence.stack.layers import attention
from delta_evidence.stack.model_weights import layer_weights
from delta_evidence.stack.policy import StackedPolicy
from delta_rlvr.models import load_policy

KINDS = {
    "llama": (LlamaForCausalLM, LlamaConfig),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config),
}


def small_model(kind, **options):
    """Two layers of 24 with three heads to each of two keys, random weights."""
    model, config = KINDS[kind]
    settings = {
        "vocab_size": 61,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "initializer_range": 0.3,
        "pad_token_id": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    }
    return model(config(**settings | options))


@torch.no_grad()
def stack_of(models, compute_dtype=torch.float32):
    """A stack with one run per model; all are of one shape."""
    policy = StackedPolicy.from_model(models[0], len(models), compute_dtype=compute_dtype)
    for run, model in enumerate(models):
        policy.embedding[run] = model.model.embed_tokens.weight
        policy.norm[run] = model.model.norm.weight
        policy.head[run] = model.lm_head.weight
        for number, layer in enumerate(policy.layers):
            for name, weight in layer_weights(model, number).items():
                getattr(layer, name)[run] = weight
    return policy


def row_hidden(policy, ids, mask):
    """The LM head's input over whole rows, each with its padding on either side; what stands at padding means nothing.

    Valid tokens are moved to the front of their row: causal attention then needs no mask, and a token's place is its position.
    """
    order = torch.argsort(~mask, dim=-1, stable=True)
    places = torch.arange(ids.shape[-1], device=ids.device)
    hidden = policy.run_layers(ids.gather(-1, order), places, [attention] * len(policy.layers))
    return hidden.gather(2, torch.argsort(order, dim=-1)[..., None].expand_as(hidden))


def bundled_collector(runs, judge=Judge, **settings):
    """Copies of the bundled policy, ready to be sampled from; with the model and its tokenizer."""
    model, tokenizer = load_policy("builtin")
    made = make_collector(model, tokenizer, runs=runs, one_line=False, judge=judge(tokenizer), **settings)
    return made, model, tokenizer
