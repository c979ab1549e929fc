"""The packages and modules of `delta_evidence` import each other in one direction."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import delta_evidence

SOURCE = Path(delta_evidence.__file__).parent


def test_no_package_imports_another_in_a_circle():
    edges = {}
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            place = (getattr(node, "module", None) or "").split(".")
            if isinstance(node, ast.ImportFrom) and place[0] == "delta_evidence" and place[1:] != [own]:
                edges.setdefault(own, set()).add(place[1])
    assert {"planted", "measured", "learning", "bench"} <= edges.keys()
    TopologicalSorter({own: others - {own} for own, others in edges.items()}).prepare()
