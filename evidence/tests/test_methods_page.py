"""docs/methods.md: every method that has a name stands in it, and its costs are the measured ones."""

import json
import re
from pathlib import Path

from delta_evidence.commands.leaderboard import methods_table
from delta_evidence.leaderboard import leaderboard, replace_table
from delta_evidence.learning.protocol import Run
from delta_evidence.learning.runner import Outcome
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


def test_the_table_has_what_was_measured(tmp_path):
    runs = [("dapo", 0.5), ("ktae", 0.6)]
    study = tmp_path / "study"
    study.mkdir()
    (study / "protocol.json").write_text(
        json.dumps({"protocol": {"model": "smollm2-135m", "training": {}, "reward_noise": 0.0}})
    )
    outcomes = [Outcome(Run("sums", arm, 0), 0.1, 0.5, [speed] * 2, *[[0.0, 0.0]] * 5) for arm, speed in runs]
    lines = [outcome.as_dict() for outcome in outcomes]
    (study / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "rule_costs.json").write_text(json.dumps({"rules": {"ktae": {"share": 0.0123}}}))
    table = methods_table([all_methods()["ktae"], all_methods()["grpo"]], leaderboard(tmp_path))
    assert "| `ktae` | arXiv 2505.16826 |" in table
    assert table.splitlines()[2].endswith("| tokens, groups | 1.2 % | +10.0 |")
    assert table.splitlines()[3].endswith("| - | - | - |")


def test_a_folder_that_is_not_there_is_named(capsys):
    assert main(["leaderboard", "no-such-folder", "--methods"]) == 2
    assert "is no folder" in capsys.readouterr().err


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
