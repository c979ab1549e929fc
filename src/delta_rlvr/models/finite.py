"""A policy that broke: numbers that are not finite, found where they first show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class NotFinite(FloatingPointError):
    """Loss, gradient, weights or probabilities are NaN or infinite: nothing can be learnt from here on."""

    def __init__(self, what: str, step: int | None = None):
        """`step`: the step of the training that it happened in."""
        where = "" if step is None else f"step {step}: "
        advice = (
            ""
            if step is None
            else "; training stopped there. Lower the learning rate, or look at the rewards and the KL term"
        )
        super().__init__(f"{where}{what} not finite{advice}")
        self.step = step


def broken(tensors: Iterable[Tensor], device: torch.device) -> Tensor:
    """Whether any number is NaN or infinite, as a tensor on `device`; of sharded tensors, what lies here is looked at."""
    parts = [getattr(one.detach(), "_local_tensor", one.detach()) for one in tensors]
    parts = [one for one in parts if one.is_floating_point() and one.numel()]
    if not parts:
        return torch.zeros((), dtype=torch.bool, device=device)
    largest = torch._foreach_norm(parts, ord=float("inf"))  # no sum, which could overflow by itself
    return ~torch.stack([one.to(device, torch.float32) for one in largest]).isfinite().all()


@contextmanager
def sampled(step: int | None = None) -> Iterator[None]:
    """Around generation: say in words what torch.multinomial says of a policy whose logits are NaN."""
    try:
        yield
    except RuntimeError as error:
        # On an accelerator the check is an assertion of the kernel, which does not name itself.
        if "probability tensor contains" in str(error) or "device-side assert" in str(error):
            raise NotFinite("the policy's probabilities are", step) from error
        raise
