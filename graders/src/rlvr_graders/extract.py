r"""Where a completion's final answer stands: the last ``\boxed{}``, an "Answer:" line, a choice letter.

Every extractor is linear in the length of the completion and never joins several answers into one: a policy that boxes
five candidates is judged by the last of them. Only assignments in a row, x = \boxed{3}, y = \boxed{5}, are one answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Extractor = Callable[[str], str | None]

MAX_LINE = 5000
"""Longest line that an answer is looked for in, in characters from its end: longer answers are refused anyway."""
MAX_PHRASE = 200
"""Longest phrase around an answer; a limit, so that no pattern below meets a line that it would take long on."""
_THOUGHT = r"(?:think|thinking|thought|reasoning)"
_END_OF_THOUGHT = re.compile(rf"</{_THOUGHT}>", re.IGNORECASE)
_BEGIN_OF_THOUGHT = re.compile(rf"<{_THOUGHT}>", re.IGNORECASE)
# Escaped characters (\{, \}, \\) are consumed whole, so that only real braces count, as in TeX.
# \\boxed is \boxed, escaped once too often.
_BRACES = re.compile(r"\\{1,2}(?:boxed|fbox)(?![A-Za-z])\s*(?P<open>\{)?|\\.|[{}]", re.DOTALL)
_BLANK = re.compile(r"(?:[\s~$]|\\(?:[ ,;:!]|q?quad(?![A-Za-z])))*")
# x = \boxed{3}, y = \boxed{5}: the one answer that is boxed part by part.
_NAMED = r"(?P<name>[A-Za-z](?:_(?:\w|\{\w{1,5}\}))?|\\[a-z]{2,7})\s*=\s*"
_FIRST_NAMED, _NEXT_NAMED = (
    re.compile(rf"(?<![\w^+*/-]){_NAMED}\Z"),
    re.compile(rf"[\s$,;]*(?:and|\\quad)?[\s$]*{_NAMED}"),
)
_MOST_NAMED = 8
_UNBRACED = re.compile(r"[-+]?[0-9A-Za-z.,/]+")
# A sign counts where it cannot be a minus between two terms.
_NUMBER = re.compile(r"(?:(?<![\w)\]])-)?\d+(?:,\d{3})*(?:\.\d+)?")
# What stands after the answer on its line: tokens of a chat template, and the phrase that Minerva's prompt teaches.
_AFTER_ANSWER = re.compile(r"(?:\s*<\|[^|<>\s]{1,40}\|>|\s*</s>|\.?\s*I hope (?:it|this) is correct\.?)+\s*$")
_ANSWER_LINE = re.compile(
    r"\b(?:answers?|options?|choice)\b(?:\s+(?:to|of|for)\b[^.:=]{1,60}?)?[\s*_]*"
    r"(?:\b(?:is|are|would be|should be|must be)(?=[\s*_:=\uff1a])[\s*_]*[:=\uff1a]?|[:=\uff1a])[\s*_]*",
    re.IGNORECASE,
)
_DENIAL = re.compile(r"\b(?:not|no|never|isn't|doubt|wrong|incorrect|if|unless|whether|maybe|perhaps)\b", re.IGNORECASE)
_CHOSEN = re.compile(
    r"^[\s*_#>]*(?:(?:so|thus|hence|therefore|the|correct|final|right)\b[\s,]*)*(?:(?:option|choice|answer)\b)?[\s*_]*"
    r"(?P<letter>\(?[A-J]\)?)[\s*_]+is\s+(?:the\s+)?(?:correct|right|best)(?:\s+(?:answer|option|choice|one))?\W*$",
    re.IGNORECASE,
)

_MARKUP = re.compile(
    r"\\(?:math|text)(?:rm|bf|sf|it|tt|normal)?(?![A-Za-z])\s*|\\(?:quad|qquad)(?![A-Za-z])|[{}$*_`\x22\u201c\u201d]|\\[()\[\] ,;!]"
)
# "therefore C", and "C, not B": what is turned down behind the choice is no other one.
_BEFORE_CHOICE = re.compile(r"^(?:(?:therefore|thus|hence|so|then|clearly|simply)\b[\s,:]*)+", re.IGNORECASE)
_TURNED_DOWN = re.compile(
    r"(?<=[A-J)\]]),\s+(?:and\s+)?(?:not|rather than|instead of)\s+(?:[Oo]ption\s+)?[(\[]?[A-J][)\]]?\.?$"
)
# A line "Answer - C", and a letter alone below a heading that announces the answer.
_CHOICE_LINE = re.compile(
    r"(?:^|\n)(?:[^\n]*\banswer[\s*_]*[-\u2013\u2014]|[\s*_]*#{1,6}[^\n]*\banswer[\s*_:]*\n)\s*(?P<choice>[^\n]{1,20})$",
    re.IGNORECASE,
)
_CHOICE = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\b[\s:]*)?[(\[]?\s*([A-J])\s*[)\]]?\s*[.:]?")
_CHOICE_LETTER = re.compile("[A-J]")
_CHOICE_WITH_TEXT = re.compile(
    r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\b[\s:]*)?[(\[]?([A-J])\s*[)\].:]\s*(\S.*)", re.DOTALL
)
_OTHER_CHOICE = re.compile(
    r"[(\[][A-J][)\]]|(?<![A-Za-z])[A-J][):](?:\s|$)|\b(?:or|not|nor|than|instead of|rather than)\s+(?:[Oo]ption\s+)?[A-J](?![A-Za-z'])"
    r"|^(?:and|&|,|/)\s*[A-J](?![A-Za-z'])"
)


def final_answer(completion: str) -> str:
    """The completion without its thoughts: what follows the last of them; nothing of one that never ends."""
    spoken = _END_OF_THOUGHT.split(completion)[-1] if "</" in completion else completion
    return _BEGIN_OF_THOUGHT.split(spoken, maxsplit=1)[0] if "<" in spoken else spoken


def last_boxed(completion: str) -> str | None:
    r"""Content of the balanced ``\boxed{...}`` (or ``\fbox{...}``) that ends last; None where there is none.

    A box that is never closed (a response cut at the length limit) or is empty does not count, and one inside another is part of it.
    ``\boxed 5`` without braces counts as the word that follows. A box inside a thought does not count.
    """
    completion = final_answer(completion)
    # Of every box that has ended: where it begins, and where its content does and ends.
    boxes: list[tuple[int, int, int]] = []
    # For every open brace: where its box and the box's content begin, None for a plain brace.
    stack: list[tuple[int, int] | None] = []
    for match in _BRACES.finditer(completion):
        token = match.group()
        if token == "{":
            stack.append(None)
        elif token == "}":
            begins = stack.pop() if stack else None
            if begins is not None and not (boxes and _BLANK.fullmatch(completion, begins[1], match.start())):
                boxes.append((*begins, match.start()))  # an empty box takes nothing back
        elif match.group("open"):
            stack.append((match.start(), match.end()))
        elif "box" in token:
            word = _UNBRACED.match(completion, match.end())
            if word:
                boxes.append((match.start(), *word.span()))
    if not boxes:
        return None
    return (len(boxes) > 1 and _in_parts(completion, boxes)) or completion[boxes[-1][1] : boxes[-1][2]].strip()


def _in_parts(completion: str, boxes: list[tuple[int, int, int]]) -> str | None:
    """The assignments that end in the last box, where there are several in a row and each has its own name."""
    parts: dict[str, str] = {}
    for (_, _, before), (start, begin, end) in zip(boxes[-2:-_MOST_NAMED:-1], boxes[:-_MOST_NAMED:-1], strict=False):
        name = _NEXT_NAMED.fullmatch(completion, before + 1, start) if start - before < MAX_PHRASE else None
        if name is None or name["name"] in parts:
            break
        parts[name["name"]] = completion[begin:end]
    start, begin, end = boxes[-1 - len(parts)]
    first = _FIRST_NAMED.search(completion[max(0, start - 20) : start])
    if not parts or first is None or first["name"] in parts:
        return None
    return ", ".join(
        f"{name}={value}" for name, value in [(first["name"], completion[begin:end]), *reversed(parts.items())]
    )


def answer_line(completion: str) -> str | None:
    """What follows "Answer:" (or "the answer is") on the last line that is not empty; None where that line says something else."""
    line = final_answer(completion).rstrip().rsplit("\n", 1)[-1].strip()[-MAX_LINE:]
    line = line[:-MAX_PHRASE] + _AFTER_ANSWER.sub("", line[-MAX_PHRASE:])
    chosen = _CHOSEN.match(line) if len(line) <= MAX_PHRASE else None
    if chosen is not None:  # "Option C is correct."
        return chosen["letter"]
    *_, match = [None, *_ANSWER_LINE.finditer(line)]  # the last one
    if match is None or _DENIAL.search(line[: match.start()]):
        return None
    return re.sub(r"\*+\.$|[*_]+$", "", line[match.end() :].strip()).strip() or None


def hash_line(completion: str) -> str | None:
    """What follows the last "####" up to the end of its line: GSM8K's own format."""
    _, marker, rest = final_answer(completion).rpartition("####")
    if not marker:
        return None
    return rest.split("\n", 1)[0].strip() or None


