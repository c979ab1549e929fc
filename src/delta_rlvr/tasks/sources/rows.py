"""Problems from the rows of local files, and of data sets on the Hugging Face hub or in a folder."""

from __future__ import annotations

import csv
import json
import os
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple
from itertools import islice
from pathlib import Path
from typing import Any

from delta_rlvr.bounds import typed
from delta_rlvr.files import is_number
from delta_rlvr.hints import near_file
from delta_rlvr.models import hub
from delta_rlvr.tasks.problem import Problem
from delta_rlvr.tasks.sources.schemas import (
    ANSWER_FIELDS,
    COLUMNS,
    KNOWN_SETS,
    QUESTION_FIELDS,
    FieldNames,
    Row,
    RowError,
    RowIds,
    answer_text,
    reader,
)
from delta_rlvr.tasks.templates import LETTERS, Template
from rlvr_graders.lines import each_once, json_value, numbered_lines

_BATCH = 256  # rows of a Parquet file in memory at once: they may be long
_MOST_OPTIONS = 10  # `grade_choice` reads the letters A to J

ROW_FILES = (".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet")
"""The endings of files that hold rows."""
_DATA_FILES = {".jsonl", ".gz", ".json", ".csv", ".parquet", ".arrow", ".txt", ".zip", ".zst"}


def is_row_file(name: str) -> bool:
    """Return whether a name has the ending of a file of rows."""
    return name.endswith(ROW_FILES)


def label_of(path: Path) -> str:
    """Return a file's name without its ending."""
    return next((path.name.removesuffix(end) for end in ROW_FILES if path.name.endswith(end)), path.name)


