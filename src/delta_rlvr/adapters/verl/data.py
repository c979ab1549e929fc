"""Problems as the parquet rows that verl reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from delta_rlvr.tasks import Problem


def rows(problems: Sequence[Problem], data_source: str, split: str) -> list[dict[str, Any]]:
    """One row per problem. `extra_info` names its grader; its values are texts and numbers, so that all rows share one schema."""
    return [
        {
            "data_source": data_source,
            "prompt": (
                [{"role": "user", "content": problem.prompt}]
                if isinstance(problem.prompt, str)
                else [dict(message) for message in problem.prompt]
            ),
            "ability": problem.grader,
            "reward_model": {
                "style": "rule",
                "ground_truth": problem.answer
                if isinstance(problem.answer, str)
                else json.dumps(problem.answer),
            },
            "extra_info": {
                "split": split,
                "index": number,
                "problem_id": problem.id,
                "grader": problem.grader,
                "meta": json.dumps(problem.meta, default=str),
            },
        }
        for number, problem in enumerate(problems)
    ]


def write_parquet(path: str | Path, problems: Sequence[Problem], data_source: str, split: str) -> Path:
    """Write the rows of `problems`; there must be some."""
    import pyarrow
    import pyarrow.parquet

    if not problems:
        raise ValueError(f"{path}: there is no problem to write")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows(problems, data_source, split)), path)
    return path
