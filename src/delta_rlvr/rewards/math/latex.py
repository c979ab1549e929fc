r"""Brings an answer into one canonical spelling, as a list of tokens: the same for reference and prediction.

Only spelling is touched here (``\dfrac``, ``\left``, spaces, Unicode signs, ``\frac12``, ``sqrt(2)``, ``10,\!080``). What an answer
means (a set, a unit, a percentage) is `structure`'s business.
"""

from __future__ import annotations

import re

from .spelling import NAMED_WORDS, SHORT_UNITS, SPELLINGS, UNICODE, UNICODE_PATTERN

MAX_LENGTH = 4000
"""Longest answer that is looked at, in characters. The longest of MATH-500 has 64."""
MAX_NESTING = 30
"""Deepest nesting of brackets and braces that is looked at."""
MAX_DIGITS = 1000
"""Longest run of digits that is looked at: beyond it, turning text into a number is itself an attack."""


class UnreadableAnswer(ValueError):
    """The answer cannot be read; the message says why."""


_WORD = re.compile(r"\\[A-Za-z]+\s*(?:\{[^{}]*\})?|(?<![A-Za-z_\\])[A-Za-z][A-Za-z'-]*[A-Za-z]")
_TOKEN = re.compile(
    r"\\text\{[^{}]*\}|\\(?:begin|end)\{[A-Za-z]+\*?\}|\\[A-Za-z]+|\\.|\d*\.\d+|\d+\.?|\s+|.", re.DOTALL
)
_OPEN = {"(", "[", "{", "\\{", "\\langle"}
_CLOSE = {")", "]", "}", "\\}", "\\rangle"}


def tokens_of(raw: str, *, thousands: bool = True) -> tuple[str, ...]:
    """The answer as canonical tokens. With `thousands`, the commas of 1,234 belong to the number."""
    if len(raw) > MAX_LENGTH:
        raise UnreadableAnswer(f"the answer has {len(raw)} characters, more than {MAX_LENGTH}")
    text = UNICODE_PATTERN.sub(lambda match: UNICODE[match.group()], raw)
    if re.search(rf"\d{{{MAX_DIGITS + 1}}}", text):
        raise UnreadableAnswer(f"a number has more than {MAX_DIGITS} digits")
    text = re.sub(r"[\x00-\x1f\x7f]", " ", text)
    if "\\begin" in text:
        text = text.replace("\\\\", "\\newrow ")  # before "\\ " and "\\[" are read as spacing and delimiters
    else:
        text = re.sub(r"\\\\(?=[A-Za-z])", r"\\", text).replace("\\\\", " ")  # commands escaped twice
    for pattern, replacement in SPELLINGS:
        text = pattern.sub(replacement, text)
    if thousands:
        text = _thousands_joined(text)
    text = _words_marked(text.strip().strip('*`"').strip())
    _check_nesting(text)
    return _arguments_braced(_spaces_resolved(_TOKEN.findall(text)))


def has_thousands(raw: str) -> bool:
    """Whether a comma in the answer can be read both as a thousands separator and as the comma of a list."""
    return _thousands_joined(raw) != raw


def _thousands_joined(text: str) -> str:
    text = re.sub(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])", lambda m: m.group().replace(",", ""), text)
    if re.fullmatch(r"\s*-?\d{1,3}(?: \d{3})+(?:\.\d+)?\s*", text):
        return text.replace(" ", "")
    return text


def _words_marked(text: str) -> str:
    r"""Bare words become commands (``sqrt``, ``pi``) or ``\text{}``: what is left of letters is a product of variables."""
    text = re.sub(r"(?<![A-Za-z\\])(sqrt|pi|log|ln|sin|cos|tan)(?=[\d(])", r"\\\1 ", text)
    text = re.sub(r"(?<=\d)(sqrt|pi)(?![A-Za-z])", r"\\\1 ", text)

    def mark(match: re.Match[str]) -> str:
        word = match.group()
        if word.startswith("\\"):
            return word
        if word in NAMED_WORDS:
            return NAMED_WORDS[word]
        lowered = word.lower()
        if lowered in ("and", "or"):
            return f"\\text{{{lowered}}}"
        if match.string[: match.start()].endswith("_{"):
            return word  # an index: S_{ABCD}
        spaced = match.start() == 0 or match.string[match.start() - 1] in " \t\n({,;:.)%/"
        attached_unit = (
            lowered in SHORT_UNITS and match.start() > 0 and match.string[match.start() - 1].isdigit()
        )
        if attached_unit or (spaced and (len(word) >= 4 or (lowered in SHORT_UNITS and match.start() > 0))):
            return f"\\text{{{word}}}"
        return word

    return _WORD.sub(mark, text)


