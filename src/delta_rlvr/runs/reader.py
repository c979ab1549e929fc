"""Reading run folders, also damaged ones: problems are listed as sentences, and the rest is read."""

from __future__ import annotations

import gzip
import json
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from delta_rlvr.bounds import typed
from delta_rlvr.files import is_number
from delta_rlvr.hints import did_you_mean, near_path, several_runs
from delta_rlvr.runs.layout import (
    COMPARISON,
    EVALUATIONS,
    METRICS,
    PROXY_AGREEMENT,
    RESPONSE_ARRAYS,
    ROLLOUTS,
    RUN,
    SCHEMA,
    TOKENS,
    RunFolderError,
    misfits,
    rollout_steps,
)
from delta_rlvr.runs.tokens import TokenSums

_OF_EVERY_ENGINE = ("reward", "loss", "entropy")


class RunReader:
    """The reader of one run folder. Rollouts are read on demand, so that `problems` may grow."""

    @typed
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.problems: list[str] = []
        """Missing and damaged parts, one sentence each."""
        if not self.path.is_dir():
            hint = f", {self.path.parent}" if self.path.name == RUN and self.path.is_file() else near_path(self.path)
            raise RunFolderError(f"{self.path} is not a folder: give the folder of a run{hint}")
        parts = (RUN, METRICS, ROLLOUTS, TOKENS, EVALUATIONS)
        if not any((self.path / name).exists() for name in parts):
            raise RunFolderError(
                several_runs(self.path)
                or f"{self.path} holds no part of a run (none of {', '.join(parts)}). A script writes them with "
                "DeltaTrainerConfig(run_folder=True)"
            )
        self.info: dict[str, Any] = self._read_object(RUN, missing="the run's settings are unknown") or {}
        """The content of run.json, or {}."""
        schema = self.info.get("schema", SCHEMA)
        if not isinstance(schema, int) or schema > SCHEMA:
            raise RunFolderError(f"{self.path} has schema {schema!r}, this version reads {SCHEMA}: update delta-rlvr")
        for key in misfits(self.info):
            self._say(f"{RUN}: {key} is {type(self.info.pop(key)).__name__}, which is not its type: it is left out")
        self._say_status()
        self.metrics = self._read_metrics()
        """One object per step, in order."""
        self.tokens = self._read_tokens()
        """The sums per vocabulary entry, or None."""
        self.evaluations = self._read_evaluations()
        """Results of `delta-rlvr evaluate`, by name."""
        self.proxy_agreement: dict[str, Any] | None = self._read_object(PROXY_AGREEMENT, missing=None)
        """The agreement of cheaper proxies with an expensive one, if it was measured."""
        self._rollout_files = rollout_steps(self.path)
        if not self._rollout_files:
            self.problems.append(f"{ROLLOUTS}/ has no sampled step: there is no token view")

    @property
    def rollout_steps(self) -> list[int]:
        return list(self._rollout_files)

    @typed
    def rollouts(self, step: int) -> list[dict[str, Any]]:
        """Return the responses of a sampled step that can be read, without per-token arrays that do not fit their tokens."""
        if step not in self._rollout_files:
            kept = ", ".join(map(str, self._rollout_files)) or "none"
            raise ValueError(f"step={step}: {self.path} has no rollouts of it (it has those of: {kept})")
        path = self._rollout_files[step]
        name = f"{ROLLOUTS}/{path.name}"
        responses: list[dict[str, Any]] = []
        damaged = 0
        try:
            with gzip.open(path, "rb") as file:
                for number, line in enumerate(file, start=1):
                    if (response := _response(line)) is None:
                        damaged += 1
                    else:
                        self._fit(response, f"{name} line {number}")
                        responses.append(response)
        except (OSError, EOFError, zlib.error) as error:
            self._say(f"{name} breaks off after {len(responses)} responses ({error})")
        if damaged:
            self._say(f"{name}: {damaged} of {damaged + len(responses)} lines cannot be read")
        return responses

    @typed
    def series(self, key: str) -> tuple[list[int], list[float]]:
        """Return the steps and values of one metric of the run, where it is a number."""
        known = {*_OF_EVERY_ENGINE, *(name for line in self.metrics for name in line)}
        if self.metrics and key not in known:
            raise ValueError(f"{self.path / METRICS} has no {key!r}{did_you_mean(key, known)}")
        pairs = [(line["step"], line[key]) for line in self.metrics if is_number(line.get(key))]
        return [step for step, _ in pairs], [float(value) for _, value in pairs]

    def _say(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _say_status(self) -> None:
        planned = self.info.get("steps_planned") or "?"
        done = f"{self.info.get('steps', '?')} of {planned} {'step' if planned == 1 else 'steps'}"
        words = {
            "running": f"the run has not ended (or it was killed): {done} at its last update",
            "interrupted": f"the run was interrupted after {done}",
            "failed": f"the run failed after {done}: {self.info.get('error', 'no message')}",
        }
        status = self.info.get("status")
        if isinstance(status, str) and status in words:
            self._say(words[status])

    def _read_object(self, name: str, missing: str | None) -> dict[str, Any] | None:
        """Return a JSON object, or None. `missing` is what follows if there is no such file; None if the file is optional."""
        try:
            value = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            if missing is not None:
                self._say(f"{name} is missing: {missing}")
            return None
        except (OSError, ValueError) as error:
            self._say(f"{name} cannot be read ({error})")
            return None
        if not isinstance(value, dict):
            self._say(f"{name} does not hold an object")
            return None
        return value

    def _read_metrics(self) -> list[dict[str, Any]]:
        try:
            lines = (self.path / METRICS).read_bytes().split(b"\n")
        except FileNotFoundError:
            self._say(f"{METRICS} is missing: there are no training curves")
            return []
        except OSError as error:
            self._say(f"{METRICS} cannot be read ({error})")
            return []
        steps: dict[int, dict[str, Any]] = {}
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError:
                torn = number == len(lines)
                what = "ends in half a line" if torn else f"line {number} cannot be read"
                self._say(f"{METRICS} {what}: it is left out")
                continue
            step = value.get("step") if isinstance(value, dict) else None
            if isinstance(step, bool) or not isinstance(step, int):
                self._say(f"{METRICS} line {number} has no step: it is left out")
            else:
                steps[step] = value
        if not steps:
            self._say(f"{METRICS} has no step: there are no training curves")
        return [steps[step] for step in sorted(steps)]

    def _read_tokens(self) -> TokenSums | None:
        try:
            return TokenSums.load(self.path / TOKENS)
        except FileNotFoundError:
            self._say(f"{TOKENS} is missing: there are no token clouds (it is written with each checkpoint)")
        except RunFolderError as error:
            self._say(f"{TOKENS} cannot be read: {error}")
        return None

    def _read_evaluations(self) -> dict[str, dict[str, Any]]:
        files = sorted((self.path / EVALUATIONS).glob("*.json"))
        read = {path.stem: self._read_object(f"{EVALUATIONS}/{path.name}", missing=None) for path in files}
        return {name: value for name, value in read.items() if value is not None}

    def _fit(self, response: dict[str, Any], name: str) -> None:
        """Remove the parts of a response that are not as documented."""
        length = len(response["tokens"])
        for key in ("reward", "advantage"):
            if response.get(key) is not None and not is_number(response[key]):
                self._say(f"{name}: {key} is not a number and is left out")
                del response[key]
        if not isinstance(response.get("group"), (int, str, type(None))):
            response["group"] = json.dumps(response["group"])  # a list cannot be a key
        for key in RESPONSE_ARRAYS[1:]:
            if key in response and not _is_column(response[key], length):
                if response[key] is not None:
                    self._say(f"{name}: {key} does not fit its {length} tokens and is left out")
                del response[key]
        others = response.get("other_weights")
        if others is not None and not isinstance(others, dict):
            self._say(f"{name}: other_weights is not an object and is left out")
            others = {}
        fitting = {key: column for key, column in (others or {}).items() if _is_column(column, length)}
        if others and len(fitting) < len(others):
            self._say(f"{name}: some of other_weights do not fit its {length} tokens and are left out")
        response["other_weights"] = fitting


def read_run(path: str | Path) -> RunReader:
    """Return the run in a folder, of which any part may be missing or damaged (see `RunReader.problems`)."""
    return RunReader(path)


def _response(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line, parse_constant=lambda _: None)  # NaN of another writer is no JSON
    except ValueError:
        return None
    tokens = value.get("tokens") if isinstance(value, dict) else None
    are_texts = isinstance(tokens, list) and all(isinstance(token, str) for token in tokens)
    return value if are_texts else None


def _is_column(value: Any, length: int) -> bool:
    """Return whether a value is a list of finite numbers and nulls of this length."""
    if not isinstance(value, list) or len(value) != length or not set(map(type, value)) <= {int, float, type(None)}:
        return False
    return not bool(np.isinf(np.array(value, np.float64)).any())


def runs_below(folders: Sequence[str | Path]) -> list[Path]:
    """Return the folders of runs; a folder that holds runs (a comparison's) stands for these, in the order in which they started."""
    runs: list[Path] = []
    for folder in map(Path, folders):
        inside = [] if (folder / RUN).exists() else [file.parent for file in folder.glob(f"*/{RUN}")]
        runs += sorted(_not_replaced(folder, inside), key=_begun) or [folder]
        if inside and (deeper := sorted({file.parent.parent.name for file in folder.glob(f"*/*/{RUN}")})):
            warnings.warn(f"not on this page, because they hold runs themselves: {', '.join(deeper)}", stacklevel=4)
    return runs


def _not_replaced(folder: Path, runs: Sequence[Path]) -> list[Path]:
    """Leave out the runs of a comparison at a learning rate that is no longer the best of its grid."""
    try:
        named = json.loads((folder / COMPARISON).read_text(encoding="utf-8")).get("runs", [])
        chosen = {_who(run): run for run in runs if run.name in named}
        return [run for run in runs if chosen.get(_who(run), run) == run]
    except (OSError, ValueError, TypeError, AttributeError):
        return list(runs)


def _who(folder: Path) -> tuple[str, str]:
    info = read_run(folder).info
    return str(info.get("method")), str(info.get("seed"))


def _begun(folder: Path) -> tuple[str, str]:
    return str(read_run(folder).info.get("started", "")), folder.name
