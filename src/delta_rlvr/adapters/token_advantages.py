"""Advantages per token for the loss of TRL's GRPO trainers. Nothing here imports TRL.

`GRPOTrainer._compute_loss` of TRL 0.29 to 1.16 accepts advantages of shape (B, T). That of 0.24 always unsqueezes them, from (B,) to
(B, 1), and newer versions may do so again, since TRL itself no longer uses (B, T). For these losses unsqueezing leaves (B, T) as it is.
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
    """Return whether a trainer's `_compute_loss` accepts advantages of shape (B, T): it then checks their shape first."""
    return _TAKEN in inspect.getsource(compute_loss)


class TokenAdvantages(Tensor):
    """Advantages [batch, time] that stay as they are where a loss makes a column [batch, 1] of its advantages."""

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
    """Return the advantages in the form that this loss accepts."""
    if advantages.dim() == 1 or takes_token_advantages(inspect.unwrap(getattr(compute_loss, "__func__", compute_loss))):
        return advantages
    return advantages.as_subclass(TokenAdvantages)
