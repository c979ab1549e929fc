"""Checks of arguments; their errors name the argument and the first bad row."""

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
    """Refuse a setting that does not have the type of its dataclass field: a choice, bool, int or finite float."""
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
    """Refuse a setting outside of the interval of its dataclass field, such as "[0, 1)"."""
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
    """Refuse a tensor of another shape. `meaning` names the axes, as in "[batch, time]"."""
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
    """Return the smallest and the largest value (NaN if one is NaN), with one wait for the device."""
    if not values.numel():
        return 0.0, 0.0
    low, high = torch.stack(values.aminmax()).tolist()
    return low, high


class Findings:
    """The extremes of several tensors, for checks that together wait for the device once."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._extremes: list[Tensor] = []

    def ask(self, **asked: Tensor) -> None:
        """Start to compute the extremes of these values (NaN if one is NaN), without a wait for the device.

        Values of the same name have common extremes.
        """
        values = {name: one for name, one in asked.items() if one.numel()}
        if values:
            self._names += values
            # Stacking converts all of them to the widest dtype.
            self._extremes.append(torch.stack([end for one in values.values() for end in _both(one)]))

    def copy(self) -> Findings:
        """Return a copy that can be extended."""
        new = Findings()
        new._names, new._extremes = [*self._names], [*self._extremes]
        return new

    def settle(self) -> dict[str, tuple[float, float]]:
        """Wait for the device and return the extremes by name. Names without values are left out."""
        ends = torch.cat(self._extremes).tolist() if self._extremes else []
        known: dict[str, list[float]] = {}
        for name, low, high in zip(self._names, ends[::2], ends[1::2], strict=True):
            known.setdefault(name, []).extend((low, high))
        return {
            name: (math.nan, math.nan) if any(map(math.isnan, both)) else (min(both), max(both))
            for name, both in known.items()
        }


def _both(values: Tensor) -> Sequence[Tensor]:
    """Return the smallest and the largest value; a scalar is both."""
    return values.aminmax() if values.dim() else (values, values)


def finite(low: float, high: float) -> bool:
    """Return whether values with these extremes are all finite."""
    return math.isfinite(low) and math.isfinite(high)


def first_bad_row(bad: Tensor, row: Tensor) -> int:
    """Return the response of the first token that is marked as bad."""
    return int(row[bad.nonzero()[0, 0]].item())


def not_finite(name: str, bad: Tensor, row: Tensor) -> ValueError:
    """Return the error for a packed token array that is not finite at `bad`."""
    return ValueError(
        f"{name}: not finite (NaN or inf) at a valid token of row {first_bad_row(bad, row)}"
        f" ({int(bad.sum())} such tokens in all). Look for an overflow in the model's forward pass or in the rewards"
    )
