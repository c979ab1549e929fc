r"""Where a completion's final answer stands: the last ``\boxed{}``, an "Answer:" line, a choice letter.

Every extractor is linear in the length of the completion and never joins several answers into one: a policy that boxes
five candidates is judged by the last of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Extractor = Callable[[str], str | None]

# Escaped characters (\{, \}, \\) are consumed whole, so that only real braces count, as in TeX.
_BRACES = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*(?P<open>\{)?|\\.|[{}]", re.DOTALL)
_UNBRACED = re.compile(r"[-+]?[0-9A-Za-z.,/]+")

_CHOICE = re.compile(r"\(?([A-J])\)?")
_CHOICE_WITH_TEXT = re.compile(r"\(?([A-J])\s*[).:]\s*(\S.*)", re.DOTALL)

_ANSWER_LINE = re.compile(
    r"^[\s>*_#]*(?:(?:the|my|so|final|hence|therefore|thus|,)[\s*_]+)*answer[\s*_]*"
    r"(?:is(?=[\s*_:=])[\s*_]*[:=]?|[:=])[\s*_]*(?P<answer>.*)$",
    re.IGNORECASE,
)


def last_boxed(completion: str) -> str | None:
    r"""Content of the balanced ``\boxed{...}`` (or ``\fbox{...}``) that ends last; None where there is none.

    A box that is never closed (a response cut at the length limit) does not count, and one inside another is part of it.
    ``\boxed 5`` without braces counts as the word that follows.
    """
    found: tuple[int, int] | None = None
    stack: list[
        int | None
    ] = []  # for every open brace: where its box's content begins, None for a plain brace
    for match in _BRACES.finditer(completion):
        token = match.group()
        if token == "{":
            stack.append(None)
        elif token == "}":
            begin = stack.pop() if stack else None
            if begin is not None:
                found = (begin, match.start())
        elif match.group("open"):
            stack.append(match.end())
        elif token.startswith(("\\boxed", "\\fbox")):
            word = _UNBRACED.match(completion, match.end())
            if word:
                found = word.span()
    return None if found is None else completion[found[0] : found[1]].strip()


def answer_line(completion: str) -> str | None:
    """What follows "Answer:" (or "the answer is") on the last line that is not empty; None where that line says something else."""
    lines = completion.rstrip().rsplit("\n", 1)
    match = _ANSWER_LINE.match(lines[-1]) if lines[-1] else None
    if match is None:
        return None
    return match.group("answer").strip().rstrip("*_").strip() or None


def hash_line(completion: str) -> str | None:
    """What follows the last "####" up to the end of its line: GSM8K's own format."""
    _, marker, rest = completion.rpartition("####")
    if not marker:
        return None
    return rest.split("\n", 1)[0].strip() or None


def choice_letter(text: str) -> str | None:
    r"""The one letter that an answer chooses: C, (C), \text{(C)}, **C.**, (C) 45; None where it names none or several."""
    plain = (
        re.sub(r"\\(?:math|text)(?:rm|bf|sf|it|tt|normal)?(?![A-Za-z])\s*|[{}$*]|\\[()\[\] ,;]", "", text)
        .strip()
        .rstrip(".")
    )
    alone = _CHOICE.fullmatch(plain)
    if alone:
        return alone[1]
    with_text = _CHOICE_WITH_TEXT.fullmatch(plain)
    if with_text is None or re.search(r"(?<![A-Za-z])[A-J](?:\)|\.|:|$)|\b(?:or|and)\b", with_text[2]):
        return None
    return with_text[1]


def whole(completion: str) -> str | None:
    """The completion itself: for tasks that ask for the bare answer and nothing else."""
    return completion.strip() or None


def boxed_or_line(completion: str) -> str | None:
    r"""The last ``\boxed{}``; where there is none, the "Answer:" line at the end."""
    boxed = last_boxed(completion)
    return answer_line(completion) if boxed is None else boxed


EXTRACTORS: dict[str, Extractor] = {
    "boxed": last_boxed,
    "answer_line": answer_line,
    "boxed_or_line": boxed_or_line,
    "hash_line": hash_line,
    "whole": whole,
}


def extractor(extract: str | Extractor) -> Extractor:
    """The extractor of that name, or the callable itself."""
    if callable(extract):
        return extract
    if extract not in EXTRACTORS:
        raise ValueError(
            f"extract={extract!r} is not known; use one of {sorted(EXTRACTORS)} or pass a callable"
        )
    return EXTRACTORS[extract]
