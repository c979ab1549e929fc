"""The `delta` block of a verl config, read and checked before any worker starts. This file does not import verl."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from delta_rlvr.adapters.engines import VERL_FSDP2, check_engine
from delta_rlvr.credit import RowStore
from delta_rlvr.hints import did_you_mean
from delta_rlvr.objectives import Method, get_method

BLOCK = "delta"
"""The block's name in a verl config."""
MODE = "delta_sync"
"""The V1 trainer's mode in which workers keep hidden states."""
WEIGHTS = "delta_weights"
"""The field of a batch with the token weights, from the solve to the update."""
DETAIL = {name: f"delta_{name}" for name in ("alpha", "margin", "margin_initial")}
"""Further arrays per token and their fields, at steps whose rollouts are written."""
REWARDS = ("token_level_rewards", "rm_scores")
"""The fields of a batch with its rewards: the first includes verl's KL penalty, if there is one; the second has only the graders'."""


class SettingsError(ValueError):
    """The settings are unknown, impossible or contradictory; the launch stops."""


@dataclass(frozen=True)
class VerlSettings:
    """The settings of the `delta` block."""

    method: Method
    """The `Method` of the spec in `delta.method`."""
    store_device_gb: float | None = None
    """Memory for hidden states on the accelerator, in GB per rank (null: half of what is free when the pass begins)."""
    store_host_gb: float | None = None
    """Pinned host memory for hidden states, in GB per rank (null: half of what is free, divided by the ranks of the node)."""
    run_folder: str | None = None
    """The run folder to write, for `delta-rlvr report` (null: none)."""
    rollouts_every: int = 10
    """Steps between those whose rollouts go into the run folder (0: none)."""
    rollout_groups: int = 8
    """Prompts per step whose rollouts are written (0: all)."""
    stop_if_not_finite: bool = True
    """Stop when loss or gradient norm is NaN or infinite."""

    def __post_init__(self) -> None:
        for name, kinds, wanted in (
            ("store_device_gb", (int, float, type(None)), "a size in GB, or null to decide by free memory"),
            ("store_host_gb", (int, float, type(None)), "a size in GB, or null to decide by free memory"),
            ("rollouts_every", (int,), "a whole number, 0 or more"),
            ("rollout_groups", (int,), "a whole number, 0 or more"),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds) or (value or 0) < 0:
                raise SettingsError(f"delta.{name}={value!r}: give {wanted}")
        if not isinstance(self.stop_if_not_finite, bool):
            raise SettingsError(f"delta.stop_if_not_finite={self.stop_if_not_finite!r}: give true or false")
        if self.run_folder is not None and (not isinstance(self.run_folder, str) or not self.run_folder):
            raise SettingsError(f"delta.run_folder={self.run_folder!r}: give a path, or null for none")

    @property
    def weighs(self) -> bool:
        """Whether the method has token weights, solved for once per rollout batch."""
        return not self.method.rule.constant

    @property
    def on_worker(self) -> bool:
        """Whether the actor's worker takes part: it keeps hidden states, or its loss reweighs tokens. Otherwise the controller solves
        for the weights, from log-probs, entropies, tokens and groups."""
        return self.method.rule.stores is not None or self.method.surrogate.reweighs

    def store(self, ranks_on_node: int) -> RowStore:
        """Return the store of one rank."""
        sizes = self.store_device_gb, self.store_host_gb
        device, host = (None if size is None else math.floor(size * 1e9) for size in sizes)
        return RowStore(device_bytes=device, host_bytes=host, ranks_on_node=ranks_on_node)


def read_settings(block: Mapping[str, Any] | None) -> VerlSettings:
    """Return the settings of a `delta` block; errors name the wrong key and what to do."""
    given = dict(block or {})
    known = [field.name for field in fields(VerlSettings)]
    spec = given.pop("method", None)
    for key in given:
        if key not in known:
            raise SettingsError(
                f"delta.{key} is unknown{did_you_mean(key, known)} (there are: {', '.join(known)}). Settings of a method follow its "
                f"name: \"+delta.method='{spec or 'delta'}?{key}={given[key]}'\""
            )
    if not isinstance(spec, str):
        raise SettingsError("delta.method is missing: name the method, such as +delta.method=delta")
    try:
        method = get_method(spec)
        check_engine(method, VERL_FSDP2)  # verl gives no more than this; `checks` knows the rest of the config
    except (ValueError, TypeError) as error:
        raise SettingsError(f"delta.method: {error}") from error
    return VerlSettings(method=method, **given)
