"""Problems from rows: local JSON Lines files, and data sets of the Hugging Face hub or a local folder."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.sources.schemas import (
    KNOWN_SETS,
    FieldNames,
    Fields,
    Row,
    RowError,
    question_hash,
    reader,
)
from delta_rlvr.tasks.templates import Template


def load_problems(
    source: str | Path,
    *,
    schema: str | None = None,
    names: FieldNames | None = None,
    subset: str | None = None,
    part: str = "train",
    template: Template | None = None,
    chat: bool = False,
    working: str | None = None,
    limit: int | None = None,
) -> list[Problem]:
    """Every problem of a JSON Lines file (.jsonl, .jsonl.gz), a data set on the hub, or one saved to a folder.

    `schema` is a name of `SCHEMAS`; left out, it is known for the sets of `KNOWN_SETS` and "plain" for others.
    `subset` and `part` are the hub's configuration and split. `template` puts the question, as text or as a chat
    of one message; rows that bring chat messages keep them, and without a template a prompt is the bare question.
    `working` names a field with the steps to the answer, kept for shots; rows may lack it. A row without an answer is an
    error that says where it stands.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    text = str(source)
    if text.endswith((".jsonl", ".jsonl.gz")):
        rows, label = (
            read_json_lines(data_file(Path(source))),
            Path(source).name.removesuffix(".gz").removesuffix(".jsonl"),
        )
    else:
        rows, label = _read_data_set(text, subset, part), text.rstrip("/").rsplit("/", 1)[-1]
    read = reader(schema or KNOWN_SETS.get(text, "plain"), names)
    problems = list(_problems(rows, read, label, template, chat, working, limit))
    if not problems:
        raise ValueError(f"{source}: no rows")
    return problems


def data_file(path: Path) -> Path:
    """A file as it is named, or else in the folder that DELTA_RLVR_DATA names: protocols name no folder of one machine."""
    folder = os.environ.get("DELTA_RLVR_DATA")
    return Path(folder, path) if folder and not path.is_file() else path


def read_json_lines(path: Path) -> Iterator[tuple[str, Row]]:
    """(where, row) of each line that is not empty."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file (DELTA_RLVR_DATA may name the folder that it lies in)")
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{where}: not JSON ({error.msg} at column {error.colno})") from error
            if not isinstance(row, dict):
                raise ValueError(
                    f"{where}: expected an object with a question and an answer, got {type(row).__name__}"
                )
            yield where, row


def _read_data_set(source: str, subset: str | None, part: str) -> Iterator[tuple[str, Row]]:
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f'{source}: data sets need `pip install "delta-rlvr[tasks]"`') from error
    folder = Path(source)
    if folder.is_dir() and (
        (folder / "dataset_info.json").is_file() or (folder / "dataset_dict.json").is_file()
    ):
        loaded = datasets.load_from_disk(source)
        if isinstance(loaded, datasets.DatasetDict):
            if part not in loaded:
                raise ValueError(f"{source} has no part {part!r}; it has {', '.join(loaded)}")
            loaded = loaded[part]
    else:
        loaded = datasets.load_dataset(source, subset, split=part)
    for number, row in enumerate(loaded):
        yield f"{source} ({part}), row {number}", row


def _problems(
    rows: Iterable[tuple[str, Row]],
    read: Callable[[Row], Fields],
    label: str,
    template: Template | None,
    chat: bool,
    working: str | None,
    limit: int | None,
) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    repeats: Counter[str] = Counter()
    for number, (where, row) in enumerate(rows):
        if number == limit:
            return
        try:
            fields = read(row)
        except RowError as error:
            raise ValueError(f"{where}: {error}") from error
        if fields.id is not None:
            name = fields.id
            if name in seen:
                raise ValueError(
                    f"{where}: the same id as {seen[name]} ({name}); give each row an id of its own"
                )
        else:
            # Sets without ids do repeat questions: a repeat is numbered, so that ids stay unique and stable.
            digest = question_hash(fields.question)
            repeats[digest] += 1
            name = digest if repeats[digest] == 1 else f"{digest}-{repeats[digest]}"
        seen[name] = where
        prompt = fields.question
        if template is not None and isinstance(prompt, str):
            prompt = template.messages(prompt) if chat else template.fill(prompt)
        meta = {**fields.meta, "question": fields.question, "where": where}
        if working is not None and row.get(working):
            meta["working"] = str(row[working])
        if template is not None:
            meta["extract"] = template.extract
        yield Problem(f"{label}/{name}", prompt, fields.answer, fields.grader, meta)
