"""The table of docs/methods.md: every method in the groups of `delta-rlvr methods`.

python scripts/methods_page.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from delta_evidence.leaderboard import replace_table
from delta_rlvr.commands.methods import grouped
from delta_rlvr.objectives import Method, all_methods

PAGE = Path(__file__).parents[1] / "docs" / "methods.md"


def table(methods: Iterable[Method]) -> str:
    """One row a method, under the heading of its group."""
    lines = ["| name | what | source | needs |", "|---|---|---|---|"]
    for heading, group in grouped(methods).items():
        lines.append(f"| **{heading}** | | | |")
        for one in group:
            about, needs = one.about.replace("|", "\\|"), ", ".join(one.rule.needs) or "-"
            source = one.paper.replace("beyond", "ours").replace("App. J, ", "").removeprefix("after ")
            lines.append(f"| `{one.name}` | {about} | {source} | {needs} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replace_table(page, table(all_methods().values())), encoding="utf-8")
    print(PAGE)
