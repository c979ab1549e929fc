"""Bad input is refused here, with the argument and the first offending row named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def check_declared(settings: Any) -> None:
    """Refuse a setting of another type than its field of the dataclass declares: choices, bool, int and finite floats."""
    hints = get_type_hints(type(settings))
    for one in fields(settings):
        value, hint = getattr(settings, one.name), hints[one.name]
        shown, choices = f"{one.name}={value!r}", get_args(hint)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if choices:
            require(value in choices, f"{shown}: choose one of {', '.join(map(repr, choices))}")
        elif hint is bool:
            require(isinstance(value, bool), f"{shown}: give True or False")
        elif hint is int:
            require(number and isinstance(value, int), f"{shown}: give a whole number")
        elif hint is float:
            require(number and math.isfinite(value), f"{shown}: give a finite number")


def check_intervals(settings: Any) -> None:
    """Refuse a setting outside of the interval that its field of the dataclass gives, as in "[0, 1)"."""
    for one in fields(settings):
        if interval := one.metadata.get("interval"):
            value = getattr(settings, one.name)
            low, high = map(float, interval[1:-1].split(","))
            kinds = int if one.type in (int, "int") else (int, float)
            number = isinstance(value, kinds) and not isinstance(value, bool)
            ends = (value == low and interval[0] == "[") or (value == high and interval[-1] == "]")
            wanted = "whole number" if kinds is int else "number"
            fits = number and (low < value < high or ends)
            require(fits, f"{one.name}={value!r}: give a {wanted} in {interval}")


def require_shape(name: str, value: Tensor, shape: tuple[int, ...], meaning: str) -> None:
    """Refuse a tensor that does not fit the others."""
    require(isinstance(value, Tensor), f"{name}: a torch.Tensor is needed, not {type(value).__name__}")
    require(
        tuple(value.shape) == shape, f"{name}: shape {tuple(value.shape)} does not fit; {meaning} means {shape} here"
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
        self._names: list[str] = []
        self._extremes: list[Tensor] = []

    def ask(self, **asked: Tensor) -> None:
        """Have the smallest and the largest of these values found out, NaN if one is NaN; values asked for under one name count as one.
        Nothing waits for the device."""
        values = {name: one for name, one in asked.items() if one.numel()}
        if values:
            self._names += values
            # Stacking makes one dtype of all, the widest.
            self._extremes.append(torch.stack([end for one in values.values() for end in _both(one)]))

    def copy(self) -> Findings:
        """Findings to which more can be added without changing these."""
        new = Findings()
        new._names, new._extremes = [*self._names], [*self._extremes]
        return new

    def settle(self) -> dict[str, tuple[float, float]]:
        """What was asked for, by name: the one wait. A name without any value is not there."""
        ends = torch.cat(self._extremes).tolist() if self._extremes else []
        known: dict[str, list[float]] = {}
        for name, low, high in zip(self._names, ends[::2], ends[1::2], strict=True):
            known.setdefault(name, []).extend((low, high))
        return {
            name: (math.nan, math.nan) if any(map(math.isnan, both)) else (min(both), max(both))
            for name, both in known.items()
        }


def _both(values: Tensor) -> Sequence[Tensor]:
    """The smallest and the largest value; a single one is both."""
    return values.aminmax() if values.dim() else (values, values)


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
