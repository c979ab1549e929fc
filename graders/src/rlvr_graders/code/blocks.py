"""Pieces of a completion that are Python: fenced blocks however they are fenced, and code that stands between prose.

A piece counts as Python when it parses. Where it does not as it stands, what models do to code on its way into a chat
is undone: indentation of a list, HTML entities, typographic quotes, an interpreter's prompts, a notebook's commands.
"""

from __future__ import annotations

import ast
import html
import re
import textwrap
from collections.abc import Callable

from rlvr_graders.code.syntax import GIVEN, LONGEST_PARSED, Block, is_remark, kept_for_lines, parse

MOST_CUTS = 24  # how often prose is cut off before a text is given up,
MOST_PARSED = 2_000_000  # and how many characters are parsed for that
MOST_FENCES = 500
MOST_INNER_FENCES = 6  # in one docstring

PYTHON = {
    *("python", "python2", "python3", "py", "py2", "py3", "pypy", "pypy3", "cpython", "ipython", "ipython3"),
    *("pycon", "python-repl", "sage", "jupyter", "notebook"),
}
# A fence stands at the start of a line, perhaps in a list or a quotation. None of these expressions may take more than
# linear time on a line of any length.
LEAD = r"(?P<lead>[ \t]*(?:>[ \t]?)*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?)"
FENCE = re.compile(rf"^{LEAD}(?P<fence>`{{3,}}|~{{3,}})[ \t]*(?P<label>[^\s`]*)[ \t]*$", re.MULTILINE)
ONE_LINE = re.compile(rf"^{LEAD}(?P<fence>`{{3,}})(?P<info>[^`\n]+)(?P=fence)[ \t]*$", re.MULTILINE)
MORE_BEHIND = re.compile(rf"^{LEAD}(?P<fence>`{{3,}}|~{{3,}})(?P<info>[^`\n]+)$", re.MULTILINE)
AT_LINE_END = re.compile(r"^(?P<text>[^`\n]+)(?P<fence>`{3,}[ \t]*[\w+#-]*)[ \t]*$", re.MULTILINE)
STATEMENT = re.compile(
    r"[ \t]*(?:@\w|(?:async[ \t]+)?def[ \t]+\w+[ \t]*[(\[]|class[ \t]+\w+[ \t]*[:(\[]|import[ \t]+\w"
    r"|from[ \t]+[\w.]+[ \t]+import\b|(?:if|for|while|with|try|match)\b.*:[ \t]*(?:#.*)?$"
    r"|[A-Za-z_][\w., \t\[\]*]*[-+*/%&|^]?=(?!=)|[A-Za-z_][\w.]*\(|(?:>>>|In \[\d+\]:)[ \t])"
)
ATTRIBUTE = re.compile(
    r"(?:title|name|file\w*|path|caption|id|class|start\w*|line\w*|number\w*|hl\w*|highlight\w*)=", re.I
)
# What wraps code where there is no fence: tags, [PYTHON], \begin{verbatim}.
WRAPPER = re.compile(
    r"^[ \t]*(?:</?(?:answer|code|pre|solution|python|response|output)\b[^>\n]*>[ \t]*)+"
    r"|(?:</(?:answer|code|pre|solution|python|response|output)>[ \t]*){1,4}$"
    r"|^[ \t]*(?:\[/?[A-Z]{4,}\]|\\(?:begin|end)\{\w+\*?\}(?:[\[{][^\n]*)?)[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
QUOTED = re.compile(r"^[ \t]*>(?:[ ]|$)", re.MULTILINE)
ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|#39|#x27);")
PROMPT = re.compile(r"[ \t]*(?P<prompt>>>>|\.\.\.|In \[\d+\]:|   \.\.\.:)(?: (?P<code>.*))?$")
NUMBERED = re.compile(r"[ \t]*(?P<number>\d{1,4})(?:[ \t]*[|:.)])?(?P<code>(?:[ \t].*)?)$")
CHARACTERS = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u2032"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u2033"), '"'),
    **dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2007\u2009\u202f\u3000"), " "),
    **dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), ""),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212"), "-"),
}


# -- repairs ---------------------------------------------------------------------------------------------------------


def _plain_characters(text: str) -> str:
    return text.translate(CHARACTERS)


def _without_prompts(text: str) -> str:
    """An interpreter's session as a program: what stands behind its prompts, without what it answered.

    A session begins with a prompt; one inside a program is an example in a docstring.
    """
    lines = [match for line in text.split("\n") if (match := PROMPT.match(line))]
    is_session = lines and text.lstrip().startswith(lines[0][0].lstrip()) and lines[0]["prompt"][0] in ">I"
    return "\n".join(match["code"] or "" for match in lines) + "\n" if is_session else text


def _without_commands(text: str) -> str:
    return re.sub(r"^[ \t]*[%!][^\n]*$", "", text, flags=re.MULTILINE)


