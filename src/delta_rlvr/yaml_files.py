"""Reading YAML: settings, protocols, lists of studies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


class KeyTwice(ValueError):
    """A key is given twice. The message names it and its lines."""


class OnceLoader(yaml.SafeLoader):
    """A safe loader that refuses a key that is given twice: the last one would win in silence."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)  # type: ignore[no-untyped-call]
        lines: dict[str, int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            line = key.start_mark.line + 1
            if key.value in lines:
                where = f"line {line}" if lines[key.value] == line else f"lines {lines[key.value]} and {line}"
                raise KeyTwice(f"{key.value} is given twice ({where}): remove one")
            lines[key.value] = line
        return node


def load_yaml(text: str, where: str, loader: type[OnceLoader] = OnceLoader) -> Any:
    """Return the value of a YAML text; an error begins with `where` and names the line."""
    try:
        return yaml.load(text, loader)  # a safe one
    except KeyTwice as error:
        raise KeyTwice(f"{where}: {error}") from None
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        line = f" (line {place.line + 1}: {getattr(error, 'problem', error)})" if place else ""
        raise ValueError(f"{where} is not YAML{line}") from error


def read_yaml(path: Path, where: str, loader: type[OnceLoader] = OnceLoader) -> Any:
    """Return the value of a YAML file, as `load_yaml` does."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{where}: {getattr(error, 'strerror', None) or error}") from error
    return load_yaml(text, where, loader)
