"""Names on a command line, checked before torch and an engine are loaded, so that a slip is reported at once and not after seconds."""

from __future__ import annotations

import ast
import difflib
import importlib.util
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from itertools import zip_longest
from pathlib import Path
from typing import Any

import delta_rlvr
from delta_rlvr.hints import did_you_mean, near_file
from delta_rlvr.models.load import check_model_name
from delta_rlvr.tasks.registry import check_rows, check_task_name
from delta_rlvr.tasks.templates import chosen_template
from delta_rlvr.user_code import check_place
from delta_rlvr.words import comma_list, command_line

_PLUGINS = "delta_rlvr.methods"


def check_names(command: str, arguments: Sequence[str]) -> None:
    """Refuse wrong names of methods, tasks, templates, rewards and models, as far as they can be known without loading anything.
    Whatever passes is checked again, in full, where it is used."""
    for name in [
        *_values(arguments, "method"),
        *_listed(arguments, "methods"),
        *_listed(arguments, "show_methods"),
    ]:
        check_method_name(name)
    check_options(command, arguments)
    rewards = list(_values(arguments, "reward"))
    # Rows need no answer where a reward of one's own judges, which a settings file may name too.
    graded = not rewards and not list(_values(arguments, "config"))
    for spec in _values(arguments, "task"):
        check_task_name(spec)
        check_rows(spec, graded)
    for spec in rewards:
        if "," in spec:
            raise ValueError(f"--reward {spec}: give one function; it may add several rewards up")
        check_place(spec)
    name_of, text, extract = (
        next(_values(arguments, name), None) for name in ("template", "template_text", "extract")
    )
    chosen_template(name_of, text, extract, graded)
    if not list(_values(arguments, "server")):  # which has names of its own
        for name in _values(arguments, "model"):
            check_model_name(name)
    check_trackers([*_listed(arguments, "report_to")])
    for option in ("config", "rollouts"):
        for file in _values(arguments, option):
            if not Path(file).is_file():
                raise FileNotFoundError(f"--{option} {file}: there is no such file{near_file(Path(file))}")
    if "--compare" not in arguments:  # there, they are names in stored results
        for text in _values(arguments, "benchmarks"):
            check_benchmarks(text, graded)


def check_benchmarks(text: str, graded: bool) -> None:
    """Refuse what --benchmarks names and nothing has."""
    from delta_rlvr.evaluate.benchmarks import check_benchmark

    names = comma_list(text)
    try:
        for name in names:
            check_benchmark(name, graded)
    except (ValueError, OSError) as error:
        if len(names) == 1 or "?" not in text:
            raise
        raise ValueError(
            f"{error}. (Names have commas between them: a comma inside a setting is written %2C, a line break %0A. "
            "--template_text takes both as they are)"
        ) from None


def check_options(command: str, arguments: Sequence[str]) -> None:
    """Refuse an option of `train` that nothing knows. The parser itself, which knows them all for certain, loads TRL to know them."""
    own = _OWN_OPTIONS.get(command)
    if own is None or not (fields := train_option_names()):
        return
    known = fields.union(own)
    for word in arguments:
        name = word.removeprefix("--").partition("=")[0].replace("-", "_")
        # Names may be shortened, as argparse has it, and a switch that is on by default has a --no_ form.
        if not word.startswith("--") or any(one.startswith(name.removeprefix("no_")) for one in known):
            continue
        hint = train_option_hint(name, known, next(_values(arguments, "method"), "delta"), _rule_settings())
        raise ValueError(f"there is no option {word.partition('=')[0]}; {hint}")


def train_option_hint(name: str, known: Iterable[str], method: str, settings: Container[str]) -> str:
    """What may be meant by an option that `train` does not have; `settings` are those of the method's rule."""
    setting = name.replace("-", "_")
    if setting in settings:
        spec = f"{method}{'&' if '?' in method else '?'}{setting}=VALUE"
        return f"settings of a method follow its name: --method {command_line(spec)}"
    return option_hint(name, {one: f"--{one}" for one in known}, "delta-rlvr train --help-all")


