"""Loading user code by its place: `my_file.py:name` or `my_package.module:name`."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from delta_rlvr.hints import did_you_mean
from rlvr_graders.verdict import printable

PLUGINS = "delta_rlvr.methods"
"""The entry-point group of other packages' rules: a rule class under its name, or a module that registers some."""


class PlaceError(ValueError):
    """User code cannot be loaded; the message says which file or module and why."""


def portable(spec: str) -> str:
    """Return the spec with a file's absolute path, for processes that start in another folder."""
    name, mark, query = spec.partition("?")
    file, colon, thing = name.rpartition(":")
    if colon and file.endswith(".py"):
        return f"{Path(file).expanduser().resolve()}:{thing}{mark}{query}"
    return spec


def module_at(where: str) -> ModuleType:
    """Return the module of this name, or the file at this path as a module."""
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise PlaceError(
                f"{where}: there is no such module ({error}); a file is written as {where}.py:NAME"
            ) from error
        except SystemExit as error:
            raise PlaceError(f"{where} {failed_with(None, error)}") from error
    path = _file_at(where)
    return _load_file(path, path.stat().st_mtime_ns)


def failed_with(thing: Any, error: BaseException) -> str:
    """Return how a user function or class failed: the error, and the last line of the user's file in its traceback."""
    file = None
    with suppress(TypeError, OSError):  # it was typed at a prompt
        file = inspect.getsourcefile(thing)
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((frame for frame in reversed(frames) if frame.filename == file), frames[-1])
    said = f": {error}" if str(error) else ""
    did = "called sys.exit" if isinstance(error, SystemExit) else f"failed with {type(error).__name__}{said}"
    return f"{printable(did)} ({frame.filename}, line {frame.lineno})"


def check_place(spec: str) -> None:
    """Refuse `my_file.py:name` if the file is missing, is not Python or does not define the name. The file is not run."""
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
        raise PlaceError(f"{where}: there is no such file" + (f" (there are: {', '.join(beside)})" if beside else ""))
    return path


@cache
def _load_file(path: Path, _changed: int) -> ModuleType:
    """Load a file as a module, again only when it has changed."""
    name = f"delta_rlvr_rules_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module here
    try:
        # The spec's loader could run an outdated file of __pycache__ after two edits in one second.
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        frames = traceback.extract_tb(error.__traceback__)
        line = next((f" (line {one.lineno})" for one in reversed(frames) if one.filename == str(path)), "")
        raise PlaceError(f"{path} cannot be loaded: {type(error).__name__}: {printable(str(error))}{line}") from error
    return module
