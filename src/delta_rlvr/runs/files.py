"""Names in a run folder, atomic writes, and values as strict JSON."""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

try:
    import fcntl
except ImportError:  # Windows: a second process is then not kept out
    fcntl = None  # type: ignore[assignment]
from delta_rlvr.exit_codes import ExitCode

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
    "measured",
    "measured_error",
)

_ROLLOUT_NAME = re.compile(r"step_(\d+)\.jsonl\.gz")


class RunFolderError(Exception):
    """A run folder cannot be used as asked; the message says why and what to do."""

    exit_code = ExitCode.BAD_INPUT


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


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder. The system drops the lock when its process ends, however that comes about."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+", encoding="utf-8") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise RunFolderError(
                    f"{folder} is in use by {file.read().strip() or 'another process'}: wait for it to end, or give another --output"
                ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}, since {now()}\n")
        file.flush()
        yield


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


def round_significant(values: Any, digits: int = 5) -> list[Any]:
    """Numbers at `digits` significant digits; None where one is missing or not finite, flags as 0 and 1."""
    array = np.asarray(values)
    if array.dtype.kind in "iub":
        whole: list[Any] = array.astype(np.int64).tolist()
        return whole
    array = array.astype(np.float64)  # None becomes NaN
    finite = np.isfinite(array)
    known = np.where(finite, array, 0.0)
    with np.errstate(divide="ignore"):
        places = digits - 1 - np.floor(np.log10(np.abs(known)))
    places = np.clip(np.where(known == 0, 0, places), -300, 300)
    # A whole number divided (or multiplied) by a power of ten is the double nearest to the short decimal.
    scale = 10.0 ** np.abs(places)
    rounded = np.where(places >= 0, np.round(known * scale) / scale, np.round(known / scale) * scale).tolist()
    return rounded if finite.all() else [v if ok else None for v, ok in zip(rounded, finite, strict=True)]
