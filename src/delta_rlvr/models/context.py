"""How long a response may become: what the model's context leaves beside the longest prompt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from delta_rlvr.models.prompts import Messages, encode_prompt, prompt_text

_LOOKED_AT = 64  # of the longest texts, the one with the most tokens is the longest prompt


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
