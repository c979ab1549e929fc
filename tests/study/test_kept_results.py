"""The protocols that are shipped can be read, and the tables in docs come from the outcomes that are kept."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from delta_rlvr.runs.files import dump
from delta_rlvr.study.learning.curves import curves_figure, smooth
from delta_rlvr.study.learning.protocol import read_protocols
from delta_rlvr.study.learning.runner import Study
from delta_rlvr.study.learning.table import markdown, sentences, study_table

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes" / "study"
DATA = ROOT / "docs" / "data"


@pytest.mark.parametrize("name", ["ceiling", "ceiling-sizes", "ceiling-levers", "main", "confirm", "cpu"])
def test_shipped_protocols_can_be_read(name: str) -> None:
    assert all(protocol.runs() for protocol in read_protocols(RECIPES / f"{name}.yaml"))


# All that are kept but smollm2-word-problems, whose problems are not here.
@pytest.mark.parametrize(
    "recipe", ["ceiling", "ceiling-sizes", "ceiling-levers", "main", "cpu", "smollm2-chain-sum"]
)
def test_kept_tables_are_what_the_outcomes_say(recipe: str) -> None:
    kept = [
        (protocol, DATA / protocol.name)
        for protocol in read_protocols(RECIPES / f"{recipe}.yaml")
        if (DATA / protocol.name).exists()
    ]
    assert kept
    for protocol, folder in kept:
        study = Study(protocol, folder)
        assert not study.missing()
        table = study_table(protocol, study.outcomes())
        assert markdown(table) == (folder / "table.md").read_text()
        assert dump(table.as_dict(), indent=1) == (folder / "table.json").read_text()


def test_the_results_page_shows_the_main_table() -> None:
    (protocol,) = read_protocols(RECIPES / "main.yaml")
    assert (DATA / "main" / "table.md").read_text().strip() in (ROOT / "docs" / "results.md").read_text()
    table = study_table(protocol, Study(protocol, DATA / "main").outcomes())
    assert "-3.4 points (-14.3 to +0.7), p = 0.447" in sentences(table)[0]


def test_a_mean_of_the_table_by_an_independent_loop() -> None:
    lines = [json.loads(line) for line in (DATA / "main" / "runs.jsonl").read_text().splitlines()]
    after = {
        arm: {
            line["run"]["seed"]: line["after"]
            for line in lines
            if line["run"]["arm"] == arm and line["run"]["task"] == "late-error"
        }
        for arm in ("dapo", "oracle")
    }
    gaps = [score - after["dapo"][seed] for seed, score in after["oracle"].items()]
    of_task = (DATA / "main" / "table.md").read_text().partition("**late-error**")[2]
    (row,) = [line for line in of_task.splitlines() if line.startswith("| oracle |")]
    _, _, seeds, spread, gap, *_ = (cell.strip() for cell in row.split("|"))
    assert seeds == "5"
    assert spread.startswith(f"{100 * statistics.fmean(after['oracle'].values()):.1f} ± ")
    assert gap.startswith(f"{100 * statistics.fmean(gaps):+.1f} (")


def test_curves_are_means_over_a_window() -> None:
    assert smooth([0.0, 1, 2, 3, 4, 5]) == [1.0, 1.5, 2.0, 3.0, 3.5, 4.0]
    (protocol,) = read_protocols(RECIPES / "main.yaml")
    figure = curves_figure(protocol, Study(protocol, DATA / "main").outcomes())
    assert figure == (DATA / "main" / "curves.svg").read_text()
    assert "delta-context (12 seeds)" in figure
