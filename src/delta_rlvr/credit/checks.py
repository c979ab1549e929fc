"""Bad input is refused here, with the argument and the first offending row named."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from delta_rlvr.credit.reduce import wide


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def require_shape(name: str, value: Tensor, shape: tuple[int, ...], meaning: str) -> None:
    """Refuse a tensor that does not fit the others."""
    require(isinstance(value, Tensor), f"{name}: a torch.Tensor is needed, not {type(value).__name__}")
    require(
        tuple(value.shape) == shape,
        f"{name}: shape {tuple(value.shape)} does not fit; {meaning} means {shape} here",
    )


def require_float(name: str, value: Tensor) -> None:
    require(
        value.is_floating_point(),
        f"{name}: floating-point values are needed, not {value.dtype}; convert them with .float()",
    )


def require_integer(name: str, value: Tensor) -> None:
    require(
        not value.is_floating_point() and not value.is_complex() and value.dtype != torch.bool,
        f"{name}: whole numbers are needed, not {value.dtype}",
    )


def require_mask(mask: Tensor) -> None:
    require(isinstance(mask, Tensor), f"mask: a torch.Tensor is needed, not {type(mask).__name__}")
    require(mask.dtype == torch.bool, f"mask: bool is needed, not {mask.dtype}; convert it with .bool()")


def extremes(values: Tensor) -> tuple[float, float]:
    """The smallest and the largest value, NaN if one is NaN: all that a check wants to know, for one wait for the device."""
    if not values.numel():
        return 0.0, 0.0
    low, high = torch.stack(values.aminmax()).tolist()
    return low, high


class Findings:
    """What checks want to know of several tensors, for one wait for the device."""

    def __init__(self) -> None:
        self._extremes: list[Tensor] = []
        self._judges: list[Callable[[float, float], None]] = []

    def ask(self, values: Tensor, judge: Callable[[float, float], None]) -> None:
        """`judge` gets the smallest and the largest value, NaN if one is NaN; it is not called where there is none."""
        if values.numel():
            self._extremes += values.to(wide(values.device)).aminmax()
            self._judges.append(judge)

    def settle(self) -> None:
        """Let every check judge, in the order in which they asked."""
        extremes = torch.stack(self._extremes).tolist() if self._extremes else []
        for number, judge in enumerate(self._judges):
            judge(extremes[2 * number], extremes[2 * number + 1])

    def problem(self) -> ValueError | None:
        """What the first check that refuses says; None if none does."""
        try:
            self.settle()
        except ValueError as error:
            return error
        return None


def finite(low: float, high: float) -> bool:
    """Whether no value between such extremes is NaN or infinite."""
    return math.isfinite(low) and math.isfinite(high)


def first_bad_row(bad: Tensor, row: Tensor) -> int:
    """The response that the first marked token belongs to."""
    return int(row[bad.nonzero()[0, 0]].item())


def not_finite(name: str, bad: Tensor, row: Tensor) -> ValueError:
    """What is wrong with a packed token array whose entries `bad` are not finite."""
    return ValueError(
        f"{name}: not finite (NaN or inf) at a valid token of row {first_bad_row(bad, row)}"
        f" ({int(bad.sum())} such tokens in all). Look for an overflow in the model's forward pass or in the rewards"
    )
