"""Which room of the library, and which package of graders and evidence, imports which: the tables in CONTRIBUTING.md.

    python scripts/rooms.py           # write the tables; ends with 1 where an import goes against the order or in a circle

Imports under TYPE_CHECKING never run, and do not count.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {
    "delta_rlvr": ROOT / "src" / "delta_rlvr",
    "rlvr_graders": ROOT / "graders" / "src" / "rlvr_graders",
    "delta_evidence": ROOT / "evidence" / "src" / "delta_evidence",
}
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- rooms: begin -->\n", "<!-- rooms: end -->"

SHARED = (
    *("exit_codes", "specs", "user_code", "hints", "words", "score_units", "weight_words", "terminal"),
    *("files", "lasting", "bounds", "versions", "rewards", "yaml_files"),
)
"""Modules of the library beside its rooms that any of them may import; they import no room."""
ORDER = (
    *("credit", "objectives", "models", "tasks", "runs", "evaluate", "report", "adapters"),
    *("testing", "training", "doctor", "api", "commands", "cli"),
)
"""A room of the library imports those before it."""

Edges = dict[str, set[str]]


def module_edges(package: str = "delta_rlvr") -> Edges:
    """Every module of a package, with the modules of it that it imports, wherever in it."""
    source = SOURCES[package]
    files = {_module(path, source): path for path in source.rglob("*.py")}
    edges: Edges = {}
    for name, path in files.items():
        imported = set(_imports(ast.parse(path.read_text(encoding="utf-8")), name, files))
        # `from package import name`: the module of that name, where it is one.
        edges[name] = {one if one in files else one.rpartition(".")[0] for one in imported}
        edges[name] = {one for one in edges[name] if one in files and one != name}
    return edges


def room_edges(modules: Edges) -> Edges:
    """Rooms (a folder, or a module beside the folders) with those that each imports. The package itself is no room."""
    edges: Edges = {}
    for name, imported in sorted(modules.items()):
        if room := room_of(name):
            edges.setdefault(room, set()).update({room_of(one) for one in imported} - {room, ""})
    return edges


def problems(modules: Edges) -> list[str]:
    """Of the library: imports against the order, rooms that have no place in it, and modules that import each other in a circle."""
    wrong = []
    for name, imported in sorted(modules.items()):
        room = room_of(name)
        if room not in (*ORDER, *SHARED, "", "__main__"):
            wrong.append(f"{name}: the room {room} has no place in the order (scripts/rooms.py)")
            continue
        if room in ("", "__main__"):
            continue  # the package's own door, which loads the core when it is asked for
        allowed = {*SHARED, "", *(ORDER[: ORDER.index(room) + 1] if room in ORDER else ())}
        wrong += [f"{name} imports {one}" for one in sorted(imported) if room_of(one) not in allowed]
    # The package itself imports the core lazily.
    return wrong + circles({name: imported for name, imported in modules.items() if room_of(name)})


def circles(edges: Edges) -> list[str]:
    """The first circle of a graph, in words, where there is one."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return ["in a circle: " + " -> ".join(error.args[1])]
    return []


def all_problems() -> list[str]:
    """Of all three: the library's, and packages of the others that import each other in a circle."""
    wrong = problems(module_edges())
    for package in ("rlvr_graders", "delta_evidence"):
        edges = room_edges(module_edges(package))
        wrong += [f"{package}: {one}" for one in circles(edges)]
    return wrong


def tables() -> str:
    """The rooms of each distribution, and what each of them imports, as Markdown."""
    parts = []
    for package in SOURCES:
        edges = room_edges(module_edges(package))
        sorter = TopologicalSorter({room: sorted(imported) for room, imported in edges.items()})
        order = ORDER if package == "delta_rlvr" else tuple(sorter.static_order())
        lines = [f"| `{package}` | imports |", "|---|---|"]
        for room in (one for one in order if one in edges):
            names = [f"`{one}`" for one in order if one in edges[room]]
            lines.append(f"| `{room}` | {', '.join(names) or '-'} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def room_of(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def _module(path: Path, source: Path) -> str:
    parts = (source.name, *path.relative_to(source).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def _imports(tree: ast.AST, module: str, files: dict[str, Path]) -> Iterator[str]:
    """Names of what is imported; relative imports with their whole name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")
            if node.level and files[module].name != "__init__.py":
                above.pop()
            base = ".".join(above[: len(above) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, (base, node.module)))
            yield from (f"{base}.{alias.name}" for alias in node.names)
        else:
            yield from _imports(node, module, files)


def main() -> int:
    wrong = all_problems()
    for problem in wrong:
        print(problem, file=sys.stderr)
    if wrong:
        return 1
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + tables() + END + rest.partition(END)[2], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
