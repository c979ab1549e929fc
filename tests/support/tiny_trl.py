"""A tiny model and task for GRPO trainers of any TRL: letters, and a reward for how often `a` is among them."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def tokenizer() -> PreTrainedTokenizerFast:
    words = {name: number for number, name in enumerate(["<pad>", "<eos>", *string.ascii_lowercase])}
    core = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<eos>",
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
    )


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=28,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )


def bits(trainer: Any) -> list[torch.Tensor]:
    return list(trainer.model.state_dict().values())


def share_of_a(completions: list[str], **_: Any) -> list[float]:
    return [text.count("a") / max(1, len(text)) for text in completions]


def train(kind: type, folder: Path, reward: Any = share_of_a, columns: Any = None, **settings: Any) -> Any:
    """A finished trainer of this kind. `columns`: what the data has beside its prompts."""
    from trl import GRPOConfig

    arguments = {
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 12,
        "max_steps": 3,
        "learning_rate": 1e-2,
        "beta": 0.0,
        "loss_type": "dapo",
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "seed": 0,
        **settings,
    }
    trainer = kind(
        model=model(),
        reward_funcs=reward,
        args=GRPOConfig(output_dir=str(folder), **arguments),
        train_dataset=Dataset.from_dict({"prompt": list(string.ascii_lowercase), **(columns or {})}),
        processing_class=tokenizer(),
    )
    trainer.train()
    return trainer
