"""Checkpoints of stacks: where runs that were begun and not finished go on from."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from delta_evidence.learning.protocol import Run
from delta_rlvr.files import atomic, dump

STACKS = "stacks"


@dataclass(frozen=True)
class Stack:
    """Runs to train side by side, and the state that they go on from if they were begun."""

    runs: list[Run]
    checkpoint: Path | None = None
    """The file of the state. It may hold other runs too."""
    done: int = 0
    """Rollout batches that are behind them."""

    def halves(self, folder: Path) -> list[Stack]:
        """Two stacks that go on from where this one was when it turned out to be too large."""
        place = path_of(folder, self.runs)
        whole = Stack(self.runs, place, _read(place)["done"]) if place.exists() else self
        middle = len(self.runs) // 2
        return [replace(whole, runs=self.runs[:middle]), replace(whole, runs=self.runs[middle:])]

    def state(self) -> dict[str, Any] | None:
        """The state of these runs, read from the file as it is needed."""
        if self.checkpoint is None:
            return None
        state = _read(self.checkpoint)
        held = _runs(state)
        return _only(state, [held.index(run) for run in self.runs])


def path_of(folder: Path, runs: Sequence[Run]) -> Path:
    """Where the state of these runs is kept."""
    name = hashlib.blake2b(dump([asdict(run) for run in runs]).encode(), digest_size=8).hexdigest()
    return folder / STACKS / f"{name}.pt"


def write_state(path: Path, runs: Sequence[Run], state: Mapping[str, Any]) -> None:
    """The whole file or nothing: what was there before stays until the new one is complete."""
    try:
        with atomic(path) as file:
            torch.save({**state, "runs": [asdict(run) for run in runs]}, file)
    except RuntimeError as error:
        # torch reports a full disk as a position in the file that it did not expect.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def begun_stacks(folder: Path, missing: Sequence[Run]) -> list[Stack]:
    """The stacks that were begun, those that are furthest first, with the runs that are still missing. Files that are of no use any
    more are deleted, and so are drafts of files that were never finished."""
    for draft in (folder / STACKS).glob(".*.draft"):
        draft.unlink()
    states = {place: _read(place) for place in (folder / STACKS).glob("*.pt")}
    stacks, left = [], list(missing)
    for place, state in sorted(states.items(), key=lambda item: -item[1]["done"]):
        runs = [run for run in _runs(state) if run in left]
        if not runs:
            place.unlink()
            continue
        left = [run for run in left if run not in runs]
        stacks.append(Stack(runs, place, state["done"]))
    return sorted(stacks, key=lambda stack: missing.index(stack.runs[0]))


def _read(place: Path) -> dict[str, Any]:
    try:
        # Mapped, not read: a stack of language models has tens of gigabytes.
        state: dict[str, Any] = torch.load(place, map_location="cpu", mmap=True, weights_only=True)
        if len(state["scores"]) != len(_runs(state)):
            raise ValueError("it has scores of other runs")
        return state
    except (RuntimeError, KeyError, TypeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(
            f"{place} is no checkpoint of this version ({error}): delete it, and its runs start over"
        ) from error


def _runs(state: Mapping[str, Any]) -> list[Run]:
    return [Run(**run) for run in state["runs"]]


def _only(state: Mapping[str, Any], places: list[int]) -> dict[str, Any]:
    """The state of some of its runs: every weight, and every number that the optimizer keeps of it, has a first axis "run"."""
    if places == list(range(len(state["runs"]))):
        return dict(state)

    def chosen(tensor: Tensor) -> Tensor:
        return tensor[places] if tensor.dim() else tensor

    moments = {
        number: {name: chosen(value) for name, value in of_weight.items()}
        for number, of_weight in state["optimizer"]["state"].items()
    }
    return {
        "done": state["done"],
        "diverged": {new: state["diverged"][old] for new, old in enumerate(places) if old in state["diverged"]},
        "seen": [state["seen"][place] for place in places],
        "scores": [state["scores"][place] for place in places],
        "weights": {name: chosen(weight) for name, weight in state["weights"].items()},
        "optimizer": {**state["optimizer"], "state": moments},
    }
