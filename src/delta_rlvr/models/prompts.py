"""A prompt as a model reads it: text as it is, messages through the chat template; and the room it leaves for a response."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

Messages = Sequence[dict[str, str]]
_LOOKED_AT = 64  # of the longest texts, the one with the most tokens is the longest prompt


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


class Room(NamedTuple):
    """What a model's context leaves, in tokens."""

    context: int
    prompt: int
    """Of the longest prompt."""

    @property
    def left(self) -> int:
        return self.context - self.prompt


def room_needed(config: Any, tokenizer: Any, prompts: Iterable[str | Messages], limit: int) -> Room | None:
    """The room for responses where `limit` tokens do not fit; None where they do, or the model has no such bound."""
    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    if context is None:
        return None
    longest = sorted(prompts, key=lambda one: len(prompt_text(tokenizer, one)))[-_LOOKED_AT:]
    # A token has a character at least: where the longest text fits as characters, nothing needs to be tokenized.
    if not longest or len(prompt_text(tokenizer, longest[-1])) + limit <= context:
        return None
    room = Room(context, max(len(encode_prompt(tokenizer, one)) for one in longest))
    return room if room.left < limit else None
