"""Detection of numbers that are not finite in training and generation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class NotFinite(FloatingPointError):
    """Loss, gradient, weights or probabilities are NaN or infinite, so that the policy is lost."""

    def __init__(self, what: str, step: int | None = None):
        """`step`: the step of the training, if there is one."""
        advice = "; training stopped there. Lower the learning rate, or look at the rewards and the KL term"
        super().__init__(f"{what} not finite" if step is None else f"step {step}: {what} not finite{advice}")
        self.step = step


def broken(tensors: Iterable[Tensor], device: torch.device) -> Tensor:
    """Return whether any number is NaN or infinite, as a tensor on `device`. Of sharded tensors only the local part is checked."""
    parts = [getattr(one.detach(), "_local_tensor", one.detach()) for one in tensors]
    parts = [one for one in parts if one.is_floating_point() and one.numel()]
    if not parts:
        return torch.zeros((), dtype=torch.bool, device=device)
    largest = torch._foreach_norm(parts, ord=float("inf"))  # a sum could overflow
    return ~torch.stack([one.to(device, torch.float32) for one in largest]).isfinite().all()


@contextmanager
def sampled(step: int | None = None) -> Iterator[None]:
    """Raise `NotFinite` in the block instead of torch.multinomial's error for logits that are NaN."""
    try:
        yield
    except RuntimeError as error:
        # On an accelerator the check is a kernel's assertion without a message.
        if "probability tensor contains" in str(error) or "device-side assert" in str(error):
            raise NotFinite("the policy's probabilities are", step) from error
        raise
