"""Methods and tasks as they are written: `name?setting=value&setting=value`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, quote

from delta_rlvr.hints import did_you_mean


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """The name, and its settings as text."""
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
    """The same with further settings; those that are None are left out."""
    query = "&".join(f"{key}={quote(text, safe='')}" for key, text in settings.items() if text is not None)
    return f"{spec}{'&' if '?' in spec else '?'}{query}" if query else spec


def without_settings(spec: str, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """The other way round: the same without these settings, and those of them that it had."""
    name, settings = split_spec(spec)
    pairs = spec.partition("?")[2].split("&")
    kept = "&".join(pair for pair in pairs if pair.partition("=")[0] not in names)
    return f"{name}?{kept}" if kept else name, {key: settings[key] for key in names if key in settings}


_LONGEST_SETTING = 40  # characters of a setting's value that a table or a title has room for


def shown_spec(spec: str) -> str:
    """A spelling for people: a file without its folder, settings in words instead of a web address's escapes, long values cut."""
    try:
        name, settings = split_spec(spec)
    except ValueError:  # not one of ours: a run may have been written by another program
        return spec
    if name.startswith(("/", "~", "./", "../")) or name.count("/") > 1:
        name = name.rstrip("/").rpartition("/")[2] or name
    if not settings:
        return name
    return f"{name} ({', '.join(f'{key}={shortened(text)}' for key, text in settings.items())})"


def shortened(text: str, longest: int = _LONGEST_SETTING) -> str:
    """One line of a text, with its line breaks as they would be typed."""
    line = text.replace("\n", "\\n").replace("\t", "\\t")
    return line if len(line) <= longest else line[: longest - 3] + "..."


def guessed(text: str) -> Any:
    """A value whose type nobody declared: numbers and truth values as such."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def typed_settings(kind: type, settings: dict[str, str], where: str) -> dict[str, Any]:
    """Settings as the fields of the dataclass `kind` declare them. `where` names it in an error."""
    hints = get_type_hints(kind)
    known = [one.name for one in fields(kind)]
    for key in settings:
        if key not in known:
            raise ValueError(
                f"{where} has no setting {key!r}{did_you_mean(key, known)} (it has: {', '.join(known) or 'none'})"
            )
    return {key: _as_declared(text, hints[key], f"{where}: {key}={text}") for key, text in settings.items()}


def _as_declared(text: str, hint: Any, where: str) -> Any:
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
