"""What can be read off a text as Python: whether it parses, what it binds, what it uses and never binds.

Runs in the grader on texts that nobody trusts: nothing is executed, and every error of the parser is an answer.
"""

from __future__ import annotations

import ast
import builtins
import symtable
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

LONGEST_PARSED = 100_000  # characters; parsing takes about a second a megabyte
GIVEN = {*dir(builtins), "__name__", "__file__"}
PASSIVE = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass),
    *(ast.Assign, ast.AnnAssign),
)
# What a name that is bound may stand in; no other expression is looked into.
BINDING = (*(ast.stmt, ast.ExceptHandler, ast.match_case, ast.withitem), *(ast.Tuple, ast.List, ast.Starred))

# A strange escape in a sample's string is no news for the trainer's terminal.
for _category in (SyntaxWarning, DeprecationWarning):
    warnings.filterwarnings("ignore", category=_category, module="<completion>")

# Python 3.11 counts the depth of all threads' trees together, so that two that are made at once may fail (python/cpython#106905).
_ONE_AT_A_TIME = threading.RLock()


def parse(text: str) -> ast.Module | SyntaxError:
    """The syntax tree, or why there is none."""
    if len(text) > LONGEST_PARSED:
        return SyntaxError(f"longer than {LONGEST_PARSED} characters")
    try:
        with _ONE_AT_A_TIME:
            return ast.parse(text, "<completion>")
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error))


@dataclass(frozen=True)
class Block:
    """A piece of a completion that may be code."""

    text: str
    tree: ast.Module | None
    """None where it is not Python."""
    says_python: bool = False
    """Its fence says so."""

    @cached_property
    def binds(self) -> set[str]:
        """Names that its top level binds."""
        return set() if self.tree is None else {name for node in self.tree.body for name in bound(node)}

    @cached_property
    def lacks(self) -> set[str]:
        """Names that it takes from the top level and that nothing binds there."""
        try:
            scopes = [symtable.symtable(self.text, "<completion>", "exec")]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return set()
        names, known = set(), GIVEN | self.binds
        if "*" in known:  # from module import *
            return set()
        for scope in scopes:  # grows as it goes
            scopes += scope.get_children()
            is_top = scope.get_type() == "module"
            for symbol in scope.get_symbols():
                if symbol.is_assigned() and (is_top or symbol.is_declared_global()):
                    known.add(symbol.get_name())
                if symbol.is_referenced() and (is_top or symbol.is_global()):
                    names.add(symbol.get_name())
        return names - known

    @cached_property
    def acts(self) -> bool:
        """Whether running it does more than to bind names: a sentence may parse, but calls nothing."""
        return self.tree is not None and any(map(_acts, self.tree.body))

    @property
    def is_code(self) -> bool:
        return self.acts or bool(self.binds)


def _acts(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return any(isinstance(part, (ast.Call, ast.Await)) for part in ast.walk(node))
    return not isinstance(node, PASSIVE)


def is_remark(node: ast.stmt) -> bool:
    """Whether a line of prose could parse as this: "Done", "- a list", "Time: O(n)"."""
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    return isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)


def bound(statement: ast.AST) -> Iterator[str]:
    """Names that a statement binds in the scope that it stands in; "*" for all of a module."""
    waiting = [statement]
    while waiting:  # no recursion: a sum of a thousand terms is a thousand deep
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, BINDING) and not (isinstance(node, ast.AnnAssign) and node.value is None):
            waiting += ast.iter_child_nodes(node)


def defines(block: Block, name: str) -> bool:
    """Whether it gives the function a body: at its top level, or as a method of LeetCode's `class Solution`."""
    statements = [] if block.tree is None else list(block.tree.body)
    for node in statements[:]:
        if isinstance(node, ast.ClassDef) and node.name == "Solution":
            statements += node.body
    defining = (node for node in statements if not isinstance(node, (ast.Import, ast.ImportFrom)))
    return any(name in bound(node) and not _is_stub(node) for node in defining)


def _is_stub(node: ast.AST) -> bool:
    """A signature without a body, as it stands in a task's statement."""
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and all(
        isinstance(each, ast.Pass)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        or (isinstance(each, ast.Raise) and "NotImplementedError" in ast.dump(each))
        for each in node.body
    )


def lines_of(text: str, node: ast.stmt) -> str:
    """The source of a statement with its decorators."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    return "\n".join(text.split("\n")[first - 1 : node.end_lineno])
