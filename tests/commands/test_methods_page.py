"""docs/methods.md: every method that has a name stands in it, and its costs are the measured ones."""

import json
import re
from pathlib import Path

from delta_rlvr.objectives import all_methods

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "methods.md").read_text(encoding="utf-8")


def test_every_method_stands_in_it():
    # Other tests of the same process may have given names to rules of their own.
    ours = {
        name
        for name, method in all_methods().items()
        if type(method.rule).__module__.startswith("delta_rlvr.")
    }
    assert len(ours) > 40
    assert ours <= set(re.findall(r"`([a-z0-9-]+)`", PAGE))


def test_the_costs_are_the_measured_ones():
    measured = json.loads((DOCS / "data" / "rule_costs.json").read_text())
    section = PAGE.split("## What they cost")[1].split("\n## ")[0]
    assert f"    {measured['command']}\n" in section
    shares = {name: 100 * cost["share"] for name, cost in measured["rules"].items()}
    for name, share in re.findall(r"`([a-z-]+)`:? ([\d.]+) %", section):
        digits = len(share.partition(".")[2])
        assert f"{shares[name]:.{digits}f}" == share, name
    cheap = [shares[name] for name, cost in measured["rules"].items() if "head" not in cost["needs"]]
    assert max(cheap) <= 5
    assert f"{max(cheap):.2f} % or less" in section
    assert f"they add {100 * measured['entropies_share']:.0f} %" in section
