"""Access to the Hugging Face hub without half a minute of retries where it cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any


@cache
def hub_answers() -> bool:
    """Return whether the hub can be reached."""
    import httpx
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        httpx.head(constants.ENDPOINT, timeout=5)
    except httpx.TransportError:
        return False
    return True


@contextmanager
def little_patience() -> Iterator[None]:
    """Use only the cache in this block if the hub does not answer."""
    from huggingface_hub import constants

    if hub_answers() or constants.HF_HUB_OFFLINE:
        yield
        return
    places: list[Any] = [constants]
    with suppress(ImportError):
        from datasets import config

        places.append(config)
    before = [place.HF_HUB_OFFLINE for place in places]
    for place in places:
        place.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for place, was in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = was


def reason(error: Exception) -> str:
    """Return the reason of a failed download in one line."""
    if not hub_answers():
        return "it is not in the cache, and huggingface.co does not answer"
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
