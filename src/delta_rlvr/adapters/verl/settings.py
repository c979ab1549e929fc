"""The `delta` block of a verl config: read, checked and resolved before any worker starts. No verl here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from delta_rlvr.credit import RowStore
from delta_rlvr.credit.rule import check_needs
from delta_rlvr.objectives import Method, get_method
from delta_rlvr.spelling import did_you_mean

BLOCK = "delta"
"""The block's name in a verl config."""
GIVEN = ("hidden", "head", "groups", "logps", "entropy", "tokens")
"""What a rule may need on verl."""

_GIB = 1 << 30


class SettingsError(ValueError):
    """The settings are unknown, impossible, or contradict each other: the launch stops here."""


@dataclass(frozen=True)
class VerlSettings:
    """What the `delta` block says."""

    method: Method
    """The method that `delta.method` spells, settings included: its rule, surrogate and average."""
    store_device_gib: float | None = None
    """Room for hidden states on the accelerator, per rank (null: half of what is free when the pass begins)."""
    store_host_gib: float | None = None
    """Room in pinned host memory, per rank (null: half of what is free, divided by the ranks of the node)."""
    run_folder: str | None = None
    """Write a run folder there, which `delta-rlvr report` reads (null: none)."""
    rollouts_every: int = 10
    """Steps between two rollout dumps into the run folder."""
    rollouts_prompts: int = 8
    """Prompts of a step that are dumped, with all their responses."""

    def __post_init__(self) -> None:
        for name in ("store_device_gib", "store_host_gib"):
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float) or value < 0
            ):
                raise SettingsError(
                    f"delta.{name}={value!r}: give a number of GiB, or null to decide by free memory"
                )
        for name in ("rollouts_every", "rollouts_prompts"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SettingsError(f"delta.{name}={value!r}: give a whole number of at least 1")
        if self.run_folder is not None and (not isinstance(self.run_folder, str) or not self.run_folder):
            raise SettingsError(f"delta.run_folder={self.run_folder!r}: give a path, or null for none")

    @property
    def weighs(self) -> bool:
        """Whether the method has token weights that are solved for once per rollout batch."""
        return not self.method.rule.constant

    def store(self, ranks_on_node: int) -> RowStore:
        """The store of one rank. Ranks of a node share its host memory, so that each may take its part alone."""
        return RowStore(
            device_bytes=None if self.store_device_gib is None else int(self.store_device_gib * _GIB),
            host_bytes=(
                _host_room() // max(1, ranks_on_node)
                if self.store_host_gib is None
                else int(self.store_host_gib * _GIB)
            ),
        )


def read_settings(block: Mapping[str, Any] | None) -> VerlSettings:
    """Settings from the `delta` block, or an error that says which key is wrong and what to do."""
    given = dict(block or {})
    known = [field.name for field in fields(VerlSettings)]
    spec = given.pop("method", None)
    for key in given:
        if key not in known:
            raise SettingsError(
                f"delta.{key} is unknown{did_you_mean(key, known)} (there are: {', '.join(known)}). Settings of the method stand in "
                f"its name: \"+delta.method='{spec or 'delta'}?{key}={given[key]}'\""
            )
    if not isinstance(spec, str):
        raise SettingsError("delta.method is missing: name the method, such as +delta.method=delta")
    try:
        method = get_method(spec)
        check_needs(method.rule, GIVEN, "verl", f"method {spec!r}")
    except (ValueError, TypeError) as error:
        raise SettingsError(f"delta.method: {error}") from error
    return VerlSettings(method=method, **given)


def _host_room() -> int:
    import os

    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
