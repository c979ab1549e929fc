"""The protocols that are shipped can be read, and the tables in docs come from the outcomes that are kept."""

from __future__ import annotations

import json
import runpy
import statistics
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from delta_evidence.learning.curves import curves_figure, smooth
from delta_evidence.learning.heldout import Decoding, HeldoutSettings
from delta_evidence.learning.protocol import ArmSettings, Primary, Protocol, TrainingSettings, read_protocols
from delta_evidence.learning.runner import Study
from delta_evidence.learning.table import markdown, sentences, study_table
from delta_evidence.measured.bench import MeasuredBench
from delta_evidence.measured.figure import measured_figure
from delta_evidence.measured.settings import MeasuredSettings
from delta_evidence.measured.table import markdown as markdown_of_measured
from delta_evidence.measured.table import measured_result
from delta_rlvr.files import dump

ROOT = Path(__file__).parents[2]
PROTOCOLS = ROOT / "evidence" / "protocols"
DATA = ROOT / "evidence" / "results"


KEPT = sorted(place.parent.relative_to(DATA) for place in DATA.rglob("runs.jsonl"))


@pytest.mark.parametrize("path", sorted(PROTOCOLS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_protocols_can_be_read(path: Path) -> None:
    assert all(protocol.runs() for protocol in read_protocols(path))


def test_every_key_is_explained() -> None:
    """In the table of the page, and in the protocol that shows them all."""
    kinds = (Protocol, TrainingSettings, ArmSettings, HeldoutSettings, Primary, Decoding)
    keys = {one.name for kind in kinds for one in fields(kind)} - {"name", "arm_settings", "folder"}
    page = (ROOT / "evidence" / "docs" / "studies.md").read_text()
    example = (PROTOCOLS / "example.yaml").read_text()
    assert {key for key in keys if f"`{key}`" not in page} == set()
    assert {key for key in keys if f"{key}:" not in example} == set()
    (protocol,) = read_protocols(PROTOCOLS / "example.yaml")
    assert protocol.settings("less entropy") == ArmSettings("dapo", None, -0.01)
    assert [one.temperature for one in protocol.heldout.also] == [0, 0.6]


def kept_study(folder: Path) -> Study:
    """A folder of evidence/results is named as its protocol's file, and a folder in it as a variant."""
    protocols = {one.name: one for one in read_protocols(PROTOCOLS / f"{folder.parts[0]}.yaml")}
    return Study(protocols[str(folder)], DATA / folder)


def test_there_are_kept_outcomes() -> None:
    assert len(KEPT) >= 14
    assert {"main", "cpu", "smollm2-chain-sum-controls-200"} <= {str(folder) for folder in KEPT}
    assert {folder.name for folder in DATA.glob("measured-*")} == {"measured-tiny", "measured-smollm2"}


@pytest.mark.parametrize("folder", KEPT, ids=str)
def test_tables_and_figures_are_what_the_outcomes_say(folder: Path) -> None:
    study = kept_study(folder)
    outcomes = study.outcomes()
    assert len({outcome.run for outcome in outcomes}) == len(outcomes)
    assert {outcome.run for outcome in outcomes} <= set(study.protocol.runs())
    table = study_table(study.protocol, outcomes)
    assert markdown(table) == (DATA / folder / "table.md").read_text()
    assert dump(table.as_dict(), indent=1) == (DATA / folder / "table.json").read_text()
    assert curves_figure(study.protocol, outcomes) == (DATA / folder / "curves.svg").read_text()


@pytest.mark.parametrize(
    ("script", "given", "row"),
    [
        (
            "learning_rates.py",
            ["smollm2-explain", *(f"smollm2-learning-rate/{name}" for name in ("four-times", "half", "twice"))],
            "delta at 2e-05 against dapo at 2e-05 12 pairs +1.5 (-0.5 to +3.5) p = 0.130, the primary pair",
        ),
        ("sharpening.py", ["qwen-gsm8k-side"], "delta-side 0.388 0.342 0.307 0.303 0.275 0.263"),
    ],
)
def test_a_script_shows_what_the_outcomes_say(script, given, row, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", [script, *(str(DATA / folder) for folder in given)])
    runpy.run_path(str(ROOT / "evidence" / "analysis" / script), run_name="__main__")
    assert row in " ".join(capsys.readouterr().out.split())


def test_the_main_study_is_whole() -> None:
    study = kept_study(Path("main"))
    assert not study.missing()
    table = study_table(study.protocol, study.outcomes())
    assert "-3.4 points (-10.8 to +4.1), p = 0.447" in sentences(table)[0]


def test_faster_learning_on_smollm2_by_an_independent_loop() -> None:
    """The primary comparison of the controls: mean of the curves, all 2^12 sign flips of the paired differences."""
    study = kept_study(Path("smollm2-chain-sum-controls-200"))
    lines = [json.loads(line) for line in (study.folder / "runs.jsonl").read_text().splitlines()]
    means = {(line["run"]["arm"], line["run"]["seed"]): statistics.fmean(line["curve"]) for line in lines}
    gaps = [means["delta", seed] - means["dapo", seed] for seed in range(200, 212)]
    flips = [sum(gap if bits >> place & 1 else -gap for place, gap in enumerate(gaps)) for bits in range(1 << 12)]
    p = sum(abs(total) >= abs(sum(gaps)) - 1e-12 for total in flips) / len(flips)
    table = study_table(study.protocol, study.outcomes())
    assert table.primary is not None
    assert table.primary.difference is not None
    assert table.primary.difference.mean == pytest.approx(statistics.fmean(gaps))
    assert table.primary.p_paired == pytest.approx(p)
    assert "accuracy over training, 12 pairs: +1.2 points (+0.2 to +2.1), p = 0.018" in sentences(table)[0]


def test_curves_are_means_over_a_window() -> None:
    assert smooth([0.0, 1, 5, 3, 4, 5]) == [0.0, 2.0, 2.6, 3.6, 4.0, 5.0]
    assert smooth([0.0]) == [0.0]
    figure = (DATA / "main" / "curves.svg").read_text()
    assert "delta-context (12 seeds)" in figure
    assert "delta-context (12 pairs)" in figure


def test_the_plane_is_what_was_measured(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "evidence" / "analysis"))
    plane = runpy.run_path(str(ROOT / "evidence" / "analysis" / "plane.py"))
    kept = json.loads((DATA / "plane" / "slopes.json").read_text())
    assert plane["figure"](kept) == (ROOT / "docs" / "figures" / "plane.svg").read_text()
    corner = {name: (row["right"]["mean"], row["wrong"]["mean"]) for name, row in kept["methods"].items()}
    assert all(right < 0 < wrong for right, wrong in (corner["delta"], corner["delta-scalar"], corner["confidence"]))
    assert all(side < 0 for side in corner["advantage-reweighting"])
    assert all(side > 0 for side in corner["rlvr-directions"])
    assert all(right > 0 > wrong for right, wrong in (corner["a3po"], corner["delightful"]))


@pytest.mark.parametrize("folder", sorted(DATA.glob("measured-*")), ids=lambda folder: folder.name)
def test_measured_tables_and_figures_are_what_the_outcomes_say(folder: Path) -> None:
    bench = MeasuredBench(kept_settings(folder), folder)
    result = measured_result(bench.documents(), bench.fidelities(), bench.settings)
    assert [one["task"] for one in result["facts"]] == list(bench.settings.tasks)
    assert dump(result, indent=1) == (folder / "measured_credit.json").read_text()
    assert markdown_of_measured(result) == (folder / "measured_credit.md").read_text()
    assert measured_figure(result) == (folder / "measured_credit.svg").read_text()


def kept_settings(folder: Path) -> MeasuredSettings:
    settings = json.loads((folder / "settings.json").read_text())
    lists = {name: tuple(value) for name, value in settings.items() if isinstance(value, list)}
    return MeasuredSettings(**settings | lists)