def option_hint(name: str, known: Mapping[str, str], lists_them: str) -> str:
    """What may be meant by an option that a command does not have. `known`: how each is written, by its name without dashes in
    front; `lists_them`: the command that lists them."""
    spelled = {one.replace("-", "_"): written for one, written in known.items()}
    wanted = name.lstrip("-").replace("-", "_")
    same = next((names for names in _SAME_THING if wanted in names), ())
    close = [one for one in same if one in spelled] or difflib.get_close_matches(wanted, spelled, 1)
    return f"did you mean {spelled[close[0]]}?" if close else f"`{lists_them}` lists them"


_SAME_THING = (
    ("max_completion_length", "max_tokens", "max_new_tokens"),
    ("k", "samples_per_question", "eval_samples", "num_samples", "num_generations"),
    ("limit", "eval_problems"),
    ("benchmarks", "task", "tasks", "benchmark"),
    ("output", "output_dir"),
    ("method", "methods"),
    ("seed", "seeds"),
)
"""Options that say the same in different commands."""


_OWN_OPTIONS = {"train": ("config",), "compare": ("config", "methods", "seeds")}
"""The commands that take the options of `train`, and what each takes besides. (`doctor` has a list of its own of what to change.)"""


@cache
def train_option_names() -> frozenset[str]:
    """Every option of `train`, read off the source: importing TRL takes seconds. Empty where that source cannot be found."""
    package = Path(delta_rlvr.__file__).parent
    places = [
        package / "commands" / "options.py",
        package / "adapters" / "trl" / "config.py",
        *_sources("trl", "trainer/grpo_config.py", "trainer/base_config.py"),
        *_sources("transformers", "training_args.py"),
    ]
    if not all(place.is_file() for place in places):
        return frozenset()
    return frozenset(name for place in places for name in _field_names(place))


def _sources(package: str, *files: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(package)
    folder = Path(spec.origin).parent if spec is not None and spec.origin else Path("absent")
    yield from (folder / file for file in files)


def _field_names(source: Path) -> Iterator[str]:
    """Fields of the dataclasses in a file."""
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                match line:
                    case ast.AnnAssign(target=ast.Name(id=name)):
                        yield name


@cache
def _rule_settings() -> frozenset[str]:
    """The settings of every rule, by name alone."""
    rules = (Path(delta_rlvr.__file__).parent / "credit" / "rules").glob("*.py")
    return frozenset(name for file in rules for name in _field_names(file))


def check_method_name(spec: str) -> None:
    """Refuse a name that no method has, and a rule that is not in the file named for it. Other packages are not looked into here."""
    name = spec.partition("?")[0]
    check_place(name)
    if ":" in name or name.endswith(".py") or entry_points(group=_PLUGINS):
        return
    known = method_names()
    if name not in known:
        raise ValueError(
            f"unknown method {name!r}{did_you_mean(name, known)} (there are: {', '.join(known)})"
        )


@cache
def method_names() -> tuple[str, ...]:
    """Every method's name, read off the source (once: that takes 50 ms): importing the rules would import torch."""
    package = Path(delta_rlvr.__file__).parent
    files = [package / "objectives" / "methods.py", *sorted((package / "credit" / "rules").glob("*.py"))]
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files)
    return tuple(name for tree in trees for name in _registered(tree))


def _registered(tree: ast.Module) -> Iterator[str]:
    """First arguments of `register(...)` and of `Method(...)`; for a loop that registers, the first entry of each of its rows."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="register" | "Method"), args=[ast.Constant(value=str(name)), *_]):
                yield name
            case ast.For(
                iter=ast.Tuple(elts=rows),
                body=[ast.Expr(value=ast.Call(func=ast.Call(func=ast.Name(id="register"))))],
            ):
                for row in rows:
                    match row:
                        case ast.Tuple(elts=[ast.Constant(value=str(name)), *_]):
                            yield name


_TRACKERS = ("wandb", "tensorboard", "trackio", "mlflow", "comet_ml")


def check_trackers(report_to: Any) -> None:
    """Refuse a tracker that is not installed, before anything is loaded for it."""
    for name in [report_to] if isinstance(report_to, str) else report_to or []:
        alone = name == "tensorboard" and importlib.util.find_spec("tensorboardX") is not None
        if name in _TRACKERS and importlib.util.find_spec(name) is None and not alone:
            raise ValueError(f"--report_to {name}: it is not installed; pip install {name.replace('_', '-')}")


def _values(arguments: Sequence[str], option: str) -> Iterator[str]:
    """What an option is given: `--option value` or `--option=value`."""
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
