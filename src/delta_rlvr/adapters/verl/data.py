"""Problems as the parquet rows that verl reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from delta_rlvr.tasks import Problem

ROW_GROUP = 1000
"""Rows per row group. `datasets` reads a group's column as one array, whose text must not exceed 2 GiB."""
_NOT_GRADED_BY = ("question", "row", "working")
"""Facts about a problem for prompts and custom rewards that no grader reads."""


def rows(problems: Iterable[Problem], data_source: str, split: str, start: int = 0) -> Iterator[dict[str, Any]]:
    """Yield one row per problem, numbered from `start`: prompt, answer, source and id. `extra_info` has the grader's name; its values
    are texts and numbers, so that all rows have the same schema."""
    for number, problem in enumerate(problems, start):
        meta = {name: value for name, value in problem.meta.items() if name not in _NOT_GRADED_BY}
        yield {
            "data_source": data_source,
            "prompt": (
                [{"role": "user", "content": problem.prompt}]
                if isinstance(problem.prompt, str)
                else [dict(message) for message in problem.prompt]
            ),
            "ability": problem.grader,
            "reward_model": {
                "style": "rule",
                "ground_truth": problem.answer if isinstance(problem.answer, str) else json.dumps(problem.answer),
            },
            "extra_info": {
                "split": split,
                "index": number,
                "problem_id": problem.id,
                "grader": problem.grader,
                "meta": json.dumps(meta, default=str),
            },
        }


def write_parquet(path: str | Path, problems: Sequence[Problem], data_source: str, split: str) -> Path:
    """Write the rows of `problems` in small row groups."""
    import pyarrow
    import pyarrow.parquet

    if not problems:
        raise ValueError(f"{path}: there are no problems to write")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pyarrow.Table.from_pylist(list(rows(problems[:1], data_source, split))).schema
    unfinished = path.with_name(f"{path.name}.unfinished")
    with pyarrow.parquet.ParquetWriter(unfinished, schema) as writer:
        for start in range(0, len(problems), ROW_GROUP):
            group = rows(problems[start : start + ROW_GROUP], data_source, split, start)
            writer.write_table(pyarrow.Table.from_pylist(list(group), schema=schema))
    unfinished.replace(path)
    return path
