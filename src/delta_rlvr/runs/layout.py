"""The names in a run folder, its per-token arrays and their rounding."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from delta_rlvr.exit_codes import ExitCode
from delta_rlvr.files import RUN as RUN

SCHEMA = 1
METRICS = "metrics.jsonl"
ROLLOUTS = "rollouts"
TOKENS = "tokens.npz"
EVALUATIONS = "evaluations"
MODEL = "model"
"""The folder of the weights after the last step."""
CONTENT = "_sha256"
"""The ending of settings that hold the digest of a file: `NAME_sha256` is that of the file in the setting NAME."""
COMPARISON = "comparison.json"
"""What `delta-rlvr compare` concludes, beside the folders of its runs."""
PROXY_AGREEMENT = "proxy_agreement.json"

# The arrays of a rollout with one entry per valid response token.
RESPONSE_ARRAYS = (
    *("tokens", "ids", "logps", "entropy", "margin", "margin_initial", "alpha", "weight"),
    *("decisive", "measured", "measured_error"),
)

_KINDS = {
    dict: ("settings", "final", "versions", "rule"),
    str: ("engine", "method", "model", "task", "status", "started", "updated", "error", "compare"),
    int: ("seed", "steps", "steps_planned"),
    list: ("given", "resumed"),
}
_ROLLOUT_NAME = re.compile(r"step_(\d+)\.jsonl\.gz")


class RunFolderError(Exception):
    """A run folder cannot be used; the message says why and what to do."""

    exit_code = ExitCode.BAD_INPUT


def misfits(info: Any) -> list[str]:
    """Return the keys of a run.json whose values are of another kind than documented."""
    return [key for kind, keys in _KINDS.items() for key in keys if not isinstance(info.get(key), kind | None)]


def rollout_path(folder: Path, step: int) -> Path:
    return folder / ROLLOUTS / f"step_{step:06d}.jsonl.gz"


def rollout_steps(folder: Path) -> dict[int, Path]:
    """Return the rollout files by step, in order."""
    by_step = {}
    for path in (folder / ROLLOUTS).glob("step_*.jsonl.gz"):
        if match := _ROLLOUT_NAME.fullmatch(path.name):
            by_step[int(match[1])] = path
    return dict(sorted(by_step.items()))


def shown_text(value: Any) -> str:
    """Return a prompt or answer as text: chat messages line by line, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(isinstance(message, dict) and "content" in message for message in value):
        return "\n".join(f"{message.get('role', '')}: {message['content']}" for message in value)
    return json.dumps(value, default=str)


def round_significant(values: Any, digits: int = 5) -> list[Any]:
    """Round numbers to `digits` significant digits; missing and not finite ones become None, flags 0 and 1."""
    array = np.asarray(values)
    if array.dtype.kind in "iub":
        return array.astype(np.int64).tolist()
    array = array.astype(np.float64)  # None becomes NaN
    finite = np.isfinite(array)
    known = np.where(finite, array, 0.0)
    with np.errstate(divide="ignore"):
        places = digits - 1 - np.floor(np.log10(np.abs(known)))
    places = np.clip(np.where(known == 0, 0, places), -300, 300)
    # A whole number divided (or multiplied) by a power of ten is the double nearest to the rounded decimal.
    scale = 10.0 ** np.abs(places)
    rounded = np.where(places >= 0, np.round(known * scale) / scale, np.round(known / scale) * scale).tolist()
    return rounded if finite.all() else [v if ok else None for v, ok in zip(rounded, finite, strict=True)]
