"""Checks of rewards and rollouts that TRL would fail on later, or silently accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor


def refuse_infinite(rewards: Float[Tensor, "batch function"], names: list[str]) -> None:
    """Refuse infinite rewards: they make every advantage of their group NaN."""
    infinite = rewards.isinf().nonzero()
    if len(infinite):
        row, column = infinite[0].tolist()
        raise ValueError(
            f"rewards: {names[column]!r} gave {rewards[row, column].item()} for response {row} of the "
            "batch; give a finite number, or None for a response that cannot be scored"
        )


def refusing_empty(rollout_func: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Wrap a rollout_func to refuse empty completions, with their index: TRL fails on them without it."""

    def checked(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        output = rollout_func(prompts, trainer)
        for number, tokens in enumerate(output.get("completion_ids", [])):
            if not len(tokens):
                raise ValueError(
                    f"rollout_func gave no token for response {number}: give at least the end-of-sequence token"
                )
        return output

    return checked