@typed
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
    graded: bool = True,
    reads: Collection[str] | None = None,
    grader: str | None = None,
    template_chosen: bool = True,
) -> list[Problem]:
    """Return the problems of a file (`ROW_FILES`), of a data set on the hub, or of one saved to a folder.

    `schema`: a name of `SCHEMAS`; by default that of `KNOWN_SETS`, or "plain". `subset` and `part`: the configuration and split on
    the hub. `template`: makes the prompt, as text or as one chat message; without it the prompt is the question. Rows with chat
    messages keep them. `working`: the field with the steps to the answer, for shots; rows may lack it. `graded=False`: a custom
    reward judges, so rows need no answer, and problems keep the columns that it `reads` (None: all). `grader`: another grader of
    mathematics. `template_chosen=False`: `template` is the default. Columns that nothing reads are not loaded.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    if chat and template is not None and template.plain:
        raise ValueError(f"the template {template.name} is plain text for base models: leave chat=true out")
    text = str(source)
    kept = () if graded else reads
    columns = None if kept is None else {*COLUMNS, *kept, *(astuple(names) if names else ()), working}
    if is_row_file(text):
        rows, label = read_rows(data_file(Path(source)), columns), label_of(Path(source))
    else:
        check_is_data_set(text)
        rows, label = _read_data_set(text, subset, part, columns), text.rstrip("/").rsplit("/", 1)[-1]
    read = reader(schema or KNOWN_SETS.get(text, "plain"), names, graded)
    ids = RowIds()
    problems: list[Problem] = []
    for where, row in islice(rows, limit):
        try:
            fields = read(row)
        except RowError as error:
            raise ValueError(error.in_full(where, text)) from error
        for what, words in (("question", fields.question), ("answer", fields.answer)):
            if (torn := _lone_surrogate(str(words))) is not None:
                raise ValueError(f"{where}: its {what} contains {torn}, which is half of a character: remove it")
        if not problems and (schema or KNOWN_SETS.get(text, "plain")) == "plain":
            _tell_chosen(text, row, names or FieldNames())
            if not template_chosen:
                tell_options(text, row, "--template choice shows them")
        name = ids.of(fields.id, fields.question, where)
        prompt, answer, judge = fields.question, fields.answer, fields.grader
        if graded and template is not None and template.grader == "code" != judge:
            raise ValueError(f"{source} is graded as {judge}, but the template {template.name} is for code")
        if judge == "math" and grader is not None:
            judge = grader
        options: list[str] = []
        if template is not None and template.grader == "choice":
            options, answer = _options(row, answer, where)
            judge = "choice"
        if template is not None and isinstance(prompt, str):
            prompt = template.messages(prompt, options) if chat else template.fill(prompt, options)
        if problems and isinstance(prompt, str) != isinstance(problems[0].prompt, str):
            raise ValueError(
                f"{where}: some rows ask by text and some by messages: chat=true makes all of them messages"
            )
        meta = {**fields.meta, "question": fields.question}
        if kept is None or kept:
            meta["row"] = {name: row[name] if kept is None or name in kept else None for name in row}
        if working is not None and row.get(working):
            meta["working"] = str(row[working])
        if template is not None:
            meta["extract"] = template.extract
        problems.append(Problem(f"{label}/{name}", prompt, answer, judge, meta))
    if not problems:
        raise ValueError(f"{source} has no rows")
    return problems


def _tell_chosen(source: str, row: Row, names: FieldNames) -> None:
    for what, usual in (("question", QUESTION_FIELDS), ("answer", ANSWER_FIELDS)):
        present = [name for name in usual if row.get(name) is not None]
        if len(present) > 1 and getattr(names, what) is None:
            others = f"not {', '.join(present[1:])} ('{source}?{what}=COLUMN' names another)"
            warnings.warn(f"{source}: the {what} is the column {present[0]}, {others}", stacklevel=2)


def tell_options(source: str, row: Row, remedy: str) -> None:
    """Warn of options that a default prompt does not show."""
    if row.get("options"):
        warnings.warn(
            f"{source}: the rows have the column options, which the prompt leaves out, and answers are graded as mathematics, letters "
            f"too: {remedy}",
            stacklevel=2,
        )


def data_file(path: Path) -> Path:
    """Return the path; if no such file exists, the path below the folder DELTA_RLVR_DATA. Protocols can so leave out folders."""
    folder = os.environ.get("DELTA_RLVR_DATA")
    return Path(folder, path) if folder and not path.is_file() else path


def check_is_data_set(name: str) -> None:
    """Refuse names that cannot be data sets of the hub: files without rows, and paths that do not exist."""
    if not name:
        raise ValueError("'' names no file and no data set: give one, or leave the setting out")
    path = Path(name).expanduser()
    if path.is_dir():
        if not any(one.suffix in _DATA_FILES for one in path.rglob("*")):
            rows = f"has no {', '.join(ROW_FILES)} file, and is no data set that `datasets` saved"
            raise FileNotFoundError(f"{name}: the folder {rows}")
        return
    if path.exists():
        raise ValueError(f"{name} is not a file of rows: give one that ends in {', '.join(ROW_FILES)}")
    file, mark, setting = name.partition("&")
    settings = f"; did you mean {f'{file}?{setting}'!r}?" if mark and is_row_file(file) else ""
    if (
        name.startswith((".", "/", "~"))
        or name.count("/") != 1
        or settings
        or (path.suffix and path.parent.is_dir() and near_file(path))
        or path.suffix in (".txt", ".tsv", ".xlsx", ".yaml", ".yml")
    ):
        raise FileNotFoundError(
            f"{name}: there is no such file or folder{near_file(path)}{settings} (a data set of the hub is written as OWNER/NAME)"
        )


def read_rows(path: Path, columns: Collection[str | None] | None = None) -> Iterator[tuple[str, Row]]:
    """Yield (where, row) for each row of a file. Of a Parquet file only `columns` are loaded; the others are None."""
    if ":/" in str(path) and not path.is_file():
        raise FileNotFoundError(
            f"{str(path).replace(':/', '://')}: addresses are not read: download the file, and give its path"
        )
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder: name a file")
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: there is no such file{near_file(path)} (the environment variable DELTA_RLVR_DATA can name its folder)"
        )
    if path.suffix == ".parquet":
        return _read_parquet(path, columns)
    readers = {".json": _read_json, ".csv": _read_csv}
    return _decoded(path, readers.get(path.suffix, _read_json_lines)(path))


def _decoded(path: Path, rows: Iterator[tuple[str, Row]]) -> Iterator[tuple[str, Row]]:
    """Yield the rows; an error names the first line that is not UTF-8."""
    try:
        yield from rows
    except UnicodeDecodeError as error:
        list(numbered_lines(path))  # which names the line
        raise ValueError(f"{path}: not UTF-8 ({error.reason})") from error


def _read_json(path: Path) -> Iterator[tuple[str, Row]]:
    """Read a list of objects, alone or as the only list in an object; or JSON Lines."""
    text = path.read_text(encoding="utf-8-sig")
    try:
        rows = json_value(text, str(path))
    except ValueError as error:
        if not text.lstrip().startswith("{") or not isinstance(error.__cause__, json.JSONDecodeError):
            raise
        yield from _read_json_lines(path)
        return
    if isinstance(rows, dict):
        lists = [value for value in rows.values() if isinstance(value, list)]
        if len(lists) != 1:
            raise ValueError(f"{path}: give a list of objects, each with a question and an answer")
        rows = lists[0]
    for number, row in enumerate(rows):
        yield _checked(f"{path}, row {number}", row)


def _checked(where: str, row: Any) -> tuple[str, Row]:
    if not isinstance(row, dict):
        raise ValueError(f"{where}: expected an object with a question and an answer, got {type(row).__name__}")
    return where, row


def _read_csv(path: Path) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(2**31 - 1)
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        heading = (rows.fieldnames or [""])[0]
        each_once(filter(None, rows.fieldnames or ()), f"{path}, line 1")
        for separator, name in ((";", "semicolons"), ("\t", "tabs")):
            if len(rows.fieldnames or ()) == 1 and separator in heading:
                raise ValueError(
                    f"{path}: its columns are separated by {name} ({heading!r}); save it with commas between them"
                )
        for row in rows:
            if None in row or None in row.values():
                raise ValueError(
                    f"{path}, line {rows.line_num}: the number of fields differs from the heading ({len(rows.fieldnames or ())})"
                )
            yield f"{path}, line {rows.line_num}", row


def _read_parquet(path: Path, columns: Collection[str | None] | None) -> Iterator[tuple[str, Row]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError as error:
        raise ImportError(f'{path}: Parquet files need `pip install "delta-rlvr[tasks]"`') from error
    try:
        file = parquet.ParquetFile(path)
        names, number = file.schema_arrow.names, 0
        each_once(names, str(path))
        for batch in file.iter_batches(_BATCH, columns=_loaded(names, columns)):
            for row in batch.to_pylist():
                yield f"{path}, row {number}", dict.fromkeys(names) | row
                number += 1
    except ArrowInvalid as error:
        raise ValueError(f"{path} is not a Parquet file ({str(error).splitlines()[0]})") from error


def _loaded(names: Sequence[str], columns: Collection[str | None] | None) -> list[str]:
    """Return the names of the columns to load."""
    return [name for name in names if columns is None or name in columns] or list(names)


def _read_json_lines(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield (where, row) for each line that is not empty."""
    for number, line in numbered_lines(path):
        where = f"{path}, line {number}"
        try:
            row = json_value(line, where)
        except ValueError as error:
            if number == 1 and "," in line and "{" not in line:
                raise ValueError(f"{error}; it looks like CSV: name the file so") from error
            raise
        yield _checked(where, row)