def last_number(completion: str) -> str | None:
    """The last number of the completion, without the commas between its digits: "The answer is $1,234." gives 1234."""
    numbers = _NUMBER.findall(final_answer(completion))
    return numbers[-1].replace(",", "") if numbers else None


def choice_letter(text: str) -> str | None:
    r"""The one letter that an answer chooses: C, (C), \text{(C)}, **C.**, (C) 45; None where it names none or several."""
    if len(text) > MAX_LINE or not _CHOICE_LETTER.search(text):
        return None
    plain = _TURNED_DOWN.sub("", _BEFORE_CHOICE.sub("", " ".join(_MARKUP.sub(" ", text).split())))
    alone = _CHOICE.fullmatch(plain)
    if alone:
        return alone[1]
    with_text = _CHOICE_WITH_TEXT.fullmatch(plain)
    if with_text is None or _OTHER_CHOICE.search(with_text[2]):
        return None
    return with_text[1]


def choice_line(completion: str) -> str | None:
    """A choice at the end that no other line announces: "Answer - C", or a letter below a heading."""
    match = _CHOICE_LINE.search(final_answer(completion).rstrip()[-MAX_PHRASE:])
    return None if match is None or _DENIAL.search(match[0]) else match["choice"]


def whole(completion: str) -> str | None:
    """The completion itself: for tasks that ask for the bare answer and nothing else."""
    return final_answer(completion).strip() or None


def boxed_or_line(completion: str) -> str | None:
    r"""The last ``\boxed{}``; where there is none, the "Answer:" line at the end."""
    boxed = last_boxed(completion)
    return answer_line(completion) if boxed is None else boxed


EXTRACTORS: dict[str, Extractor] = {
    "boxed": last_boxed,
    "answer_line": answer_line,
    "boxed_or_line": boxed_or_line,
    "hash_line": hash_line,
    "last_number": last_number,
    "whole": whole,
}


def extractor(extract: str | Extractor) -> Extractor:
    """The extractor of that name, or the callable itself."""
    if callable(extract):
        return extract
    if not isinstance(extract, str) or extract not in EXTRACTORS:
        raise ValueError(f"extract={extract!r} is not known; use one of {sorted(EXTRACTORS)} or pass a callable")
    return EXTRACTORS[extract]
