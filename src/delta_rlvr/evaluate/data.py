"""Where a benchmark's rows are: a file in $DELTA_RLVR_DATA, else the Hugging Face hub."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.models import hub as hub_access
from delta_rlvr.tasks.sources.rows import read_rows

VARIABLE = "DELTA_RLVR_DATA"


class AbsentData(EvaluationError):
    """A benchmark's data is not here; the message says which file or data set is wanted."""


@dataclass(frozen=True)
class HubSource:
    """A data set on the hub."""

    id: str
    """owner/name."""
    split: str = "train"
    subset: str | None = None
    files: str | None = None
    """Pattern of its JSON Lines files, for a set whose loading script `datasets` no longer runs."""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.id, self.subset))) + f" ({self.split})"


@dataclass(frozen=True)
class FoundRows:
    """Rows, each with the place to name in an error, and where they came from."""

    rows: list[tuple[str, Any]]
    source: dict[str, Any]


def local_file(names: tuple[str, ...]) -> Path | None:
    """The first of the files that is there."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    return next((Path(folder) / name for name in names if (Path(folder) / name).is_file()), None)


def find_rows(benchmark: str, names: tuple[str, ...], hub: HubSource) -> FoundRows:
    """All rows of a benchmark, or an error that says which file or data set is wanted."""
    path = local_file(names)
    if path is not None:
        return FoundRows(read_file(path), {"file": path.name})
    folder = os.environ.get(VARIABLE)
    looked = f"{folder}/{names[0]}" if folder else f"${VARIABLE}/{names[0]} ({VARIABLE} is not set)"
    try:
        with hub_access.little_patience():
            return FoundRows(list(_hub_rows(hub)), {"hub": hub.id, "subset": hub.subset, "split": hub.split})
    except Exception as error:  # whatever the hub's libraries raise, the answer for a person is the same
        raise AbsentData(
            f"{benchmark}: no data. Wanted is the file {looked}, or the data set {hub} on the Hugging Face hub, "
            f"which could not be had: {hub_access.reason(error)}"
        ) from error


def read_file(path: Path) -> list[tuple[str, Any]]:
    """Rows of a file, each with its place."""
    try:
        return list(read_rows(path))
    except (ValueError, OSError) as error:
        raise EvaluationError(str(error)) from None


def _hub_rows(hub: HubSource) -> Iterator[tuple[str, Any]]:
    import datasets

    if hub.files is not None:
        files = f"hf://datasets/{hub.id}/{hub.files}"
        loaded = datasets.load_dataset("json", data_files=files, split="train")
    else:
        loaded = datasets.load_dataset(hub.id, hub.subset, split=hub.split)
    for number, row in enumerate(loaded):
        yield f"{hub}, row {number}", row