def _read_data_set(
    source: str, subset: str | None, part: str, columns: Collection[str | None] | None
) -> Iterator[tuple[str, Row]]:
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f'{source}: data sets need `pip install "delta-rlvr[tasks]"`') from error
    folder = Path(source)
    if any((folder / name).is_file() for name in ("dataset_info.json", "dataset_dict.json")):
        loaded = datasets.load_from_disk(source)
        several = isinstance(loaded, datasets.DatasetDict)
        parts = list(loaded) if several else [str(loaded.split or "train")]
        if subset is not None:
            raise ValueError(f"{source} was saved by `datasets`, without configurations: leave subset out")
        if part not in parts and (several or part != "train"):  # the default
            raise ValueError(f"{source} has no part {part!r}; it has {', '.join(parts)}")
        loaded = loaded[part] if several else loaded
    else:
        try:
            with hub.little_patience():
                loaded = datasets.load_dataset(source, subset, split=part)
        except Exception as error:  # the hub's libraries raise many kinds
            if folder.is_dir():
                first = str(error).partition("\n")[0]
                raise ValueError(
                    f"{source}: the folder could not be loaded as a data set ({first}); name one file in it"
                ) from error
            raise ValueError(
                f"{source}: the data set could not be loaded from the Hugging Face hub: {hub.reason(error)}"
            ) from error
    names = loaded.column_names
    for number, row in enumerate(loaded.select_columns(_loaded(names, columns))):
        yield f"{source} ({part}), row {number}", dict.fromkeys(names) | row


def _lone_surrogate(text: str) -> str | None:
    """Return the first lone surrogate, escaped, or None. It has no UTF-8 form, so files and tokenizers cannot take it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return ascii(text[error.start]).strip("'")
    return None


def _options(row: Row, answer: Any, where: str) -> tuple[list[str], Any]:
    """Return a row's options (a list; in a CSV file a JSON list) and the letter of the right one. The answer may be either."""
    options = row.get("options")
    if isinstance(options, str):
        try:
            options = json.loads(options)
        except json.JSONDecodeError:
            options = None
    if not isinstance(options, list) or not 2 <= len(options) <= _MOST_OPTIONS:
        raise ValueError(
            f"{where}: a choice template needs a column `options` with a list of 2 to {_MOST_OPTIONS} texts, as in "
            '["Paris", "Rome"]'
        )
    letters = list(LETTERS[: len(options)])
    if all(isinstance(option, dict) for option in options):
        if [option.get("label") for option in options] != letters:
            raise ValueError(f"{where}: the labels of its options are not {', '.join(letters)}, in this order")
        options = [option.get("text") for option in options]
    texts = [answer_text(option) if is_number(option) else option for option in options]
    if wrong := [option for option in texts if not isinstance(option, str) or not option.strip()]:
        raise ValueError(
            f"{where}: its option {wrong[0]!r:.60} is not a text (or a {{label, text}} with labels from A on)"
        )
    if texts.count(str(answer)) == 1:
        return texts, letters[texts.index(str(answer))]
    if answer and str(answer) not in letters:
        raise ValueError(
            f"{where}: its answer is {answer!r}; give one of the letters {', '.join(letters)}, or the text of one option"
        )
    return texts, answer
