"""The program in a completion: the block that answers the task, with what it takes from other blocks."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from rlvr_graders.code.blocks import MOST_CUTS, MOST_PARSED, bare_blocks, complete_until, fenced_blocks, inline_blocks
from rlvr_graders.code.syntax import GIVEN, Block, Statement, defines, parse
from rlvr_graders.extract import final_answer

# <|im_end|>, </s>, <end_of_turn>.
END_TOKENS = re.compile(r"(?:(?:<\|[^\s|<>]{1,40}\|>|</s>|<eos>|<end_of_turn>)\s*){1,8}\Z")
READS = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\s*\(\s*0\b|\bfileinput\b")
# What changes the interpreter for all of a program, and binds nothing by which it could be found.
SETS_UP = re.compile(r"\b(?:setrecursionlimit|set_int_max_str_digits|stack_size|getcontext)\(")
FUTURE = re.compile(r"^from[ \t]+__future__[ \t]+import[ \t]+[\w, \t]+\n?", re.MULTILINE)


def _answer(completion: str) -> str:
    """The completion without its thoughts, with line ends of one kind, and without what a chat template leaves behind."""
    text = completion.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    return END_TOKENS.sub("\n", final_answer(text))


def extract_code(completion: str, entry_point: str | None = None) -> str | None:
    """The program, or None where there is none. `entry_point` is the function asked for; None for a whole program."""
    answer = _answer(completion)
    second_best = None
    for find in (fenced_blocks, bare_blocks, inline_blocks):
        blocks = find(answer)
        chosen = _choose(blocks, entry_point)
        if chosen is None:
            continue
        if entry_point is None or defines(chosen, entry_point):
            return _complete(chosen, blocks, entry_point)
        second_best = second_best or _complete(chosen, blocks, entry_point)
    if second_best is None and "\n" not in answer.strip() and "\\n" in answer:  # escaped, as in JSON
        return extract_code(answer.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"'), entry_point)
    return second_best


def _choose(blocks: list[Block], entry_point: str | None) -> Block | None:
    """The last block that answers the task, by the first of these descriptions that one fits."""
    python = [block for block in blocks if block.is_code or block.says_python]
    programs = [block for block in python if block.is_code and READS.search(block.text)]
    ranks = (
        [block for block in python if entry_point is not None and defines(block, entry_point)],
        [block for block in python if entry_point in block.binds],
        [block for block in programs if entry_point is None and block.acts and not block.lacks],
        [block for block in programs if entry_point is None],
        [block for block in python if block.says_python and block.is_code and (entry_point or block.acts)],
        [block for block in python if block.says_python],
        python,
    )
    return next((rank[-1] for rank in ranks if rank), None)


def _complete(chosen: Block, blocks: list[Block], entry_point: str | None) -> str:
    """The block's text, behind the statements of other blocks that bind names which it lacks. A program that only
    defines things is followed by the blocks that run them."""
    others = [block for block in blocks if block is not chosen]
    settings = {
        name for block in others for each in block.statements if SETS_UP.search(each.text) for name in each.takes
    }
    wanted = chosen.lacks | (settings - GIVEN if not SETS_UP.search(chosen.text) else set())
    parts = [*_borrowed(wanted, others), chosen.text] if others else [chosen.text]
    if entry_point is None and not chosen.acts:
        later = blocks[blocks.index(chosen) + 1 :]
        parts += [block.text for block in later if block.acts and block.lacks & chosen.binds]
    return _joined(parts) if len(parts) > 1 else chosen.text


def _borrowed(names: set[str], others: list[Block]) -> list[str]:
    """Statements of other blocks that bind these names, with what these lack in turn and what fills them: `table[0] = 1`."""
    binding: dict[str, list[tuple[int, Statement]]] = {}
    for place, block in enumerate(others):
        for statement in block.statements:
            for name in statement.binds | statement.fills:
                binding.setdefault(name, []).append((place, statement))
    wanted, known, taken = set(names), set[str](), dict[tuple[int, int], str]()
    while wanted:
        name = wanted.pop()
        known.add(name)
        for place, statement in (*binding.get(name, ()), *binding.pop("*", ())):
            if (place, statement.first) not in taken:
                taken[place, statement.first] = statement.text
                wanted |= statement.takes - statement.binds - known - GIVEN
    return [text for _, text in sorted(taken.items())]


def _joined(parts: list[str]) -> str:
    """The parts as one text, with `from __future__` first, where alone it may stand."""
    text = "\n".join(part.rstrip("\n") + "\n" for part in parts)
    return "".join(line.rstrip("\n") + "\n" for line in FUTURE.findall(text)) + FUTURE.sub("", text)


def continue_prompt(prompt: str, completion: str, entry_point: str) -> str | None:
    """The program where a model was asked to go on from `prompt` (HumanEval's form).

    A completion that instead gives the whole function follows the prompt, whose imports and helpers then stand and
    whose unfinished function it replaces.
    """
    whole = extract_code(completion, entry_point)
    if whole is not None and defines(_block(whole), entry_point):
        stub = f"{prompt.rstrip()}\n    pass\n"
        return _joined([stub, whole]) if _block(stub).tree is not None else whole
    bodies = [text for body in _bodies(completion) for text in _indentations(body)]
    for cuts in (0, MOST_CUTS // len(bodies)):  # whole, or else as far as it parses
        for body in bodies:
            program = _cut(prompt, body, entry_point, cuts)
            if program is not None:
                return program
    return prompt + _answer(completion)


def _block(text: str) -> Block:
    tree = parse(text)
    return Block(text, tree if isinstance(tree, ast.Module) else None)


def _bodies(completion: str) -> Iterator[str]:
    """What may be the function's body: the text, the text before a fence that closes the prompt's, a block."""
    answer = _answer(completion)
    before, fence, _ = answer.partition("```")
    yield before if fence else answer
    for block in fenced_blocks(answer)[:-4:-1]:
        yield block.text


def _indentations(body: str) -> Iterator[str]:
    """As it stands, moved to the right where a fence had moved it to the margin, or with a first line that lost its blanks."""
    yield body
    yield textwrap.indent(textwrap.dedent(body.strip("\n")), "    ")
    yield "    " + body.lstrip()


def _cut(prompt: str, body: str, entry_point: str, cuts: int) -> str | None:
    """Prompt and body as far as they parse: prose may follow. None where the function gets no body."""
    lines = body.rstrip().split("\n")
    for _ in range(min(cuts, MOST_PARSED // 10 // len(prompt + body)) + 1):
        program = prompt + "\n".join(lines) + "\n"
        tree = parse(program)
        if isinstance(tree, ast.Module):
            return program if defines(Block(program, tree), entry_point) else None
        keep = (tree.lineno or 0) - prompt.count("\n") - 1
        if keep < 1:
            return None
        del lines[complete_until(lines, 0, min(keep, len(lines) - 1)) :]
    return None
