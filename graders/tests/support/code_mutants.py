"""Wrong solutions made from right ones: one small change to the syntax tree each.

A change may leave the behaviour as it was. `plain_harness` decides that independently of the grader: it runs mutant
and tests together in one ordinary interpreter, the way HumanEval's own script does.
"""

from __future__ import annotations

import ast
import copy
import random
import subprocess
import sys
from collections.abc import Iterator

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv}
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


def changes(node: ast.AST) -> Iterator[tuple[str, object]]:
    """What can be done to a node: (what, a function that does it in place)."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield "comparison", lambda n: n.ops.__setitem__(0, COMPARISONS[type(n.ops[0])]())
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "off by one", lambda n: setattr(n, "value", n.value + 1)
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) == 1:
        yield "constant", lambda n: setattr(n, "value", "?")
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", lambda n: setattr(n, "value", not n.value)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield "operator", lambda n: setattr(n, "op", OPERATORS[type(n.op)]())
    if isinstance(node, ast.BinOp) and isinstance(node.op, ORDERED):
        yield "operands", lambda n: n.__dict__.update(left=n.right, right=n.left)
    if isinstance(node, ast.BoolOp):
        yield "logic", lambda n: setattr(n, "op", ast.Or() if isinstance(n.op, ast.And) else ast.And())
    if isinstance(node, ast.Return) and node.value is not None:
        yield "return None", lambda n: setattr(n, "value", ast.Constant(None))


def mutants(source: str, count: int, seed: int) -> list[tuple[str, str]]:
    """Up to `count` different (what, source), chosen by the seed."""
    tree = ast.parse(source)
    sites = [(number, which) for number, node in enumerate(ast.walk(tree)) for which, _ in enumerate(changes(node))]
    random.Random(seed).shuffle(sites)
    made: dict[str, str] = {}
    for number, which in sites:
        changed = copy.deepcopy(tree)
        node = list(ast.walk(changed))[number]
        what, change = list(changes(node))[which]
        change(node)
        made.setdefault(ast.unparse(ast.fix_missing_locations(changed)), what)
        if len(made) == count:
            break
    return [(what, text) for text, what in made.items()]


LIMIT = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"


def plain_harness(program: str, seconds: float = 8.0) -> bool:
    """Whether program and tests together run to their end in an ordinary interpreter."""
    command = [sys.executable, "-I", "-S", "-c", LIMIT + program]
    quiet = subprocess.DEVNULL
    try:
        return (
            subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=seconds, check=False).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False
