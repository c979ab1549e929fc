"""Lines of a text file, gzipped or not."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # what Windows writes before UTF-8


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
