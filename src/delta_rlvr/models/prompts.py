"""A prompt as a model reads it: text as it is, messages through the tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Messages = Sequence[dict[str, str]]


def prompt_text(tokenizer: Any, prompt: str | Messages) -> str:
    """The prompt as one text."""
    if isinstance(prompt, str):
        return prompt
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            "the prompt is a chat, and the tokenizer has no chat template: leave chat out, or give plain text"
        )
    text: str = tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, tokenize=False)
    return text


def encode_prompt(tokenizer: Any, prompt: str | Messages) -> list[int]:
    """Its token ids. A template writes its own special tokens: adding more would double the first one."""
    text = prompt_text(tokenizer, prompt)
    return list(tokenizer(text, add_special_tokens=isinstance(prompt, str))["input_ids"])
