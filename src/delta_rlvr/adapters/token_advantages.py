"""Advantages per token for a GRPO trainer of TRL's, in the two ways in which its loss may take them. Nothing here imports TRL.

`GRPOTrainer._compute_loss` of TRL 0.29 to 1.16 takes advantages of shape (B, T) as they are. That of 0.24 makes a column of them
whatever they are, and no code of TRL's own uses (B, T) any more. So there is a second way: the step from (B,) to (B, 1) gives (B, T).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

_TAKEN = "advantages.dim() == 1"


@cache
def takes_token_advantages(compute_loss: Callable[..., Any]) -> bool:
    """Whether a trainer's `_compute_loss` takes advantages of shape (B, T): it then asks for their shape before it makes a column."""
    return _TAKEN in inspect.getsource(compute_loss)


class TokenAdvantages(Tensor):
    """Advantages [batch, time] where a column [batch, 1] is about to be made of them: the column is they themselves."""

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        plain = [one.as_subclass(Tensor) if isinstance(one, cls) else one for one in args]
        if function in (Tensor.unsqueeze, torch.unsqueeze):
            return plain[0]
        if function is Tensor.__getitem__ and plain[1] == (slice(None), None):
            return plain[0]
        return function(*plain, **(kwargs or {}))


def for_loss(advantages: Tensor, compute_loss: Callable[..., Any]) -> Tensor:
    """The advantages as this loss takes them."""
    if advantages.dim() == 1 or takes_token_advantages(inspect.unwrap(getattr(compute_loss, "__func__", compute_loss))):
        return advantages
    return advantages.as_subclass(TokenAdvantages)
