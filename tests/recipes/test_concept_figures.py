"""recipes/concept_figures.py draws what the rollouts of a run say."""

import math
import runpy
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from delta_rlvr.runs import RunDescription, RunWriter

SCRIPT = Path(__file__).parents[2] / "recipes" / "concept_figures.py"


def response(index, advantage, weights, probabilities, **changes):
    return {
        "group": 0,
        "index": index,
        "prompt": "1 + 1",
        "reward": float(advantage > 0),
        "advantage": advantage,
        "tokens": ["<b>", " &"],
        "ids": [3, 4],
        "weight": weights,
        "logps": [math.log(p) for p in probabilities],
        "alpha": [0.99, 0.5],
        "margin": [1.0, 0.0],
        "margin_initial": [0.1, 0.0],
        "other_weights": {"delta-no-refinement": [1.0, 1.0]},
        **changes,
    }


def draw(tmp_path, monkeypatch, responses):
    description = RunDescription(engine="minimal", method="delta", seed=0, model="m", task="t")
    with RunWriter.create(tmp_path / "run", description) as writer:
        writer.log({"step": 1})
        writer.write_rollouts(1, responses)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(tmp_path / "run"), "--output", str(tmp_path / "figures")])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    return {path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / "figures").glob("*.svg")}


def test_numbers_by_hand(tmp_path, monkeypatch):
    right = response(0, 1.0, [1.2, 0.8], [0.5, 0.9])
    wrong = response(1, -1.0, [0.9, 1.1], [0.5, 0.6])
    figures = draw(tmp_path, monkeypatch, [right, wrong])
    assert set(figures) == {"discriminator", "coefficient", "sides", "update_mass", "saturation"}
    for svg in figures.values():
        ElementTree.fromstring(svg)  # well-formed, whatever a token holds
    # |A| (1 - p): right 0.5 + 0.1, wrong 0.5 + 0.4: 0.6 of 1.5 is 40.0 %.
    # Times the weights: right 0.6 + 0.08, wrong 0.45 + 0.44: 0.68 of 1.57 is 43.3 %.
    assert ">40.0%<" in figures["update_mass"]
    assert ">43.3%<" in figures["update_mass"]
    assert "mean on right responses: 1.000" in figures["sides"]
    assert "50% of the assignments at an end" in figures["saturation"]


def test_a_run_without_what_it_needs(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="--show_methods delta-no-refinement"):
        draw(tmp_path, monkeypatch, [response(0, 1.0, [1.0, 1.0], [0.5, 0.5], other_weights={})])
