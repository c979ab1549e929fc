"""The `delta` block of a verl config: read, checked and resolved before any worker starts. No verl here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from delta_rlvr.credit import DeltaConfig, ForkingTokens, FutureConfig, RowStore
from delta_rlvr.objectives import FutureClip, Method, get_method

_DELTA = tuple(field.name for field in fields(DeltaConfig))
_FUTURE = tuple(field.name for field in fields(FutureConfig))
_GIB = 1 << 30


class SettingsError(ValueError):
    """The settings are unknown, impossible, or contradict each other: the launch stops here."""


@dataclass(frozen=True)
class VerlSettings:
    """What the `delta` block says. Every field of DeltaConfig may stand beside these."""

    method: Method
    """The named method with the block's changes: its weighting, surrogate and average."""
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
    def needs_hidden(self) -> bool:
        """Whether hidden states have to be kept from the old-log-prob pass."""
        return self.method.delta is not None and self.method.delta.needs_proxies

    @property
    def needs_head(self) -> bool:
        """Whether the LM head's whole weight is needed on each rank."""
        return self.method.delta is not None and self.method.delta.needs_head

    @property
    def future(self) -> FutureConfig | None:
        """FIPO's constants, for the method whose weight is recomputed at every forward."""
        return self.method.surrogate.future if isinstance(self.method.surrogate, FutureClip) else None

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
    own = {field.name for field in fields(VerlSettings)} - {"method"}
    known = {"method", "quantile", "future", *own, *_DELTA}
    for key in given:
        if key not in known:
            raise SettingsError(
                f"delta.{key} is unknown{_hint(key, known)}. Known: {', '.join(sorted(known))}"
            )
    name = given.pop("method", None)
    if not isinstance(name, str):
        raise SettingsError("delta.method is missing: name the method, such as +delta.method=delta")
    try:
        method = get_method(name)
        method = method.with_delta(**{key: given.pop(key) for key in _DELTA if key in given})
        method = _with_quantile(method, given)
        method = _with_future(method, given)
    except (ValueError, TypeError) as error:
        raise SettingsError(f"delta: {error}") from error
    if method.delta is not None and method.delta.proxy == "full":
        raise SettingsError(
            "delta.proxy=full needs the gradient of every token, which no engine keeps: use output_row, topk_hidden or head"
        )
    return VerlSettings(method=method, **given)


def _with_quantile(method: Method, given: dict[str, Any]) -> Method:
    if "quantile" not in given:
        return method
    if not isinstance(method.weighting, ForkingTokens):
        raise ValueError(f"quantile belongs to method 'dapo-ft', not to {method.name!r}")
    return replace(method, weighting=ForkingTokens(given.pop("quantile")))


def _with_future(method: Method, given: dict[str, Any]) -> Method:
    if "future" not in given:
        return method
    block = dict(given.pop("future") or {})
    if not isinstance(method.surrogate, FutureClip):
        raise ValueError(f"future belongs to method 'fipo', not to {method.name!r}")
    for key in block:
        if key not in _FUTURE:
            raise ValueError(f"future.{key} is unknown{_hint(key, _FUTURE)}. Known: {', '.join(_FUTURE)}")
    return replace(method, surrogate=replace(method.surrogate, future=FutureConfig(**block)))


def _hint(key: str, known: Any) -> str:
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _host_room() -> int:
    import os

    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
