"""The rows of a benchmark, from a file below $DELTA_RLVR_DATA or else from the Hugging Face hub."""

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
    """The data of a benchmark is missing. The message names the expected file or data set."""


@dataclass(frozen=True)
class HubSource:
    """A data set on the hub."""

    id: str
    """owner/name."""
    split: str = "train"
    subset: str | None = None
    files: str | None = None
    """Pattern of the JSON Lines files, for a data set whose loading script `datasets` no longer runs."""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.id, self.subset))) + f" ({self.split})"


@dataclass(frozen=True)
class FoundRows:
    """Rows with the place to name in an error, and their source."""

    rows: list[tuple[str, Any]]
    source: dict[str, Any]


def local_file(names: tuple[str, ...]) -> Path | None:
    """Return the first of these files that exists below $DELTA_RLVR_DATA."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    return next((Path(folder) / name for name in names if (Path(folder) / name).is_file()), None)


def find_rows(benchmark: str, names: tuple[str, ...], hub: HubSource) -> FoundRows:
    """Return all rows of a benchmark; raise an error that names the expected file and data set if there are none."""
    path = local_file(names)
    if path is not None:
        return FoundRows(read_file(path), {"file": path.name})
    folder = os.environ.get(VARIABLE)
    looked = f"{folder}/{names[0]}" if folder else f"${VARIABLE}/{names[0]} ({VARIABLE} is not set)"
    try:
        with hub_access.little_patience():
            return FoundRows(list(_hub_rows(hub)), {"hub": hub.id, "subset": hub.subset, "split": hub.split})
    except Exception as error:  # the hub's libraries raise many kinds
        raise AbsentData(
            f"{benchmark}: no data. Expected is the file {looked}, or the data set {hub} on the Hugging Face hub, "
            f"which could not be loaded: {hub_access.reason(error)}"
        ) from error


def read_file(path: Path) -> list[tuple[str, Any]]:
    """Return the rows of a file, each with its place."""
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