def _without_line_numbers(text: str) -> str:
    lines = [(NUMBERED.match(line), line) for line in text.rstrip().split("\n")]
    numbers = [int(match["number"]) for match, _ in lines if match]
    is_listing = len(numbers) == sum(bool(line.strip()) for _, line in lines)
    if not (is_listing and numbers == list(range(numbers[0], numbers[0] + len(numbers)))):
        return text
    return textwrap.dedent("\n".join(match["code"] if match else "" for match, _ in lines)) + "\n"


def _without_diff_marks(text: str) -> str:
    lines = text.split("\n")
    if not all(line[:1] in ("+", "-", " ", "@", "") for line in lines):
        return text
    return textwrap.dedent("\n".join(line[1:] for line in lines if line[:1] not in ("-", "@")))


REPAIRS: tuple[Callable[[str], str], ...] = (
    textwrap.dedent,
    html.unescape,
    _plain_characters,
    _without_prompts,
    _without_commands,
    _without_line_numbers,
    _without_diff_marks,
)


def make_block(text: str, says_python: bool = False) -> Block:
    """The text as a block, repaired where it does not parse as it stands."""
    if len(text) > LONGEST_PARSED:
        return Block(text, None, says_python)
    first, _, rest = text.lstrip("\n").partition("\n")
    if first.strip().lower() in PYTHON:  # the language on a line of its own
        text = rest
    tree = parse(text)
    if isinstance(tree, ast.Module) and not _is_escaped(text, tree):
        return Block(text, tree, says_python)
    repaired = text
    for repair in REPAIRS:
        before, repaired = repaired, repair(repaired)
        tree = parse(repaired) if repaired != before else tree
        if isinstance(tree, ast.Module) and not _is_escaped(repaired, tree):
            return Block(repaired, tree, says_python)
    return Block(text, None, says_python)


def _is_escaped(text: str, tree: ast.Module) -> bool:
    """`return a &lt; b` parses: as a & lt, and then b."""
    return ENTITY.search(text) is not None and any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.BitAnd)
        and isinstance(node.right, ast.Name)
        and node.right.id in ("lt", "gt", "amp", "quot")
        for node in ast.walk(tree)
    )


# -- fences ----------------------------------------------------------------------------------------------------------


def _own_lines(text: str) -> str:
    """The text with every fence on a line of its own, but as it stands where that parses: a program may print fences."""
    pieces, at = [], 0
    fences = _fences(text)
    for number, opening in enumerate(fences):
        for closing in fences[number + 1 : number + 1 + MOST_INNER_FENCES]:
            body = _source(text, opening, closing.start())
            if opening.start() < at or closing["label"] or "`" not in body or not isinstance(parse(body), ast.Module):
                continue
            pieces += [_mended_fences(text[at : opening.start()]), text[opening.start() : closing.start()]]
            at = closing.start()
            break
    return "".join([*pieces, _mended_fences(text[at:])])


def _mended_fences(text: str) -> str:
    text = ONE_LINE.sub(r"\g<lead>\g<fence>\g<info>\n\g<fence>", text)
    text = AT_LINE_END.sub(_before_a_fence, text)
    return MORE_BEHIND.sub(_behind_a_fence, text)


def _before_a_fence(match: re.Match[str]) -> str:
    is_lead = not match["text"].strip(" \t>-*+.)0123456789")
    return match[0] if is_lead else f"{match['text']}\n{match['fence']}"


def _behind_a_fence(match: re.Match[str]) -> str:
    info, opening = match["info"].strip(), f"{match['lead']}{match['fence']}"
    word, _, rest = info.strip("{}").lstrip(".").partition(" ")
    is_language = word.lower() in PYTHON
    if is_language and STATEMENT.match(rest) and not ATTRIBUTE.match(rest):
        return f"{opening}{word}\n{rest}"
    if not is_language and STATEMENT.match(info):
        return f"{opening}\n{info}"
    if is_language or not rest or "=" in rest:
        return f"{opening}{re.split('[:,{]', word)[0]}"  # a language and its attributes, or a file's name
    return f"{opening}\n{info}"  # a remark behind a fence that closes


def _fences(text: str) -> list[re.Match[str]]:
    fences, opened = [], ""
    for fence in FENCE.finditer(text):
        mark = fence["fence"]
        if opened and (mark[0] != opened[0] or len(mark) < len(opened)):
            continue  # another kind of fence, or a shorter one, inside a block is part of it
        fences.append(fence)
        opened = "" if opened and not fence["label"] else mark
    return fences[-MOST_FENCES:]


