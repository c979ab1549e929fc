"""Specs of methods and tasks: `name?setting=value&setting=value`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, quote

from delta_rlvr.hints import did_you_mean


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Return the name and its settings as text."""
    if not isinstance(spec, str):
        raise ValueError(f"{spec!r:.60}: give a name as a text, as in 'phrased-sums' or 'delta?refinements=0'")
    name, _, query = spec.partition("?")
    if not query:
        return name, {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError as error:
        raise ValueError(f"{spec}: settings after '?' are key=value pairs joined by '&' ({error})") from error
    repeated = [key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place])]
    if repeated:
        raise ValueError(f"{spec}: the setting {repeated[0]!r} comes twice")
    return name, dict(pairs)


def with_settings(spec: str, settings: Mapping[str, str | None]) -> str:
    """Return the spec with further settings; those that are None are left out."""
    query = "&".join(f"{key}={quote(text, safe='')}" for key, text in settings.items() if text is not None)
    return f"{spec}{'&' if '?' in spec else '?'}{query}" if query else spec


def without_settings(spec: str, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return the spec without these settings, and the values that it had for them."""
    name, settings = split_spec(spec)
    pairs = spec.partition("?")[2].split("&")
    kept = "&".join(pair for pair in pairs if pair.partition("=")[0] not in names)
    return f"{name}?{kept}" if kept else name, {key: settings[key] for key in names if key in settings}


_LONGEST_SETTING = 40  # characters; tables and titles have no room for more


def shown_spec(spec: str) -> str:
    """Return the spec as people read it: a file without its folder, settings unescaped, long values cut."""
    try:
        name, settings = split_spec(spec)
    except ValueError:  # another program may have written the run
        return spec
    if name.startswith(("/", "~", "./", "../")) or name.count("/") > 1:
        name = name.rstrip("/").rpartition("/")[2] or name
    if not settings:
        return name
    return f"{name} ({', '.join(f'{key}={shortened(text)}' for key, text in settings.items())})"


def shortened(text: str, longest: int = _LONGEST_SETTING) -> str:
    r"""Return a text as one line, with \n for its line breaks, cut to a length."""
    line = text.replace("\n", "\\n").replace("\t", "\\t")
    return line if len(line) <= longest else line[: longest - 3] + "..."


def guessed(text: str) -> Any:
    """Return the number or truth value that a text spells, else the text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def typed_settings(kind: type, settings: dict[str, str], where: str) -> dict[str, Any]:
    """Return settings with the types that the fields of the dataclass `kind` declare. Error messages begin with `where`."""
    hints = get_type_hints(kind)
    known = [one.name for one in fields(kind)]
    for key in settings:
        if key not in known:
            raise ValueError(
                f"{where} has no setting {key!r}{did_you_mean(key, known)} (it has: {', '.join(known) or 'none'})"
            )
    return {key: as_declared(text, hints[key], f"{where}: {key}={text}") for key, text in settings.items()}


def as_declared(text: str, hint: Any, where: str) -> Any:
    """Return a setting's text as a value of its declared type."""
    if get_origin(hint) in (Union, UnionType):
        kinds = get_args(hint)
        if NoneType in kinds and text.lower() in ("none", "null"):
            return None
        hint = next(kind for kind in kinds if kind is not NoneType)
    if get_origin(hint) is Literal:
        choices = {str(choice): choice for choice in get_args(hint)}
        if text not in choices:
            raise ValueError(f"{where}: choose one of {', '.join(choices)}")
        return choices[text]
    if hint is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{where}: give true or false")
        return text.lower() == "true"
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            kind = "a whole number" if hint is int else "a number"
            raise ValueError(f"{where}: give {kind}") from None
    if hint is str:
        return text
    raise ValueError(f"{where}: a setting of type {hint} cannot be written as text")
