"""`delta-rlvr methods`: the methods by name, what one can be set to, and whether a user rule passes the checks."""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import fields
from itertools import zip_longest

from delta_rlvr.adapters.engines import engines_for
from delta_rlvr.objectives import Method, all_methods, get_method

_COLUMNS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("method", nargs="?", help="one method (or my_rules.py:MyRule): what it needs and what can be set")
    add(
        "--check",
        action="store_true",
        help="try the method's rule on small batches: padding, order, packing, ranks, empty sides and the like",
    )


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    if options.method is None:
        if options.check:
            raise ValueError(
                "--check: name the method, as in `delta-rlvr methods my_rules.py:MyRule --check`"
            )
        print("\n".join(listed(all_methods().values())))
        return 0
    method = get_method(options.method)
    if options.check:
        return check(method)
    show(method)
    return 0


def listed(methods: Iterable[Method]) -> list[str]:
    """Every method with its paper, what it needs and what it is, in lines that fit a terminal."""
    rows = [("name", "paper", "needs", "what")]
    rows += [(one.name, one.paper, " ".join(one.rule.needs) or "-", one.about) for one in methods]
    widths = [max(len(row[0]) for row in rows), 16, max(len(row[2]) for row in rows)]
    widths.append(max(20, _COLUMNS - sum(widths) - 2 * len(widths)))
    lines = []
    for row in rows:
        cells = [textwrap.wrap(text, width) for text, width in zip(row, widths, strict=True)]
        laid_out = zip_longest(*cells, fillvalue="")
        lines += ["  ".join(map(str.ljust, parts, widths)).rstrip() for parts in laid_out]
    return lines


def check(method: Method) -> int:
    """Try the method's rule; what it was tried on, or what it broke."""
    from delta_rlvr.testing import RuleBroken, check_rule

    try:
        checks = check_rule(method.rule)
    except RuleBroken as error:
        print(error, file=sys.stderr)
        return 1
    for one in checks:
        print(f"ok  {one}")
    print(f"{method.name} passes all {len(checks)} checks.")
    return 0


def show(method: Method) -> None:
    """One method in words."""
    print(f"{method.name}: {method.about or type(method.rule).__name__}")
    if method.paper:
        print(f"from: {method.paper}")
    print(f"needs: {', '.join(method.rule.needs) or 'nothing beside advantages and lengths'}")
    engines = [f"{one.name}: {one.where}" for one in engines_for(method)]
    print(
        "\n  ".join(["runs on:", *engines])
        if engines
        else "runs on: no engine; a loop of your own can give what it needs"
    )
    for owner in (method.rule, method.surrogate):
        wanted = method.surrogate.settings if owner is method.surrogate else None
        described = _field_docs(type(owner))
        for one in fields(owner):
            if wanted is None or one.name in wanted:
                print(f"  {one.name}={getattr(owner, one.name)}  {described.get(one.name, '')}".rstrip())


def _field_docs(kind: type) -> dict[str, str]:
    """The docstring under each field, where the source is at hand."""
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
