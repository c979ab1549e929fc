"""The count and the sum of weights per vocabulary entry and side, over all tokens of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from delta_rlvr.files import atomic
from delta_rlvr.runs.layout import RunFolderError

_COLUMNS = ("count_positive", "sum_positive", "count_negative", "sum_negative")

TextOf = Callable[[list[int]], Sequence[str]]


class TokenSums:
    """The content of `tokens.npz` during a run: dense arrays up to the largest id so far, with float64 sums."""

    def __init__(self) -> None:
        self.count_positive: NDArray[np.int64] = np.zeros(0, np.int64)
        self.sum_positive: NDArray[np.float64] = np.zeros(0, np.float64)
        self.count_negative: NDArray[np.int64] = np.zeros(0, np.int64)
        self.sum_negative: NDArray[np.float64] = np.zeros(0, np.float64)
        self._text: dict[int, str] = {}

    def add(self, ids: ArrayLike, weights: ArrayLike, side: ArrayLike) -> None:
        """Count tokens by `ids` [token], `weights` [token] and the sign of their advantage, `side` (one number, or [token]). Tokens of
        side 0 do not count."""
        id_array = np.asarray(ids)
        if id_array.size == 0:
            return
        if id_array.ndim != 1 or not np.issubdtype(id_array.dtype, np.integer):
            raise ValueError(f"ids must be a flat array of integers, got {id_array.dtype} {id_array.shape}")
        weight_array = np.asarray(weights, np.float64)
        if weight_array.shape != id_array.shape:
            raise ValueError(f"weights have shape {weight_array.shape}, ids {id_array.shape}: one for each token")
        if id_array.min() < 0:
            raise ValueError(f"ids holds {id_array.min()}: mask padding before adding")
        if not np.isfinite(weight_array).all():
            raise ValueError(f"weights are not finite at position {int(np.argmin(np.isfinite(weight_array)))}")
        sides = np.broadcast_to(np.sign(np.asarray(side)), id_array.shape)
        columns: list[NDArray[Any]] = []
        for sign in (1, -1):
            own, weighed = id_array[sides == sign], weight_array[sides == sign]
            columns += [np.bincount(own), np.bincount(own, weighed)]
        self.add_sums(*columns)

    def add_sums(self, *columns: ArrayLike) -> None:
        """Add counts and sums of an accelerator or other ranks, in the order of `_COLUMNS`, with one entry per vocabulary id."""
        for name, values in zip(_COLUMNS, columns, strict=True):
            array = np.asarray(values)
            if array.ndim != 1 or not np.isfinite(array).all():
                raise ValueError(f"{name} must be a flat array of finite numbers, got shape {array.shape}")
            self._grow(len(array))
            column = getattr(self, name)
            column[: len(array)] += array.astype(column.dtype)

    @property
    def ids(self) -> NDArray[np.int64]:
        """The vocabulary ids that occurred on a side."""
        return np.flatnonzero(self.count_positive + self.count_negative)

    def text(self, ids: Sequence[int]) -> list[str]:
        """Return the stored texts of `ids`, "" for unknown ones."""
        return [self._text.get(int(token), "") for token in ids]

    def save(self, path: Path, text_of: TextOf | None = None) -> None:
        """Write `tokens.npz`. `text_of` returns the texts of new ids (a tokenizer's decode)."""
        ids = self.ids
        unknown = [int(token) for token in ids if int(token) not in self._text]
        if text_of is not None and unknown:
            texts = list(text_of(unknown))
            if len(texts) != len(unknown):
                raise ValueError(f"text_of gave {len(texts)} texts for {len(unknown)} ids")
            self._text.update(zip(unknown, texts, strict=True))
        arrays: dict[str, Any] = {name: getattr(self, name)[ids] for name in _COLUMNS}
        arrays["ids"] = ids
        arrays["text"] = np.array([_storable(text) for text in self.text(ids.tolist())], dtype=np.str_)
        with atomic(path) as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> TokenSums:
        sums = cls()
        try:
            with np.load(path, allow_pickle=False) as stored:
                ids = stored["ids"].astype(np.int64)
                columns = {name: stored[name] for name in _COLUMNS}
                texts = [str(text) for text in stored["text"]] if "text" in stored else [""] * len(ids)
        except FileNotFoundError:
            raise
        except Exception as error:  # a damaged npz fails in zipfile, zlib, struct or NumPy, with errors of many types
            raise RunFolderError(f"{path} cannot be read as token sums ({error})") from error
        lengths = {len(ids), len(texts), *(len(column) for column in columns.values())}
        if len(lengths) != 1 or (len(ids) and ids.min() < 0):
            raise RunFolderError(f"{path}: its arrays do not fit each other (lengths {sorted(lengths)})")
        sums._grow(int(ids.max()) + 1 if len(ids) else 0)
        for name, column in columns.items():
            getattr(sums, name)[ids] = column
        sums._text = {int(token): text for token, text in zip(ids, texts, strict=True) if text}
        return sums

    def _grow(self, size: int) -> None:
        if size > len(self.count_positive):
            for name in _COLUMNS:
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros(size - len(column), column.dtype)]))


def _storable(text: str) -> str:
    """Replace NULs at the end of a text, which NumPy would drop, by the symbol for NUL."""
    bare = text.rstrip("\0")
    return bare + "\u2400" * (len(text) - len(bare))
