"""docs/methods.md: every method that has a name stands in it, and its costs are the measured ones."""

import json
import re
from pathlib import Path

from delta_evidence.leaderboard import replace_table
from delta_rlvr.commands.methods import listed
from delta_rlvr.objectives import all_methods
from delta_rlvr.user_code import module_at

ROOT = Path(__file__).parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "evidence" / "results"
SCRIPT = module_at(str(ROOT / "scripts" / "methods_page.py"))
PAGE = (DOCS / "methods.md").read_text(encoding="utf-8")


def ours():
    """Our methods: other tests of the same process may have given names to rules of their own."""
    named = all_methods().values()
    return [method for method in named if type(method.rule).__module__.startswith("delta_rlvr.")]


def test_the_table_is_what_the_script_makes():
    assert len(ours()) > 40
    table = SCRIPT.table(ours())
    assert replace_table(PAGE, table) == PAGE, "run scripts/methods_page.py"
    assert all(table.count(f"\n| `{method.name}` | ") == 1 for method in ours())


def test_the_order_is_that_of_the_command():
    names = re.findall(r"^\| `([^`]+)` \|", SCRIPT.table(ours()), re.MULTILINE)
    assert names[:2] == ["delta", "dapo"]
    lines = [line.split()[0] for line in listed(ours()) if re.match(r"  [a-z]", line)]
    assert names == [name for name in lines if name in names]


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
