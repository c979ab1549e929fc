"""Prompts as token ids (messages through the chat template), and the room that they leave for a response."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

Messages = Sequence[dict[str, str]]
_LONGEST_TEXTS = 64  # only these are tokenized to find the longest prompt


def prompt_text(tokenizer: Any, prompt: str | Messages) -> str:
    """Return the prompt as one text."""
    if isinstance(prompt, str):
        return prompt
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            "the prompt is a chat, and the tokenizer has no chat template: leave chat out, or give plain text"
        )
    text: str = tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, tokenize=False)
    return text


def encode_prompt(tokenizer: Any, prompt: str | Messages) -> list[int]:
    """Return the prompt's token ids. A template writes its own special tokens: adding more would double the first one."""
    text = prompt_text(tokenizer, prompt)
    return list(tokenizer(text, add_special_tokens=isinstance(prompt, str))["input_ids"])


class Room(NamedTuple):
    """The room for responses in a model's context, in tokens."""

    context: int
    prompt: int
    """The length of the longest prompt."""

    @property
    def left(self) -> int:
        return self.context - self.prompt


def room_needed(config: Any, tokenizer: Any, prompts: Iterable[str | Messages], limit: int) -> Room | None:
    """Return the room for responses if `limit` tokens do not fit; None if they do, or the model has no limit."""
    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    if context is None:
        return None
    longest = sorted(prompts, key=lambda one: len(prompt_text(tokenizer, one)))[-_LONGEST_TEXTS:]
    # A token has at least one character: if the longest text fits as characters, nothing needs to be tokenized.
    if not longest or len(prompt_text(tokenizer, longest[-1])) + limit <= context:
        return None
    room = Room(context, max(len(encode_prompt(tokenizer, one)) for one in longest))
    return room if room.left < limit else None
