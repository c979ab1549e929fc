"""Which room imports which: the table in CONTRIBUTING.md, and what breaks the order of the rooms.

    python scripts/rooms.py           # make the table anew; ends with 1 where an import goes against the order or in a circle

Imports under TYPE_CHECKING never run, and do not count.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "delta_rlvr"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- rooms: begin -->\n", "<!-- rooms: end -->"

SHARED = (
    "exit_codes",
    "specs",
    "user_code",
    "hints",
    "words",
    "score_units",
    "terminal",
    "files",
    "versions",
    "rewards",
)
"""Modules beside the rooms that any of them may import; they import no room."""
ORDER = (
    *("credit", "objectives", "models", "tasks", "runs", "evaluate", "report", "adapters"),
    *("testing", "training", "doctor", "api", "commands", "cli"),
)
"""A room imports those before it."""

Edges = dict[str, set[str]]


def module_edges() -> Edges:
    """Every module of the package, with the modules that it imports, wherever in it."""
    files = {_module(path): path for path in SOURCE.rglob("*.py")}
    edges: Edges = {}
    for name, path in files.items():
        imported = set(_imports(ast.parse(path.read_text(encoding="utf-8")), name))
        # `from package import name`: the module of that name, where it is one.
        edges[name] = {one if one in files else one.rpartition(".")[0] for one in imported}
        edges[name] = {one for one in edges[name] if one in files and one != name}
    return edges


def room_edges(modules: Edges) -> Edges:
    """The rooms, in their order, with those that each imports; shared modules are left out."""
    edges: Edges = {room: set() for room in ORDER}
    for name, imported in modules.items():
        if room_of(name) in edges:
            edges[room_of(name)] |= {room_of(one) for one in imported} & set(ORDER) - {room_of(name)}
    return edges


def problems(modules: Edges) -> list[str]:
    """Imports against the order, rooms that have no place in it, and modules that import each other in a circle."""
    found = []
    for name, imported in sorted(modules.items()):
        room = room_of(name)
        if room not in (*ORDER, *SHARED, "", "__main__"):
            found.append(f"{name}: the room {room} has no place in the order (scripts/rooms.py)")
            continue
        if room in ("", "__main__"):
            continue  # the package's own door, which loads the core when it is asked for
        allowed = {*SHARED, "", *(ORDER[: ORDER.index(room) + 1] if room in ORDER else ())}
        found += [f"{name} imports {one}" for one in sorted(imported) if room_of(one) not in allowed]
    try:
        # The package itself imports the core lazily.
        TopologicalSorter({name: found for name, found in modules.items() if room_of(name)}).prepare()
    except CycleError as error:
        found.append("in a circle: " + " -> ".join(error.args[1]))
    return found


def table(modules: Edges) -> str:
    """The rooms and what each imports, as Markdown."""
    lines = ["| room | imports |", "|---|---|"]
    for room, imported in room_edges(modules).items():
        names = [f"`{one}`" for one in ORDER if one in imported]
        lines.append(f"| `{room}` | {', '.join(names) or '-'} |")
    return "\n".join(lines) + "\n"


def room_of(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def _module(path: Path) -> str:
    parts = ("delta_rlvr", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def _imports(tree: ast.AST, module: str) -> Iterator[str]:
    """Names of what is imported. Relative imports are of the room `rewards` alone, whose workers load it under another name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")
            if node.level and not (SOURCE / "/".join(above[1:]) / "__init__.py").exists():
                above.pop()
            base = ".".join(above[: len(above) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, (base, node.module)))
            yield from (f"{base}.{alias.name}" for alias in node.names)
        else:
            yield from _imports(node, module)


def main() -> int:
    modules = module_edges()
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + BEGIN + table(modules) + END + rest.partition(END)[2], encoding="utf-8")
    for problem in problems(modules):
        print(problem, file=sys.stderr)
    return int(bool(problems(modules)))


if __name__ == "__main__":
    sys.exit(main())
