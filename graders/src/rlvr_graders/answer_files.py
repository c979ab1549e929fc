"""Files of answers and rollouts: JSON Lines (gzipped too), a run's folder of them, or Parquet, whatever their columns are called."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from .extract import EXTRACTORS
from .functions import completion_text
from .lines import each_once, json_value, numbered_lines

# As TRL, verl's dumps, delta-rlvr's runs and data sets name them; the first that a file has counts.
COMPLETIONS = ("completion", "completions", "response", "output", "solution_str", "prediction")
ANSWERS = ("answer", "ground_truth", "gts", "reference", "solution", "gold", "tests")
REWARDS = ("reward", "score")
PROMPTS = ("prompt", "input", "problem", "question")


class FileError(ValueError):
    """The file cannot be used; the message names the line and what to do."""


@dataclass(frozen=True)
class Answer:
    """One line of a file."""

    where: str
    completion: str
    answer: Any
    reward: float | None
    """What the run itself gave."""
    group: str
    """The prompt: responses to one prompt are compared with each other. The reference answer, where the row names no prompt."""
    prompted: bool = True
    """Whether the row names its prompt."""


def read_answers(path: str | Path, completion: str | None = None, answer: str | None = None) -> list[Answer]:
    """All lines. `completion` and `answer` name the columns where they have other names than usual."""
    path = Path(path)
    files = sorted((path / "rollouts").glob("*.jsonl*")) or sorted(path.glob("*.jsonl*")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise FileError(
            f"{path}: there is no such file of JSON Lines or Parquet, nor a run's folder with rollouts/*.jsonl.gz"
        )
    found = [_answer(row, f"{file.name}:{number}", completion, answer) for file in files for number, row in _rows(file)]
    if not found:
        raise FileError(f"{path} is empty")
    return found


def extract_of(path: str | Path) -> str | None:
    """Where the answers stand in the rollouts of a delta-rlvr run, as it was told; None where it was not, or for any other file."""
    try:
        settings = json.loads((Path(path) / "run.json").read_text(encoding="utf-8"))["settings"]
        named = (
            settings.get("extract") or parse_qs(str(settings.get("task")).partition("?")[2]).get("extract", [None])[0]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return named if named in EXTRACTORS else None


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if path.suffix == ".parquet":
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise FileError(f"{path}: reading Parquet needs pyarrow: pip install pyarrow") from error
        each_once(parquet.read_schema(path).names, str(path))
        yield from enumerate(parquet.read_table(path).to_pylist(), start=1)
        return
    for number, text in numbered_lines(path):
        row = json_value(text, f"{path}:{number}")
        if not isinstance(row, dict):
            raise FileError(f"{path}:{number} is not an object with a completion and an answer")
        yield number, row


def _answer(row: Mapping[str, Any], where: str, completion: str | None, answer: str | None) -> Answer:
    text = _of(row, where, "completion", COMPLETIONS if completion is None else (completion,))
    reference = _of(row, where, "answer", ANSWERS if answer is None else (answer,))
    reward = next((row[name] for name in REWARDS if isinstance(row.get(name), int | float)), None)
    prompt = next((row[name] for name in PROMPTS if row.get(name) is not None), None)
    group = reference if prompt is None else prompt
    try:
        text = completion_text(text)
    except TypeError as error:
        raise FileError(f"{where}: {error}") from error
    return Answer(
        where, text, reference, reward, group if isinstance(group, str) else json.dumps(group), prompt is not None
    )


def _of(row: Mapping[str, Any], where: str, what: str, names: Sequence[str]) -> Any:
    for name in names:
        if row.get(name) is not None:
            return row[name]
    if null := [name for name in names if name in row]:
        raise FileError(f"{where}: its {what} is null ({', '.join(null)})")
    raise FileError(f"{where} has no {' or '.join(names)} (it has {', '.join(row)}): name its column with --{what}")
