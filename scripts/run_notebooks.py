"""Run the notebooks of docs/notebooks and keep their outputs in them: `python scripts/run_notebooks.py [FILE ...]`.

tests/docs/test_notebooks.py runs them in the same way and compares the outputs with the kept ones.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


def run(path: Path, seconds: int = 120) -> NotebookNode:
    """The notebook with the outputs of a fresh kernel; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    # Times of execution would make every run a change.
    client = NotebookClient(notebook, timeout=seconds, record_timing=False, kernel_name="python3")
    client.execute()
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        # Progress bars and warnings, with paths of the machine.
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def main() -> None:
    for path in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(run(path), path)
        print(path.name)


if __name__ == "__main__":
    main()
