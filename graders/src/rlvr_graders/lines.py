"""Lines of a text file, gzipped or not, and the JSON in them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # what Windows writes before UTF-8
_DEEPEST = 100  # lists in lists: below the depth at which Python's own recursion ends


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, text) of each line that is not empty. A gzip file that is none or breaks off, and text that is not UTF-8, are a
    ValueError that names the place."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    text = (line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line).decode()
                except UnicodeDecodeError as error:
                    raise ValueError(
                        f"{path}, line {number}: not UTF-8 ({error.reason}); save the file as UTF-8"
                    ) from error
                if text.strip():
                    yield number, text
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file ({error})") from error


def each_once(names: Iterable[str], where: str) -> None:
    """Refuse columns or keys of the same name: the last one would win in silence."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{where}: {name!r} comes twice: rename or remove one")


def json_value(text: str | bytes, where: str) -> Any:
    """The value of a JSON text. What is not JSON, has a key twice or cannot be held is a ValueError that names the place."""

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            each_once((name for name, _ in pairs), f"{where}: in {row!s:.60}")
        return row

    deeper: list[Any]
    try:
        value = json.loads(text, object_pairs_hook=checked)
        deeper = [[value]]
        for _ in range(_DEEPEST):
            inner = (each for one in deeper for each in (one.values() if isinstance(one, dict) else one))
            deeper = [each for each in inner if isinstance(each, dict | list)]
    except RecursionError:
        deeper = [...]
    except json.JSONDecodeError as error:
        place = f"in line {error.lineno}" if error.lineno > 1 else f"at column {error.colno}"
        raise ValueError(f"{where}: not JSON ({error.msg} {place})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not UTF-8 ({error.reason})") from error
    except ValueError as error:
        if not str(error).startswith("Exceeds"):
            raise
        raise ValueError(f"{where}: a number has more digits than Python reads: write it as text, in quotes") from error
    if deeper:
        raise ValueError(f"{where}: its lists or objects are nested more than {_DEEPEST} deep: leave them out")
    return value
