"""README and docs stay short enough to be read to the end."""

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from pages import ROOT, name_of

LIMITS = {"README": 900, "a page": 2_500, "all docs": 24_000}
"""Words, counted as `wc -w` counts them."""
WIDTH = 120
"""Characters in a line of prose."""

README = ROOT / "README.md"
TEMPLATES = {ROOT / "evidence" / "page.md", ROOT / "evidence" / "summary.md"}
"""Their words are counted where they are filled in: in docs/evidence.md and in README."""
DOCS = sorted(
    path
    for folder in ("docs", "graders", "evidence")
    for path in (ROOT / folder).rglob("*.md")
    if not path.is_relative_to(ROOT / "evidence" / "results") and path not in TEMPLATES
)
OTHERS = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "recipes").rglob("*.md"))]
_UNBREAKABLE = re.compile(r"!?\[[^\]]*\]\(\S*\)[.,:;]?")


def words(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())


def wide_lines(text: str) -> list[int]:
    """The numbers of the lines of prose that are too wide: code, tables and a lone link or image are none."""
    lines = text.splitlines()
    prose = set()
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "paragraph_open" or token.type == "heading_open":
            prose.update(range(*token.map))
    return [
        place + 1
        for place in sorted(prose)
        if len(lines[place]) > WIDTH and not _UNBREAKABLE.fullmatch(lines[place].strip())
    ]


def test_the_docs_are_found():
    assert {"docs/index.md", "graders/docs/math.md", "evidence/docs/credit.md"} <= {name_of(p) for p in DOCS}


def test_words():
    counted = {name_of(page): words(page) for page in DOCS}
    assert words(README) <= LIMITS["README"]
    assert {name: count for name, count in counted.items() if count > LIMITS["a page"]} == {}
    assert sum(counted.values()) <= LIMITS["all docs"]


@pytest.mark.parametrize("page", [README, *DOCS, *OTHERS], ids=name_of)
def test_no_line_of_prose_is_too_wide(page):
    assert wide_lines(page.read_text(encoding="utf-8")) == []


def test_what_is_prose():
    """Seven lines of 121 characters; the paragraph's (1), the list's (3) and the second of a paragraph (12) are prose."""
    long = "word " * 24 + "!"
    text = [long, "", f"- {long[2:]}", "", f"| {long[4:]} |", "|---|", "", "    " + long[4:]]
    text += ["", f"![{'picture ' * 14}](a.png)", "first", long, "```", long, "```"]
    assert [len(line) for line in (text[0], text[2], text[4], text[7])] == [121] * 4
    assert wide_lines("\n".join(text)) == [1, 3, 12]
