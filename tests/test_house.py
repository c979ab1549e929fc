"""The rules of the house that a reader relies on."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "delta_rlvr"
STANDARD = set(sys.stdlib_module_names) | {"__future__"}


def imported_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("room", ["credit", "objectives"])
def test_core_imports_torch_and_the_standard_library_alone(room):
    allowed_rooms = {"credit": ("credit",), "objectives": ("credit", "objectives")}[room]
    for path in (SOURCE / room).rglob("*.py"):
        for module in imported_modules(path):
            top = module.split(".")[0]
            if top == "delta_rlvr":
                assert module.split(".")[1] in allowed_rooms, f"{path.name} imports {module}"
            else:
                assert top in STANDARD | {"torch", "jaxtyping"}, f"{path.name} imports {module}"


@pytest.mark.parametrize("room", ["rewards", "tasks", "evaluate", "report", "runs", "study"])
def test_rooms_beside_the_core_know_no_engine(room):
    for path in (SOURCE / room).rglob("*.py"):
        for module in imported_modules(path):
            assert module.split(".")[0] not in ("trl", "verl", "ray"), f"{path} imports {module}"
            assert not module.startswith("delta_rlvr.adapters"), f"{path} imports {module}"


def test_graders_do_not_load_torch():
    """A grader's worker process starts often; it must not pay for torch."""
    code = "import sys, delta_rlvr, delta_rlvr.rewards; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names_are_few_and_exist():
    import delta_rlvr

    assert len(delta_rlvr.__all__) <= 8
    for name in delta_rlvr.__all__:
        assert getattr(delta_rlvr, name).__doc__
