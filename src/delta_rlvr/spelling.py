"""How things are written: methods and tasks as `name?setting=value&setting=value`, code of one's own as `my_file.py:name` or
`my_package.module:name`."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import shlex
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, quote

_LONGEST_SETTING = 40  # characters of a setting's value that a table or a title has room for


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """The name, and its settings as text."""
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


def command_line(*words: object) -> str:
    """A command to be pasted into a shell, in one line: words that a shell would take apart are quoted."""
    return " ".join(_quoted(str(word)) for word in words)


def _quoted(word: str) -> str:
    """As a shell reads it; line breaks and the like in the form $'...', which bash, zsh and ksh know."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    shown = (
        one if one.isprintable() else "".join(f"\\x{byte:02x}" for byte in one.encode()) for one in escaped
    )
    return f"$'{''.join(shown)}'"


def comma_list(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def counted(number: int, what: str, many: str | None = None) -> str:
    """1 seed, 2 seeds; `many` where an s is not enough."""
    return f"{number} {what}" if number == 1 else f"{number} {many or what + 's'}"


@dataclass(frozen=True)
class Unit:
    """How a score is shown."""

    scale: float = 100
    name: str = "points"
    """Of differences."""
    digits: int = 1
    """Behind the decimal point."""
    sign: str = " %"
    """Behind a score."""
    score: str = "accuracy"
    """What the score is called."""

    @property
    def finer(self) -> Unit:
        """With two digits at least: how a score is published."""
        return replace(self, digits=max(2, self.digits))

    def plain(self, value: float) -> str:
        return f"{self._scaled(value):.{self.digits}f}"

    def signed(self, value: float) -> str:
        return f"{self._scaled(value):+.{self.digits}f}"

    def shown(self, value: float) -> str:
        return self.plain(value) + self.sign

    def _scaled(self, value: float) -> float:
        """Without what sums leave in the last digits: 3.75 points are shown alike, however they were added up, and 0 is not -0."""
        return round(self.scale * value, 9) + 0.0


POINTS = Unit()
"""Shares in per cent, and their differences in points."""
REWARD = Unit(1, "of reward", 3, "", "mean reward")
"""Rewards as they are: those of one's own need not lie between 0 and 1, so that a per cent sign would mislead."""


def score_unit(own_reward: object) -> Unit:
    """How a held-out score is shown: as a share of right answers, or as the mean of a reward of one's own."""
    return REWARD if own_reward else POINTS


def duration(seconds: float) -> str:
    """4:05, or 1:04:05."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for an error message; empty where nothing is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def near_file(path: Path) -> str:
    """The same for a file that is not there: the nearest name beside it, in the nearest folder."""
    return _near(path, Path.is_file)


def near_path(path: Path) -> str:
    """The same for what may be a folder, too."""
    return _near(path, Path.exists)


def _near(path: Path, fits: Callable[[Path], bool]) -> str:
    near = _nearest(path, fits)
    return "" if near is None else f"; did you mean {str(near)!r}?"


def _nearest(path: Path, fits: Callable[[Path], bool]) -> Path | None:
    if fits(path.expanduser()):
        return path
    if not path.name:  # the root, or the folder that we are in
        return None
    beside = _nearest(path.parent, Path.is_dir)
    if beside is None:
        return None
    if fits((beside / path.name).expanduser()):
        return beside / path.name
    names = [one.name for one in beside.expanduser().iterdir() if fits(one)]
    close = difflib.get_close_matches(path.name, names, n=1)
    return beside / close[0] if close else None


class PlaceError(ValueError):
    """A file or module of one's own cannot be loaded; the message says which and why."""


def portable(spec: str) -> str:
    """The same spelling with a file's whole path, for processes that start elsewhere."""
    name, mark, query = spec.partition("?")
    file, colon, thing = name.rpartition(":")
    if colon and file.endswith(".py"):
        return f"{Path(file).expanduser().resolve()}:{thing}{mark}{query}"
    return spec


def module_at(where: str) -> ModuleType:
    """The module of that name, or the file of that path as a module."""
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise PlaceError(
                f"{where}: there is no such module ({error}); a file is written as {where}.py:NAME"
            ) from error
    path = _file_at(where)
    return _load_file(path, path.stat().st_mtime_ns)


def failed_with(thing: Any, error: BaseException) -> str:
    """How a function or class of somebody else's failed, for a message: the error, and the last line of its own file, whatever it had
    called there."""
    file = None
    with suppress(TypeError, OSError):  # typed at a prompt
        file = inspect.getsourcefile(thing)
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((frame for frame in reversed(frames) if frame.filename == file), frames[-1])
    return f"failed with {type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"


def check_place(spec: str) -> None:
    """Refuse `my_file.py:name` where the file is not there, is not Python, or never mentions such a name. The file is read, not run."""
    where, _, name = spec.partition("?")[0].rpartition(":")
    if not where.endswith(".py"):
        return
    path = _file_at(where)
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise PlaceError(f"{where}{line}: this is not Python ({getattr(error, 'msg', error)})") from error
    known: set[str] = set()
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                known.add(node.name)
            case ast.Name(ctx=ast.Store()):
                known.add(node.id)
            case ast.Import() | ast.ImportFrom():
                known |= {(one.asname or one.name).partition(".")[0] for one in node.names}
    if name not in known and "*" not in known:
        has = f" (it has {', '.join(defined)})" if defined else ""
        raise PlaceError(f"there is no {name!r} in {where}{did_you_mean(name, known)}{has}")


def _file_at(where: str) -> Path:
    path = Path(where).expanduser().resolve()
    if not path.is_file():
        beside = sorted(one.name for one in path.parent.glob("*.py"))[:8] if path.parent.is_dir() else []
        raise PlaceError(
            f"{where}: there is no such file" + (f" (there are: {', '.join(beside)})" if beside else "")
        )
    return path


@cache
def _load_file(path: Path, _changed: int) -> ModuleType:
    """A file as a module of its own name, loaded again only when it has changed."""
    name = f"delta_rlvr_rules_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        # Not by the spec's loader: it runs a compiled file in __pycache__ that may be of another edit in the same second.
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except Exception as error:
        del sys.modules[name]
        raise PlaceError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return module
