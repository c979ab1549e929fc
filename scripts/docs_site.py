"""What the docs site needs beyond its pages: the recipes' page, and Markdown read as GitHub reads it. mkdocs.yml names this file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
BORROWED = {
    "recipes/paper/README.md": "recipes/paper.md",
    **{f"graders/docs/{name}.md": f"graders/{name}.md" for name in ("math", "code", "numbers")},
    **{
        f"evidence/docs/{name}.md": f"details/{name}.md"
        for name in ("smollm2", "qwen", "tiny_policies", "credit", "studies")
    },
}
"""Files outside docs/ that are pages of the site, and where they stand there."""

KEPT = {"data": ROOT / "evidence" / "results", "protocols": ROOT / "evidence" / "protocols"}
"""Kept outcomes and their protocols: files of the site, linked from its pages."""

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^ {0,3}([-*]|\d+\.) ")


def on_files(files: Files, config: Any) -> Files:
    """Add the borrowed pages."""
    from mkdocs.structure.files import File

    for folder, kept in KEPT.items():
        for path in sorted(kept.rglob("*")):
            if path.is_file():
                place = f"{folder}/{path.relative_to(kept).as_posix()}"
                files.append(File.generated(config, place, abs_src_path=str(path)))
    for source, place in BORROWED.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at the borrowed pages, and put a blank line before each list and table."""
    markdown = markdown.replace("](../evidence/results/", "](data/")
    for source, place in BORROWED.items():
        markdown = re.sub(rf"\]\(\.\./{re.escape(source)}([#)])", rf"]({place}\1", markdown)
        if page.file.src_uri == place:
            markdown = markdown.replace("](../../docs/", "](../").replace("](../results/", "](../data/")
    return "\n".join(separated(markdown.split("\n")))


def separated(lines: list[str]) -> list[str]:
    """A list or table that follows a paragraph without a blank line: a list on GitHub, plain text for Python-Markdown."""
    result: list[str] = []
    fenced, before = False, ""
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
        begins = _kind(line) != "" and _kind(line) != _kind(before) and not _inside(before, result)
        if begins and not fenced and before.strip() and not before.startswith("#"):
            result.append("")
        result.append(line)
        before = line
    return result


def _kind(line: str) -> str:
    return "table" if line.startswith("|") else "item" if _ITEM.match(line) else ""


def _inside(before: str, lines: list[str]) -> bool:
    """Whether the line before continues an item of a list."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if _ITEM.match(line):
            return True
    return bool(_ITEM.match(before))
