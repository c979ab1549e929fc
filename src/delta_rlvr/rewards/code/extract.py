"""The program in a completion: its last fenced Python block, or the text itself where it plainly is code."""

from __future__ import annotations

import ast
import re
import textwrap

# A fence opens at a line's start with three or more backticks or tildes, and the same kind closes it.
FENCE = re.compile(r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+#.-]*)[^\n`]*$", re.MULTILINE)
PYTHON = {"python", "python3", "py", "py3", "python2", "pypy", "pypy3", "cpython"}


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """(language, source) of each fenced block in order; one that a cut-off completion left open runs to the end."""
    blocks = []
    opening: re.Match[str] | None = None
    for mark in FENCE.finditer(text):
        if opening is None:
            opening = mark
        elif mark["fence"].startswith(opening["fence"]) and not mark["language"]:
            blocks.append((opening["language"].lower(), text[opening.end() + 1 : mark.start()]))
            opening = None
    if opening is not None:
        blocks.append((opening["language"].lower(), text[opening.end() + 1 :]))
    return blocks


def is_plainly_code(text: str) -> bool:
    """Whether the text parses as Python and does something: a sentence may parse, but defines and calls nothing."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(
        not isinstance(statement, ast.Expr) or isinstance(statement.value, (ast.Call, ast.Await))
        for statement in body
    )


def _last_block(answer: str) -> str | None:
    """The source of the last Python block, or else of the last block that names no language."""
    blocks = fenced_blocks(answer)
    for wanted in (PYTHON, {""}):
        for language, source in reversed(blocks):
            if language in wanted and source.strip():
                return source
    return None


def extract_code(completion: str) -> str | None:
    """The completion's program, or None where it has none. What a model thinks before `</think>` is not its answer."""
    answer = completion.rpartition("</think>")[2]
    block = _last_block(answer)
    if block is not None:
        return (
            block if _parses(block) else textwrap.dedent(block)
        )  # a block in a list item is indented as a whole
    return answer if not fenced_blocks(answer) and is_plainly_code(answer) else None


def continue_prompt(prompt: str, completion: str, entry_point: str) -> str:
    """The program where a model was asked to go on from `prompt` (HumanEval's form).

    A completion that instead gives the whole function, in a fenced block or bare, follows the prompt, whose imports
    and helpers then stand and whose unfinished function it replaces.
    """
    answer = completion.rpartition("</think>")[2]
    source = _last_block(answer)
    if source is None:
        source = answer
    elif source[:1] not in (" ", "\t", "\n") and not _defines(source, entry_point):
        source = textwrap.indent(source, "    ")  # a function's body, moved to the margin by its fence
    if _defines(source, entry_point):
        stub = f"{prompt.rstrip()}\n    pass\n"
        source = textwrap.dedent(source)
        return f"{stub}\n{source}" if _parses(stub) else source
    return prompt + source


def _defines(source: str, name: str) -> bool:
    return re.search(rf"^\s*(async\s+)?def\s+{re.escape(name)}\b", source, re.MULTILINE) is not None


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
