"""Names in a run folder, atomic writes, and values as strict JSON."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

SCHEMA = 1
RUN = "run.json"
METRICS = "metrics.jsonl"
ROLLOUTS = "rollouts"
TOKENS = "tokens.npz"
EVALUATIONS = "evaluations"
PROXY_AGREEMENT = "proxy_agreement.json"

# Arrays of a rollout with one entry per valid response token.
TOKEN_ARRAYS = (
    "tokens",
    "ids",
    "logps",
    "entropy",
    "margin",
    "margin_initial",
    "alpha",
    "weight",
    "decisive",
)

_ROLLOUT_NAME = re.compile(r"step_(\d+)\.jsonl\.gz")


class RunFolderError(Exception):
    """A run folder cannot be used as asked; the message says why and what to do."""


def rollout_path(folder: Path, step: int) -> Path:
    return folder / ROLLOUTS / f"step_{step:06d}.jsonl.gz"


def rollout_steps(folder: Path) -> dict[int, Path]:
    """The sampled steps that have a file, in order of step."""
    found = {}
    for path in (folder / ROLLOUTS).glob("step_*.jsonl.gz"):
        if match := _ROLLOUT_NAME.fullmatch(path.name):
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Write beside `path` and move into place: a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def dump(value: Any, *, indent: int | None = None) -> str:
    """Strict JSON: no NaN or infinity (null instead), NumPy and 0-d tensor values as plain numbers."""
    separators = (",", ":") if indent is None else None
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)


def plain(value: Any) -> Any:
    """`value` with only JSON's own types. Paths, enums and other objects of a settings file become text."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        # A lone surrogate (half of a pair, from a torn token) has no UTF-8 form.
        return value.encode("utf-8", "replace").decode("utf-8") if not value.isascii() else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays, torch tensors
        return plain(value.tolist())
    return str(value)


def round_significant(values: list[Any], digits: int = 5) -> list[Any]:
    """Floats at `digits` significant digits (None stays, non-finite becomes None), flags as 0 and 1."""
    rounded: list[Any] = []
    for value in values:
        if isinstance(value, float):
            rounded.append(float(f"{value:.{digits}g}") if math.isfinite(value) else None)
        elif isinstance(value, bool):
            rounded.append(int(value))
        else:
            rounded.append(value)
    return rounded