def fenced_blocks(text: str) -> list[Block]:
    """Every piece behind a fence, in order; one that a cut-off completion left open runs to the end.

    Which fences open and which close is not relied on: prose between two of them does not parse. A fence behind an
    open docstring is part of it.
    """
    text = _own_lines(text)
    fences = _fences(text)
    ends = [*(fence.start() for fence in fences[1:]), len(text)]
    blocks: list[Block] = []
    at = 0
    while at < len(fences):
        reach = range(at, min(at + MOST_INNER_FENCES, len(fences)))
        last = next((last for last in reach if not _is_open(_source(text, fences[at], ends[last]))), at)
        block = make_block(_source(text, fences[at], ends[last]), fences[at]["label"].lower() in PYTHON)
        if block.text.strip():
            blocks.append(block)
        at = last + 1
    return blocks


def _is_open(source: str) -> bool:
    return any(source.count(quotes) % 2 for quotes in ('"""', "'''"))


def _source(text: str, opening: re.Match[str], end: int) -> str:
    body = text[opening.end() + 1 : end]
    if ">" in opening["lead"]:
        return re.sub(r"^[ \t]*(?:>[ ]?)+", "", body, flags=re.MULTILINE)
    indent = len(opening["lead"])
    return re.sub(rf"^[ \t]{{1,{indent}}}", "", body, flags=re.MULTILINE) if indent else body


def inline_blocks(text: str) -> list[Block]:
    """One-liners between single backticks."""
    spans = re.findall(r"`([^`\n]+)`", text)[-MOST_FENCES:]
    return [block for block in map(make_block, spans) if block.is_code]


# -- prose -----------------------------------------------------------------------------------------------------------


def bare_blocks(text: str) -> list[Block]:
    """Code that stands between prose without a fence."""
    whole = make_block(text)
    if whole.tree is None and (unwrapped := WRAPPER.sub("", text)) != text:
        text, whole = unwrapped, make_block(unwrapped)
    blocks = [whole]
    if whole.tree is None:
        repaired = _plain_characters(html.unescape(text))
        # Such characters may stand in the program's own texts: they are changed only where more of it parses then.
        ways = [_parsing_parts(each) for each in dict.fromkeys((text, repaired, QUOTED.sub("", text)))]
        blocks = max(ways, key=lambda found: sum(block.text.count("\n") for block in found))
    known = GIVEN.union(*(block.binds for block in blocks))
    needed = set[str]().union(*(block.names[1] for block in blocks))
    return [block for each in blocks if (block := _without_remarks(each, known, needed)).is_code]


def _parsing_parts(text: str) -> list[Block]:
    """From each line that looks like a statement as far as it parses: the parser says where the prose begins."""
    if len(text) > LONGEST_PARSED:
        return []
    lines = text.split("\n")
    blocks: list[Block] = []
    at, cuts, left = 0, MOST_CUTS, MOST_PARSED
    while at < len(lines) and cuts and left > 0:
        start, end = _indented(lines, at) if _may_begin(lines[at]) else ("", at)
        while end > at and cuts and left > 0:
            source = "\n".join(line.removeprefix(start) for line in lines[at:end]) + "\n"
            tree = parse(source)
            if isinstance(tree, ast.Module) and not _is_escaped(source, tree):
                blocks.append(Block(source, tree))
                break
            cuts, left = cuts - 1, left - len(source)
            error = 1 if isinstance(tree, ast.Module) else tree.lineno or 1
            stop = at + min(error - 1, end - at - 1)
            end = complete_until(lines, at, stop)
            if end == at:  # nothing but decorators stands before the error, so none of them begins a program
                end = at = stop
        at = max(end, at + 1)
    return blocks


def complete_until(lines: list[str], at: int, end: int) -> int:
    """`end`, or where the decorators begin that stand before it, with nothing to decorate."""
    while end > at and lines[end - 1].lstrip().startswith("@"):
        end -= 1
    return end


@kept_for_lines
def _may_begin(line: str) -> bool:
    """Whether a line may be the first of a program: it looks like a statement, does something, or goes on in the next line."""
    if STATEMENT.match(line):
        return True
    tree = parse(line.strip())
    if isinstance(tree, ast.Module):
        return Block(line.strip(), tree).is_code
    return (tree.msg or "").endswith("was never closed") or "triple-quoted" in (tree.msg or "")


def _indented(lines: list[str], at: int) -> tuple[str, int]:
    """A line's indentation, and where the lines that are indented like it end: the end of the text for one that is not."""
    indentation = re.match(r"[ \t]*", lines[at])
    start = indentation[0] if indentation else ""
    filled = (n for n in range(at, len(lines)) if lines[n].strip())
    return start, next((n for n in filled if not lines[n].startswith(start)), len(lines))


def _without_remarks(block: Block, known: set[str], needed: set[str]) -> Block:
    """Without lines of prose that happen to parse."""
    remarks = [statement for statement in block.statements if is_remark(statement, known, needed)]
    return make_block(block.without(remarks), block.says_python) if remarks else block
