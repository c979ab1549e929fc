"""docs/methods.md: every method that has a name stands in it, and its costs are the measured ones."""

import json
import re
from pathlib import Path

from delta_evidence.commands.leaderboard import methods_table
from delta_evidence.leaderboard import leaderboard, replace_table
from delta_rlvr.cli import main
from delta_rlvr.objectives import all_methods

ROOT = Path(__file__).parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "evidence" / "results"
PAGE = (DOCS / "methods.md").read_text(encoding="utf-8")


def ours():
    """Our methods: other tests of the same process may have given names to rules of their own."""
    named = all_methods().values()
    return [method for method in named if type(method.rule).__module__.startswith("delta_rlvr.")]


def test_the_table_is_what_the_command_makes(tmp_path, capsys):
    assert len(ours()) > 40
    table = methods_table(ours(), leaderboard(RESULTS))
    assert replace_table(PAGE, table) == PAGE
    assert main(["leaderboard", "--methods", str(RESULTS)]) == 0
    assert set(table.splitlines()) <= set(capsys.readouterr().out.splitlines())
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: begin -->\nold\n<!-- table: end -->\nafter\n")
    assert main(["leaderboard", "--methods", str(RESULTS), "--output", str(page)]) == 0
    assert set(table.splitlines()) < set(page.read_text().splitlines())
    assert "old" not in page.read_text()


def test_the_costs_are_the_measured_ones():
    measured = json.loads((RESULTS / "rule_costs.json").read_text())
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
