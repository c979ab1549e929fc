"""What can be read off a text as Python: whether it parses, what it binds, what it uses and never binds.

Runs in the grader on texts that nobody trusts: nothing is executed, and every error of the parser is an answer.
"""

from __future__ import annotations

import ast
import builtins
import os
import symtable
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeVar

LONGEST_PARSED = 100_000  # characters; parsing takes about a second a megabyte
LONG_LINE = 200  # characters
T = TypeVar("T")
GIVEN = {*dir(builtins), "__name__", "__file__"}
TALKS = {"print", "input", "open", "exit", "quit", "__name__"}
PASSIVE = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass),
    *(ast.Assign, ast.AnnAssign),
)
ACTIONS = (ast.Call, ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
ORDERS = {"O", "o", "Theta", "Omega", "\u0398", "\u03a9"}  # of growth: O(n log n)

# A strange escape in a sample's string is no news for the trainer's terminal.
for _category in (SyntaxWarning, DeprecationWarning):
    warnings.filterwarnings("ignore", category=_category, module="<completion>")

# Python 3.11 counts the depth of all threads' trees together, so that two that are made at once may fail (python/cpython#106905).
_ONE_AT_A_TIME = threading.RLock()


def _after_fork() -> None:
    global _ONE_AT_A_TIME
    _ONE_AT_A_TIME = threading.RLock()  # a thread that held it does not exist in the child


os.register_at_fork(after_in_child=_after_fork)


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


def kept_for_lines(function: Callable[[str], T]) -> Callable[[str], T]:
    """A line is looked at again and again, in pieces of a completion that overlap: what it gave is kept, and not to be changed."""
    kept = lru_cache(maxsize=2000)(function)
    return lambda text: kept(text) if len(text) < LONG_LINE else function(text)


@kept_for_lines
def names_of(text: str) -> tuple[set[str], set[str]]:
    """Names that a text binds at the top level of a module, and names that it takes from there: the compiler's own table of them."""
    binds: set[str] = set()
    takes: set[str] = set()
    try:
        scopes = [symtable.symtable(text, "<completion>", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return binds, takes
    for scope in scopes:  # grows as it goes
        scopes += scope.get_children()
        is_top = scope.get_type() == "module"
        for symbol in scope.get_symbols():
            if is_top or symbol.is_global():
                if symbol.is_assigned() or symbol.is_imported():
                    binds.add(symbol.get_name())
                if symbol.is_referenced():
                    takes.add(symbol.get_name())
    return binds, takes


@dataclass(frozen=True)
class Statement:
    """A statement of the top level with its decorators; several where they share a line."""

    nodes: list[ast.stmt]
    first: int
    last: int
    """Its lines, counted from 0; `last` is the one behind."""
    text: str

    @cached_property
    def names(self) -> tuple[set[str], set[str]]:
        return names_of(self.text)

    @property
    def binds(self) -> set[str]:
        """ "*" for all of a module."""
        stars = _stars(self.nodes) if "*" in self.text else set[str]()
        return set() if all(map(is_bare_annotation, self.nodes)) else self.names[0] | stars

    @property
    def takes(self) -> set[str]:
        return self.names[1]

    @property
    def fills(self) -> set[str]:
        """Names of things that it may change: `table.update(more)`, but neither a test nor a conversation with a user."""
        changes = any(map(_acts, self.nodes)) and not any(isinstance(node, ast.Assert) for node in self.nodes)
        return self.takes if changes and TALKS.isdisjoint(self.takes) else set()


@dataclass(frozen=True)
class Block:
    """A piece of a completion that may be code."""

    text: str
    tree: ast.Module | None
    """None where it is not Python."""
    says_python: bool = False
    """Its fence says so."""

    @cached_property
    def statements(self) -> list[Statement]:
        """What stands at its top level, in order."""
        lines, found = self.text.split("\n"), list[Statement]()
        for node in self.tree.body if self.tree is not None else ():
            decorators = [each.lineno for each in getattr(node, "decorator_list", [])]
            first, last = min([node.lineno, *decorators]) - 1, node.end_lineno or node.lineno
            nodes = [node]
            if found and first < found[-1].last:
                before = found.pop()
                nodes, first = [*before.nodes, node], before.first
            found.append(Statement(nodes, first, last, "" if len(nodes) > 1 else "\n".join(lines[first:last])))
        return [each if each.text else replace(each, text="\n".join(lines[each.first : each.last])) for each in found]

    def without(self, statements: Iterable[Statement]) -> str:
        """Its text with these lines left empty."""
        lines = self.text.split("\n")
        for statement in statements:
            lines[statement.first : statement.last] = [""] * (statement.last - statement.first)
        return "\n".join(lines)

    @cached_property
    def names(self) -> tuple[set[str], set[str]]:
        """What it binds at its top level, "*" for all of a module, and what it takes from there."""
        if self.tree is None:
            return set(), set()
        # "Time: O(n)" binds nothing, but the compiler's table says that it does.
        bare = [each for each in self.statements if all(map(is_bare_annotation, each.nodes))]
        binds, takes = names_of(self.without(bare) if bare else self.text)
        return binds | _stars([self.tree]), takes

    @property
    def binds(self) -> set[str]:
        return self.names[0]

    @property
    def lacks(self) -> set[str]:
        """Names that it takes from the top level and that nothing binds there."""
        binds, takes = self.names
        return set() if "*" in binds else takes - binds - GIVEN

    @cached_property
    def acts(self) -> bool:
        """Whether running it does more than to bind names: a sentence may parse, but calls nothing."""
        return self.tree is not None and any(map(_acts, self.tree.body))

    @property
    def is_code(self) -> bool:
        return self.acts or bool(self.binds)


def _stars(nodes: Sequence[ast.AST]) -> set[str]:
    imports = (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.ImportFrom))
    return {"*" for each in imports if each.names[0].name == "*"}


def _acts(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return any(isinstance(part, ACTIONS) for part in ast.walk(node))
    targets = node.targets if isinstance(node, ast.Assign) else []
    return not isinstance(node, PASSIVE) or any(isinstance(each, (ast.Attribute, ast.Subscript)) for each in targets)


def is_bare_annotation(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is None


def is_remark(statement: Statement, known: set[str], needed: set[str]) -> bool:
    """Whether it is a line of prose that happens to parse: "Done", "- a list", "Time: O(n)", "Input: n = 5".

    It uses names that nothing binds, and it does nothing; a line that does something is the program's, even where it fails.
    """
    if len(statement.nodes) > 1 or statement.takes <= known:
        return False
    node = statement.nodes[0]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        # A variable of the program is used or bound elsewhere; a word before a colon is not.
        annotation = {part.id for part in ast.walk(node.annotation) if isinstance(part, ast.Name)}
        others = needed if node.value is not None else needed | known
        is_word = node.value is None or node.target.id.istitle()
        return is_word and node.target.id not in others and not annotation <= known
    calls = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
    if isinstance(node, (ast.Expr, ast.Assign)) and calls and statement.binds.isdisjoint(needed):
        return all(isinstance(call, ast.Name) and call.id in ORDERS - known for call in calls)
    return isinstance(node, ast.Expr) and not _acts(node)


def defines(block: Block, name: str) -> bool:
    """Whether it gives the function a body: at its top level, or as a method of LeetCode's `class Solution`."""
    binding = [node for each in block.statements if name in each.binds for node in each.nodes]
    for statement in block.statements:
        for node in statement.nodes:
            if isinstance(node, ast.ClassDef) and node.name == "Solution":
                binding += [each for each in node.body if name in _bound_in_class(each)]
    return any(not isinstance(node, (ast.Import, ast.ImportFrom)) and not _is_stub(node) for node in binding)


def _bound_in_class(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {getattr(node, "name", ""), *(target.id for target in targets if isinstance(target, ast.Name))}


def _is_stub(node: ast.AST) -> bool:
    """A signature without a body, as it stands in a task's statement."""
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and all(
        isinstance(each, ast.Pass)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        or (isinstance(each, ast.Raise) and "NotImplementedError" in ast.dump(each))
        for each in node.body
    )
