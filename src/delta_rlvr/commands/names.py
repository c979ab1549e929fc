"""Check the names on a command line before torch and an engine are loaded, so that a typo is reported at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from itertools import zip_longest
from pathlib import Path

import delta_rlvr
from delta_rlvr.hints import did_you_mean, near_file
from delta_rlvr.models.load import check_model_name
from delta_rlvr.tasks.registry import check_rows, check_task_name
from delta_rlvr.tasks.templates import chosen_template
from delta_rlvr.training.options import check_trackers
from delta_rlvr.user_code import PLUGINS, check_place
from delta_rlvr.words import comma_list


def check_names(arguments: Sequence[str], rows: bool = True) -> None:
    """Refuse wrong names of methods, tasks, templates, rewards and models, as far as they can be checked without loading anything.
    The full check is made where each name is used. `rows`: whether to read the first row of a task's file."""
    for name in [*_values(arguments, "method"), *_listed(arguments, "methods"), *_listed(arguments, "show_methods")]:
        check_method_name(name)
    rewards = list(_values(arguments, "reward"))
    # Rows need no answer if there is a custom reward. A settings file may name one too.
    graded = not rewards and not list(_values(arguments, "config"))
    for spec in _values(arguments, "task"):
        check_task_name(spec)
        if rows:
            check_rows(spec, graded)
    for spec in rewards:
        if "," in spec:
            raise ValueError(f"reward={spec!r}: give one function; it can return the sum of several rewards")
        check_place(spec)
    name_of, text, extract = (next(_values(arguments, name), None) for name in ("template", "template_text", "extract"))
    chosen_template(name_of, text, extract, graded)
    if not list(_values(arguments, "server")):  # a server has its own model names
        for name in _values(arguments, "model"):
            check_model_name(name)
    check_trackers([*_listed(arguments, "report_to")])
    for option in ("config", "rollouts"):
        for file in _values(arguments, option):
            if Path(file).is_dir():
                raise IsADirectoryError(f"--{option} {file}: is a folder: name a file")
            if not Path(file).is_file():
                raise FileNotFoundError(f"{option}={file!r}: there is no such file{near_file(Path(file))}")
    if "--compare" not in arguments:  # there they name benchmarks in stored results
        for text in _values(arguments, "benchmarks"):
            check_benchmarks(text, graded)


def check_benchmarks(text: str, graded: bool) -> None:
    """Refuse names in --benchmarks that do not exist."""
    from delta_rlvr.evaluate.benchmarks import check_benchmark

    names = comma_list(text)
    try:
        for name in names:
            check_benchmark(name, graded)
    except (ValueError, OSError) as error:
        if len(names) == 1 or "?" not in text:
            raise
        raise ValueError(
            f"{error}. (Commas separate the names: write a comma inside a setting as %2C and a line break as %0A, or use "
            "--template_text, which takes both as they are)"
        ) from None


def check_method_name(spec: str) -> None:
    """Refuse an unknown method, and a user rule that its file does not have. Methods of installed plug-ins are not checked here."""
    name = spec.partition("?")[0]
    check_place(name)
    if ":" in name or name.endswith(".py") or entry_points(group=PLUGINS):
        return
    known = method_names()
    if name not in known:
        several = f"; several are compared by: delta-rlvr compare --methods {name}" if "," in name else ""
        raise ValueError(
            f"unknown method {name!r}{several or did_you_mean(name, known)} (`delta-rlvr methods` lists them)"
        )


@cache
def method_names() -> tuple[str, ...]:
    """Return the names of all methods. They are read from the source, which takes 50 ms: importing the rules would import torch."""
    package = Path(delta_rlvr.__file__).parent
    files = [package / "objectives" / "methods.py", *sorted((package / "credit" / "rules").glob("*.py"))]
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files)
    return tuple(name for tree in trees for name in _registered(tree))


def _registered(tree: ast.Module) -> Iterator[str]:
    """Yield the first argument of each `register(...)` and `Method(...)`, which is written out for that."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="register" | "Method"), args=[ast.Constant(value=str(name)), *_]):
                yield name


def _values(arguments: Sequence[str], option: str) -> Iterator[str]:
    """Yield the values given to an option, as `--option value` or `--option=value`."""
    for word, following in zip_longest(arguments, arguments[1:]):
        name, mark, value = word.partition("=")
        if name.replace("-", "_") == f"__{option}":
            if mark:
                yield value
            elif following is not None and not following.startswith("--"):
                yield following


def _listed(arguments: Sequence[str], option: str) -> Iterator[str]:
    for text in _values(arguments, option):
        yield from comma_list(text)
