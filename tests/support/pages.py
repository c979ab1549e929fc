"""The commands and code blocks of README.md, all docs and recipes/, read from the Markdown as a reader sees it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "graders" / "docs").rglob("*.md")),
    *(ROOT / "evidence" / name for name in ("README.md", "results/README.md")),
    *sorted((ROOT / "evidence" / "docs").rglob("*.md")),
    *sorted((ROOT / "recipes").rglob("*.md")),
]
PROGRAMS = r"delta-rlvr|python|torchrun|accelerate|trl|vllm|make|pip|pytest|bash|source|\S+/bin/\w+"
_COMMAND = re.compile(rf"(?:[A-Z][A-Z_]*=\S* )*(?:{PROGRAMS})(?= |$)")
_INLINE = re.compile(r"(?:delta-rlvr [a-z-]+ |python \S+\.py ).*")


@dataclass(frozen=True)
class Command:
    """One command line of a page."""

    page: str
    line: int
    text: str
    inline: bool = False
    """It stands in a sentence, where an option may be named without its value."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Block:
    """One fenced block of code."""

    page: str
    line: int
    language: str
    file: str | None
    """The file that it is to be kept in: `title="NAME"` after the language, or the comment `# NAME` in its first line."""
    code: str


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def commands(page: Path) -> Iterator[Command]:
    """Every command line of the blocks, and the commands with arguments that stand in a sentence or a table."""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        if token.type == "code_block" or (token.type == "fence" and token.info in ("", "bash", "sh", "console")):
            yield from _lines(name_of(page), token.map[0] + 1, token.content)
        elif token.type == "inline":
            for child in token.children or []:
                if child.type == "code_inline" and _INLINE.fullmatch(child.content):
                    yield Command(name_of(page), token.map[0] + 1, child.content, inline=True)


def _lines(page: str, start: int, content: str) -> Iterator[Command]:
    whole, first = "", start
    for number, line in enumerate(content.splitlines(), start=start):
        if not whole:
            first = number
        whole = f"{whole} {line.strip()}".strip()
        if whole.endswith("\\"):
            whole = whole[:-1].rstrip()
            continue
        if _COMMAND.match(whole):
            yield Command(page, first, whole)
        whole = ""


def blocks(page: Path) -> Iterator[Block]:
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type != "fence":
            continue
        language, _, rest = token.info.partition(" ")
        titled = re.search(r'title="([^"]+)"', rest) or re.match(r"# (\w+\.py)\n", token.content)
        yield Block(name_of(page), token.map[0] + 1, language, titled.group(1) if titled else None, token.content)
