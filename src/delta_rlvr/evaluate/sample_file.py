"""The file of samples. Each sample is appended and flushed at once, so that a killed evaluation loses almost nothing.

Line 1 identifies the evaluation (`identity`); every other line is one sample. A restarted evaluation reads the file, checks that the
identity is the same, and samples the rest.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.records import MalformedSample, Sample, read_sample
from delta_rlvr.evaluate.settings import REWARD_FILE, SampleKey, other_reward_file
from delta_rlvr.files import dump, hold, naming, plain
from delta_rlvr.hints import near_file
from rlvr_graders.lines import json_value

KIND = "delta-rlvr samples"
SCHEMA = 1


class SampleFile:
    """An open file of samples, locked against a second writer."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self.samples: dict[SampleKey, Sample] = {}
        """The samples already in the file, including ungraded ones."""
        self.notes: list[str] = []
        """Sentences about repairs of the file."""
        self.identity = dict(identity)
        """As it stands in the file: older files do not tell the reward's."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        try:
            busy = f"{path} is being written by another evaluation: wait for it, or choose another output"
            hold(self._file, busy)
            self._resume(plain(dict(identity)))
        except BaseException:
            self._file.close()
            raise

    def append(self, samples: Iterable[Sample]) -> None:
        """Add samples in one write and flush it."""
        block = b"".join(dump(sample.as_dict()).encode() + b"\n" for sample in samples)
        with naming(self.path):
            self._file.write(block)
            self._file.flush()

    def __enter__(self) -> SampleFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _resume(self, identity: dict[str, Any]) -> None:
        self._cut_torn_line()
        self._file.seek(0)
        first, more = self._file.readline(), self._file.readline()
        # A header alone is of an evaluation that was refused before its first sample.
        if not first or (not more and _header(first, self.path) is not None):
            self._file.truncate(0)
            self._file.write(dump({"kind": KIND, "schema": SCHEMA, "identity": identity}).encode() + b"\n")
            self._file.flush()
            return
        stored = _header(first, self.path)
        if stored is None:
            raise EvaluationError(
                f"{self.path} exists and does not begin with the header of this command: score it with `samples`, or choose another "
                "output"
            )
        if changed := list(_differences(stored, identity)):
            raise EvaluationError(
                f"{self.path} was written with other settings: {'; '.join(changed)}. "
                f"Give the same settings to resume, choose another output, or delete {self.path.name} to start again"
            )
        before, now = (one.get("benchmarks") or {} for one in (stored, identity))
        if any(other_reward_file(before.get(name) or {}, facts) for name, facts in now.items()):
            raise EvaluationError(
                f"{self.path}: the file that `reward` names has changed since these samples were graded: grade them again with "
                "`samples`, or give another `output`"
            )
        self.identity = stored
        self._file.seek(len(first))
        self.samples = {sample.key: sample for sample in _read_lines(self._file, self.path, start=2)}

    def _cut_torn_line(self) -> None:
        """Remove a last line that a kill left incomplete; its sample is made again."""
        self._file.seek(0)
        whole = sum(len(line) for line in self._file if line.endswith(b"\n"))
        if torn := self._file.tell() - whole:
            self._file.truncate(whole)
            self.notes.append(f"{self.path}: the last line was incomplete ({torn} bytes): its sample is made again")


def read_samples(path: Path) -> tuple[dict[str, Any] | None, list[Sample]]:
    """Return the header (None if there is none) and all samples of a file: ours, a result, or other JSON Lines."""
    if not path.is_file():
        raise EvaluationError(f"there is no file {path}{near_file(path)}")
    with path.open("rb") as file:
        if path.suffix == ".json":
            return _read_result(file.read(), path)
        header = _header(file.readline(), path)
        if header is None:
            file.seek(0)
        lines = _read_lines(file, path, start=1 if header is None else 2)
        by_key = {sample.key: sample for sample in lines}
    if not by_key:
        raise EvaluationError(f"{path} has no samples")
    return header, list(by_key.values())


def _read_result(content: bytes, path: Path) -> tuple[dict[str, Any] | None, list[Sample]]:
    try:
        document = json_value(content, str(path))
    except ValueError as error:
        raise EvaluationError(str(error)) from None
    if not isinstance(document, dict) or not isinstance(document.get("samples"), list):
        raise EvaluationError(f"{path} is not a result of `delta-rlvr evaluate`: it has no list of samples")
    samples = []
    for number, values in enumerate(document["samples"]):
        try:
            samples.append(read_sample(values))
        except MalformedSample as error:
            raise EvaluationError(f"{path}, samples[{number}]: {error}") from None
    identity = {name: document.get(name) for name in ("model", "settings", "backend", "benchmarks")}
    return identity, samples


def _read_lines(lines: Iterable[bytes], path: Path, start: int) -> Iterator[Sample]:
    seen: dict[SampleKey, tuple[int, bool]] = {}
    for number, line in enumerate(lines, start):
        if not line.strip():
            continue
        try:
            sample = read_sample(json_value(line, f"{path}, line {number}"))
        except MalformedSample as error:
            raise EvaluationError(f"{path}, line {number}: {error}") from None
        except ValueError as error:
            raise EvaluationError(str(error)) from None
        earlier, graded = seen.get(sample.key, (0, False))
        if graded:  # only an ungraded sample may come again, graded
            raise EvaluationError(f"{path}, line {number}: {sample.key} is already on line {earlier}")
        seen[sample.key] = (number, sample.score is not None or sample.seed is None)
        yield sample


def _header(line: bytes, path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        values = json_value(line, str(path))
        if isinstance(values, dict) and values.get("kind") == KIND:
            if values.get("schema") != SCHEMA:
                raise EvaluationError(
                    f"{path} has schema {values.get('schema')!r}, this version reads {SCHEMA}: update delta-rlvr"
                )
            identity: dict[str, Any] = values.get("identity", {})
            return identity
    return None  # not JSON or not ours: _read_lines refuses it if it is not a sample


def _differences(stored: Any, given: Any, name: str = "") -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(given, dict):
        for key in [*stored, *(key for key in given if key not in stored)]:
            if key != REWARD_FILE:
                yield from _differences(stored.get(key), given.get(key), f"{name}.{key}" if name else str(key))
    elif stored != given:
        yield f"{name} was {stored!r:.80} and is now {given!r:.80}"
