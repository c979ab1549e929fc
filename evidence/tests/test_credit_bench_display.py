"""The benchmark's tables on a terminal of 80 columns: whole, with the conclusion before them."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from delta_evidence.commands.planted_display import sentences, show
from delta_evidence.planted.settings import PlantedSettings

KEPT = Path(__file__).parents[1] / "results" / "credit-bench" / "credit_bench.json"


@pytest.mark.parametrize("width", [80, 150])
def test_tables_fit_and_the_conclusion_comes_first(width):
    result = json.loads(KEPT.read_text())
    written = io.StringIO()
    show(result, PlantedSettings(), Console(file=written, width=width))
    text = written.getvalue()
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines)
    assert "…" not in text  # nothing is cut
    first = sentences(result)[0]
    assert " ".join(text.split()).startswith(first)
    # Every number of the main table stands on one line with its interval.
    (row,) = [line for line in lines if line.startswith("  delta-sharpness ") and "0.860 ±" in line]
    assert len(row.split()) == (8 if width == 80 else 15)
    # In 80 columns the wrong side is a table of its own.
    assert sum("AUROC" in line and "weight" in line for line in lines) == (2 if width == 80 else 1)


def test_the_legend_has_only_what_the_table_has():
    """One policy and task with two weights: no word about the others, and no "1 policies"."""
    result = json.loads(KEPT.read_text())
    kept = {"surprise", "delta", "dapo"}
    result["rows"] = [row for row in result["rows"] if row["method"] in kept]
    settings = PlantedSettings(policies=PlantedSettings().policies[:1], tasks=PlantedSettings().tasks[:1], batches=1)
    written = io.StringIO()
    show(result, settings, Console(file=written, width=150))
    text = " ".join(written.getvalue().split())
    assert "1 policy x 1 task x 1 batch" in text
    assert "fipo" not in text
    assert "oracle-wide" not in text
    assert "it need not be the difference of the two AUROCs that are shown" in text
    assert "clean is over all batches; the perturbed rewards, and the differences in the next table" in text
