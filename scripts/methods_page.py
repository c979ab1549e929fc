"""The tables of docs/methods.md: every method in the groups of `delta-rlvr methods`.

python scripts/methods_page.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from delta_evidence.leaderboard import replace_table
from delta_rlvr.commands.methods import grouped
from delta_rlvr.objectives import Method, all_methods

PAGE = Path(__file__).parents[1] / "docs" / "methods.md"


def tables(methods: Iterable[Method]) -> str:
    """One table for each group, under its heading."""
    parts = []
    for heading, group in grouped(methods).items():
        lines = [
            f"**{heading[0].upper()}{heading[1:]}**",
            "",
            "| name | what | source | needs |",
            "|---|---|---|---|",
        ]
        for one in group:
            about, needs = one.about.replace("|", "\\|"), ", ".join(one.rule.needs) or "-"
            source = "ours" if one.paper == "beyond" else one.paper
            lines.append(f"| `{one.name}` | {about} | {source} | {needs} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replace_table(page, tables(all_methods().values())), encoding="utf-8")
    print(PAGE)
