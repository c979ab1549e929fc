"""recipes/paper/rehearse.sh goes the whole way to Table 1 on both engines."""

import csv
import os
import subprocess
from pathlib import Path

import pytest

from paper_tables import MATH

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("engine", "port"), [("trl", "8765"), ("verl", "8766")])
def test_the_whole_way(engine, port, tmp_path):
    if engine == "verl":
        pytest.importorskip("verl")
    done = subprocess.run(
        ["bash", ROOT / "recipes" / "paper" / "rehearse.sh", engine, tmp_path],
        env={**os.environ, "PORT": port},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    with (tmp_path / "table1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["dapo", "delta"]
    assert list(rows[0])[1:9] == [*MATH, "average"]
    for row in rows:
        # The policy adds some of these: a table of zeros would mean that prompt, grader or weights went astray.
        assert 20 < float(row["average"]) < 100
    # Two seeds and four samples each: eight passes, so that the test has something to say.
    assert 0 < float(rows[1]["p average"]) <= 1
    assert rows[0] | {"method": ""} != rows[1] | {"method": ""}, "the two methods trained to the same weights"
