"""`delta-rlvr methods`: list the methods, show the settings of one, and check a user rule."""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import fields

from delta_rlvr.adapters.engines import engines_for
from delta_rlvr.credit.rule import WIDER
from delta_rlvr.objectives import Method, all_methods, get_method
from delta_rlvr.weight_words import weights_in_effect

_COLUMNS = 80
_FIRST = ("delta", "dapo")
_PAPERS = ("arXiv", "after arXiv")
_GROUPS: tuple[tuple[str, Callable[[Method], bool]], ...] = (
    ("to begin with", lambda one: one.name in _FIRST),
    ("baselines of the DelTA paper", lambda one: one.paper.startswith("App. J")),
    ("DelTA, changed in one place", lambda one: one.name.startswith("delta-")),
    ("methods of other papers", lambda one: one.paper.startswith("arXiv")),
    ("perfect or measured credit, as a reference", lambda one: not {"decisive", "measured"}.isdisjoint(one.rule.needs)),
    ("others", lambda one: True),
)
"""The headings of `delta-rlvr methods`. A method is listed under the first that applies."""
_FURTHER = (
    "`delta-rlvr methods NAME`: what the method needs, where it runs, its settings.",
    "`delta-rlvr methods my_rules.py:MyRule --check`: test your own rule.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("method", nargs="?", help="show what this method (or my_rules.py:MyRule) needs, and its settings")
    add(
        "--check",
        action="store_true",
        help="test the method's rule on small batches: padding, order, packing, ranks, empty sides and so on",
    )


def run(options: argparse.Namespace) -> int:
    if options.method is None:
        if options.check:
            raise ValueError("--check: name the method, as in `delta-rlvr methods my_rules.py:MyRule --check`")
        print("\n".join(listed(all_methods().values())))
        return 0
    method = get_method(options.method)
    if options.check:
        return check(method)
    show(method)
    return 0


def grouped(methods: Iterable[Method]) -> dict[str, list[Method]]:
    """Return the methods by heading, those to begin with first."""
    groups: dict[str, list[Method]] = {heading: [] for heading, _ in _GROUPS}
    for one in methods:
        groups[next(heading for heading, belongs in _GROUPS if belongs(one))].append(one)
    groups[_GROUPS[0][0]].sort(key=lambda one: _FIRST.index(one.name))
    return {heading: group for heading, group in groups.items() if group}


def listed(methods: Iterable[Method]) -> list[str]:
    """Return the lines that list the methods in groups, each with what it is and its paper."""
    groups = grouped(methods)
    column = max(len(one.name) for group in groups.values() for one in group) + 4
    lines = []
    for heading, group in groups.items():
        lines.append(f"{heading}:")
        for one in group:
            about = f"{one.about} ({one.paper})" if one.paper.startswith(_PAPERS) else one.about
            lead = f"  {one.name}".ljust(column)
            lines += textwrap.wrap(about, _COLUMNS, initial_indent=lead, subsequent_indent=" " * column)
    return [*lines, "", *_FURTHER]


def check(method: Method) -> int:
    """Test the method's rule, print what passed or what failed, and return the exit code."""
    from delta_rlvr.testing import RuleBroken, check_rule, spread_of_weights

    try:
        checks = check_rule(method.rule)
    except RuleBroken as error:
        print(error, file=sys.stderr)
        return 1
    for one in checks:
        print(f"ok  {one}")
    print(f"{method.name} passes all {len(checks)} checks.")
    if not method.rule.constant:
        mean, std = spread_of_weights(method.rule)
        promised = " (over all tokens it is one)" if method.rule.mean_one else ""
        print(
            f"Its weights on tokens with an advantage, in random batches: mean {mean:.4g}{promised}, standard deviation {std:.3g}."
        )
        if warning := weights_in_effect(mean, std, digits=4):
            print(f"warning: {warning}")
        elif not method.rule.mean_one and abs(mean - 1) > 0.1:
            print("note: the mean is not one, which scales the loss: divide by the mean, unless that is meant.")
    return 0


def show(method: Method) -> None:
    """Print one method: what it is, what it needs, where it runs, and its settings."""
    print(f"{method.name}: {method.about or type(method.rule).__name__}")
    if method.paper:
        in_paper = "the DelTA paper, " if method.paper.startswith(("Table", "Fig", "App")) else ""
        print(f"from: {in_paper}{method.paper.replace('beyond', 'ours')}")
    print(f"needs: {', '.join(method.rule.needs) or 'nothing beside advantages and lengths'}")
    engines = [f"{one.name}: {one.where}" for one in engines_for(method)]
    print(
        "\n  ".join(["runs on:", *engines])
        if engines
        else "runs on: no engine; your own training loop can supply what it needs"
    )
    known = {one.name: getattr(method.rule, one.name) for one in fields(method.rule)}
    rule = WIDER.get(type(method.rule), type(method.rule))(**known)  # it has every setting that the method takes
    for owner in (rule, method.surrogate):
        wanted = method.surrogate.settings if owner is method.surrogate else None
        described = _field_docs(type(owner))
        for one in fields(owner):
            if wanted is None or one.name in wanted:
                print(f"  {one.name}={getattr(owner, one.name)}  {described.get(one.name, '')}".rstrip())


def _field_docs(kind: type) -> dict[str, str]:
    """Return the docstring under each field, where the source is available."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError):
            continue
        assert isinstance(tree, ast.ClassDef)
        for statement, following in zip(tree.body, tree.body[1:], strict=False):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = " ".join(text.split())
    return docs