def _check_nesting(text: str) -> None:
    depth = 0
    for match in re.finditer(r"\\[{}]|[(\[{)\]}]", text):
        depth += 1 if match.group()[-1] in "([{" else -1
        if depth > MAX_NESTING:
            raise UnreadableAnswer(f"brackets nest deeper than {MAX_NESTING}")
    if len(re.findall(r"\^|\\frac|\\sqrt", text)) > 8 * MAX_NESTING:
        raise UnreadableAnswer("too many powers, fractions and roots")


def _spaces_resolved(tokens: list[str]) -> list[str]:
    """Drops spaces, but leaves one between two numbers: "1 2" must not become 12."""
    kept: list[str] = []
    gap = False
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        if token.isspace():
            gap = True
            continue
        if token.startswith("\\text{"):
            token = "\\text{" + " ".join(token[6:-1].split()) + "}"
            if token == "\\text{}":
                continue
        elif token.endswith(".") and token[:-1].isdigit() and following != "\\overline":
            token = token[:-1]  # the full stop after "5."
        elif token.startswith(".") and len(token) > 1:
            token = "0" + token
        if gap and kept and kept[-1][-1].isdigit() and token[0].isdigit():
            kept.append(" ")
        kept.append(token)
        gap = False
    return kept


def _arguments_braced(tokens: list[str]) -> tuple[str, ...]:
    r"""Gives every ``\frac``, ``\binom``, ``\sqrt``, ``^`` and ``_`` its arguments in braces, as TeX would read them.

    TeX takes a single digit after ``\frac`` and ``\sqrt``; after ``^`` and ``_``, those who leave the braces out mean the
    whole number.
    """
    pending = list(reversed(tokens))

    def until(opener: str, closer: str) -> list[str]:
        inner: list[str] = []
        depth = 1
        while pending:
            token = pending.pop()
            depth += (token == opener) - (token == closer)
            if depth == 0:
                return inner
            inner.append(token)
        raise UnreadableAnswer(f"a {opener!r} is never closed")

    def argument(whole_number: bool) -> list[str]:
        sign: list[str] = []
        while pending and (pending[-1] == " " or (whole_number and not sign and pending[-1] in ("-", "+"))):
            token = pending.pop()
            sign += [] if token == " " else [token]
        if not pending or pending[-1] == "}":
            raise UnreadableAnswer("the argument of a power, index, fraction or root is missing")
        if pending[-1] in ("\\sqrt", "\\frac", "\\binom"):
            return sign + expand_one()
        token = pending.pop()
        if token == "{":
            return sign + until("{", "}")
        if token == "(" and whole_number:  # x^(n+1), sqrt(2)
            return sign + until("(", ")")
        if token.isdigit() and len(token) > 1 and not whole_number:
            pending.append(token[1:])
            token = token[0]
        return [*sign, token]

    def braced(inner: list[str]) -> list[str]:
        return ["{", *_arguments_braced(inner), "}"]

    def expand_one() -> list[str]:
        token = pending.pop()
        if token in ("\\frac", "\\binom"):
            return [token, *braced(argument(False)), *braced(argument(False))]
        if token == "\\sqrt":
            index: list[str] = []
            if pending and pending[-1] == "[":
                pending.pop()
                index = ["[", *until("[", "]"), "]"]
            is_call = bool(pending) and pending[-1] == "("
            return [token, *index, *braced(argument(is_call))]
        if token in ("^", "_"):
            return [token, *braced(argument(True))]
        return [token]

    out: list[str] = []
    while pending:
        out.extend(expand_one())
    return tuple(out)


def join(tokens: tuple[str, ...] | list[str]) -> str:
    """Tokens as LaTeX again: a space only where a command would swallow the next letter."""
    parts: list[str] = []
    for token in tokens:
        if parts and token[0].isalpha() and parts[-1][0] == "\\" and parts[-1][-1].isalpha():
            parts.append(" ")
        parts.append(token)
    return "".join(parts)
