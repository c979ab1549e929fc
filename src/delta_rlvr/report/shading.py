"""Weights of methods that the run did not show, from the rollouts that it kept: for rules that need no hidden states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from delta_rlvr.runs.layout import round_significant

GIVEN = {name: name for name in ("logps", "entropy", "decisive", "measured")}
GIVEN |= {"tokens": "ids", "groups": "group"}
"""What a rule may need of a kept rollout, and where it stands in its line."""


def check_shadings(methods: Sequence[str]) -> None:
    """Refuse methods whose weights cannot be had from kept rollouts."""
    if not methods:
        return  # a page without them does not wait for torch
    from delta_rlvr.credit.rule import check_needs
    from delta_rlvr.objectives import get_method

    for name in methods:
        check_needs(get_method(name).rho, GIVEN, "a run folder", f"--shade-by: {name}")


def shade_by(responses: Sequence[dict[str, Any]], methods: Sequence[str]) -> None:
    """Add the methods' weights to a step's responses. Their statistics run over these responses alone, not over the whole batch."""
    usable = [response for response in responses if response.get("tokens")]
    if not methods or not usable:
        return
    import torch

    from delta_rlvr.credit import CreditStream
    from delta_rlvr.objectives import get_method

    numbers: dict[Any, int] = {}
    groups = torch.tensor([numbers.setdefault(response.get("group"), len(numbers)) for response in usable])
    advantages = torch.tensor([response.get("advantage") or 0.0 for response in usable], dtype=torch.float64)
    lengths = torch.tensor([len(response["tokens"]) for response in usable])
    for name in methods:
        rule = get_method(name).rho
        arrays = {need: _packed(need, usable, name) for need in rule.needs if need != "groups"}
        stream = CreditStream(rule)
        stream.add(None, arrays.pop("logps", None), lengths=lengths, **arrays)
        weights = stream.solve(advantages, groups=groups).weights
        for response, row in zip(usable, weights.split(lengths.tolist()), strict=True):
            response.setdefault("other_weights", {})[name] = round_significant(row.tolist())


def _packed(need: str, responses: Sequence[Mapping[str, Any]], method: str) -> Any:
    """One array over all responses' tokens."""
    import torch

    kinds = {"tokens": torch.int64, "decisive": torch.bool}
    values: list[Any] = []
    for response in responses:
        column = response.get(GIVEN[need])
        if column is None or any(value is None for value in column):
            raise ValueError(f"--shade-by {method}: the run's rollouts have no {GIVEN[need]} for every token")
        values += column
    return torch.tensor(values, dtype=kinds.get(need, torch.float64))
