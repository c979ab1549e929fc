"""`delta-rlvr methods`: the methods by name, what one can be set to, and whether a rule of one's own keeps to the rules."""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import textwrap
from dataclasses import fields

from delta_rlvr.objectives import Method, all_methods, get_method


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "method", nargs="?", help="one method (or my_rules.py:MyRule): what it needs and what can be set"
    )
    parser.add_argument(
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
        for method in all_methods().values():
            print(f"{method.name:20} {method.paper:16} {method.about}")
        return 0
    method = get_method(options.method)
    if options.check:
        return check(method)
    show(method)
    return 0


def check(method: Method) -> int:
    """Try the method's rule; what it was tried on, or what it broke."""
    from delta_rlvr.testing import RuleBroken, check_rule

    try:
        for passed in check_rule(method.rule):
            print(f"ok  {passed}")
    except RuleBroken as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def show(method: Method) -> None:
    """One method in words."""
    print(f"{method.name}: {method.about or type(method.rule).__name__}")
    if method.paper:
        print(f"from: {method.paper}")
    print(f"needs: {', '.join(method.rule.needs) or 'nothing beside advantages and lengths'}")
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
