"""The notebooks of the docs run in a fresh kernel and give the outputs that are kept in them."""

import re

import nbformat
import pytest

from delta_rlvr.user_code import module_at
from pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

# Printed numbers have one or two decimals; a sum in another order may move them across a rounding by one of the last.
TOLERANCE = 0.11


def outputs(notebook):
    """What each cell shows, as text. A busy machine's kernel sends a printed line in parts: a cell's parts are one text."""
    shown = []
    for cell in notebook.cells:
        data = [output.get("data", {}) for output in cell.get("outputs", [])]
        printed = [output.get("text", "") for output in cell.get("outputs", [])]
        drawn = [one.get("text/html") or one.get("text/plain") or "" for one in data]
        shown.append("".join(text for pair in zip(printed, drawn, strict=True) for text in pair))
    return shown


def test_there_are_two():
    assert [path.stem for path in NOTEBOOKS] == ["explain_my_rollouts", "write_a_token_rule"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_gives_the_kept_outputs(path):
    kept = outputs(nbformat.read(path, as_version=4))
    assert any(kept), "run scripts/run_notebooks.py: the notebook was kept without outputs"
    again = outputs(module_at(str(ROOT / "scripts" / "run_notebooks.py")).run(path))
    assert [_NUMBER.sub("#", text) for text in again] == [_NUMBER.sub("#", text) for text in kept]
    for one, other in zip(kept, again, strict=True):
        numbers = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
        assert all(abs(float(first) - float(second)) <= TOLERANCE for first, second in numbers), other
