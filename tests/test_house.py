"""The rules of the house that a reader relies on."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from delta_rlvr.user_code import module_at

SOURCE = Path(__file__).parent.parent / "src" / "delta_rlvr"
STANDARD = set(sys.stdlib_module_names) | {"__future__"}
PAGE = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rooms():
    return module_at(str(SOURCE.parents[1] / "scripts" / "rooms.py"))


def test_rooms_import_in_their_order_and_never_in_a_circle(rooms):
    modules = rooms.module_edges()
    assert len(modules) > 150
    assert rooms.problems(modules) == []
    # What it is there to find: an import against the order, a circle, a room without a place.
    against = modules | {"delta_rlvr.tasks.task": {"delta_rlvr.evaluate.runner"}}
    assert "delta_rlvr.tasks.task imports delta_rlvr.evaluate.runner" in rooms.problems(against)
    circle = modules | {"delta_rlvr.tasks.problem": {"delta_rlvr.tasks.registry"}}
    assert any(problem.startswith("in a circle") for problem in rooms.problems(circle))
    assert any("attic" in problem for problem in rooms.problems({"delta_rlvr.attic.box": set()}))


def test_packages_of_graders_and_evidence_import_in_no_circle(rooms):
    for package, more_than in (("rlvr_graders", 40), ("delta_evidence", 50)):
        modules = rooms.module_edges(package)
        assert len(modules) > more_than
        assert rooms.circles(rooms.room_edges(modules)) == []
    # Packages in a circle, though no modules are: learning needs measured, whose bench stops as learning does.
    modules |= {"delta_evidence.measured.bench": {"delta_evidence.learning.curves"}}
    assert "learning" in rooms.circles(rooms.room_edges(modules))[0]


def test_the_page_has_the_graph_of_rooms(rooms):
    tables = PAGE.partition(rooms.BEGIN)[2].partition(rooms.END)[0]
    assert tables == rooms.tables(), "run scripts/rooms.py"
    described = re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE)
    assert described == [room for room in rooms.ORDER if (SOURCE / room).is_dir()]


def test_the_page_says_where_things_are():
    section = PAGE.partition("## Where is ...?")[2].partition("\n## ")[0]
    places = re.findall(r"`((?:graders|evidence)/[\w/]+\.py|[\w/]+\.py): ([\w.]+)`", section)
    assert len(places) >= 16
    for file, name in places:
        path = SOURCE.parents[1] / file if file.startswith(("graders", "evidence")) else SOURCE / file
        text = path.read_text(encoding="utf-8")
        kinds = (ast.ClassDef, ast.FunctionDef)
        names = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)}
        names |= set(re.findall(r"^(\w+)(?:: [^=]+)? = ", text, re.MULTILINE))
        assert set(name.split(".")) <= names, f"{file} has no {name}"


def test_the_way_of_train_is_short_and_as_the_page_says(rooms):
    """Each file of the way is imported by one before it, or by what that one imports."""
    section = PAGE.partition("### The way of `train`")[2].partition("\n## ")[0]
    way = re.findall(r"^\d+\. `([\w/]+\.py)", section, re.MULTILINE)
    assert 8 <= len(way) <= 12
    modules = rooms.module_edges()
    names = ["delta_rlvr." + file.removesuffix(".py").replace("/", ".") for file in way]
    assert set(names) <= set(modules)
    reached = {names[1]}  # a command's module is loaded by its name
    for name in names:
        assert name in reached or name == names[0], f"nothing before it leads to {name}"
        reached |= modules[name] | set().union(*(modules[one] for one in modules[name]))


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
                assert module.split(".")[1] in (*allowed_rooms, "specs", "user_code", "hints", "bounds"), (
                    f"{path.name} imports {module}"
                )
            else:
                own = {"triton"} if path.name == "kernels.py" else set()  # it comes with torch
                assert top in STANDARD | {"torch", "jaxtyping"} | own, f"{path.name} imports {module}"


def test_the_run_folder_needs_numpy_alone():
    beside = (
        "runs",
        "bounds",
        "exit_codes",
        "files",
        "specs",
        "hints",
        "score_units",
        "words",
        "weight_words",
        "models",
        "rewards",
    )
    own = tuple(f"delta_rlvr.{name}" for name in beside)
    modules = set().union(*map(imported_modules, (SOURCE / "runs").glob("*.py")))
    assert {name.split(".")[0] for name in modules if not name.startswith(own)} - STANDARD == {"numpy"}


@pytest.mark.parametrize("room", ["tasks", "evaluate", "report", "runs"])
def test_rooms_beside_the_core_know_no_engine(room):
    for path in (SOURCE / room).rglob("*.py"):
        for module in imported_modules(path):
            assert module.split(".")[0] not in ("trl", "verl", "ray"), f"{path} imports {module}"
            assert not module.startswith("delta_rlvr.adapters"), f"{path} imports {module}"


def test_nobody_asks_which_class_a_rule_is():
    """Outside the rules' own room, engines and commands read what a rule needs, never what it is."""
    rules = set()
    for path in (SOURCE / "credit" / "rules").glob("*.py"):
        rules |= {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)}
    assert {"Delta", "Uniform", "ForkingTokens", "Oracle"} <= rules
    for path in SOURCE.rglob("*.py"):
        if path.is_relative_to(SOURCE / "credit" / "rules"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            asked = set()
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("isinstance", "issubclass")
            ):
                asked = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
            elif isinstance(node, ast.MatchClass):
                asked = {name.id for name in ast.walk(node.cls) if isinstance(name, ast.Name)}
            assert not asked & rules, f"{path}:{node.lineno} asks for {asked & rules}"


def test_graders_do_not_load_torch():
    """A grader's worker process starts often; it must not pay for torch."""
    code = "import sys, delta_rlvr, rlvr_graders; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names_are_few_and_exist():
    import delta_rlvr

    assert len(delta_rlvr.__all__) <= 10
    for name in delta_rlvr.__all__:
        assert getattr(delta_rlvr, name).__doc__


def test_names_say_the_thing():
    """`found` and `told` say how a value came about, not what it is."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
            assert name not in ("found", "told", "who"), f"{path.name}, line {node.lineno}: {name}"
