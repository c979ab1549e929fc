"""TeX's tokens as they stand in an answer, and what can be told from those that follow: for `latex`."""

from __future__ import annotations

import re

from . import spelling
from .tokens import is_word, split

_TOKEN = re.compile(
    r"""\\(?:begin|end)\s*\{[A-Za-z]+\*?\}
    | \\\\(?:\s*\[-?[\d.]+\s*(?:pt|em|ex|cm|mm|in|mu)\])?   # a new line, perhaps with the space below it
    | \\[A-Za-z]+ | \\.
    | [0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)? | 1[eE][-+]?[0-9]+ | [0-9]+[eE]\+?[0-9]+ | [0-9]+ | \.[0-9]+   # 2e-5 is 2e minus 5
    | (?<![^\W\d_])[apAP]\.\ ?[mM]\b\.? | [^\W\d_]+
    | <=|>=|=<|==|~=|(?<=\s)!=|\*\*|\+/-|\.{3,}
    | \s+ | .""",
    re.VERBOSE | re.DOTALL,
)


class Source:
    """The tokens that are still to be read, the next one last."""

    def __init__(self, text: str) -> None:
        self.pending = _TOKEN.findall(text)[::-1]
        self.depth = 0
        self.crosses = False
        r"""Whether letters are vectors although no arrow says so, as in u \cdot (v \times w)."""
        self.spaces = False
        r"""Whether \times may stand between groups, rings or spaces."""
        self.tables = 0
        """How many matrices or cases are open: only there a new line is a new row."""
        self.in_unit = False
        r"""Whether a fraction behind a number is read: there an upright letter is a unit, ``9 \frac{\mathrm{m}}{\mathrm{s}}``."""

    def at_gap(self, length: int) -> bool:
        """Whether a run of so many letters ends where a word may end; a short one needs a space: no, but not at^2."""
        is_joined = self.pending[-1:] == ["-"] and len(self.pending) > 1 and len(self.pending[-2]) > 3  # two-thirds
        return (
            length > 3 or not self.pending or is_joined or self.pending[-1].isspace() or self.pending[-1] in ".,;:!?$)"
        )

    def following(self) -> str:
        """The next token that is no space."""
        return next((token for token in reversed(self.pending) if not token.isspace()), "")

    def before_unit(self) -> bool:
        """Whether a unit with its power comes next, as behind the m of m s^{-1}."""
        return re.match(r"\s+[smh]\^\{?-?\d", "".join(self.pending[:-7:-1])) is not None

    def has_argument(self, function: str) -> bool:
        """Whether ``2 sec x`` goes on like a function: then sec are no seconds."""
        following = self.following()
        has_letter = function in spelling.FUNCTIONS and following[:1].isalpha()
        return has_letter or following in ("(", "\\left", "\\theta")

    def skip(self, *tokens: str) -> bool:
        """Takes the next token away where it is one of these."""
        while self.pending and self.pending[-1].isspace():
            self.pending.pop()
        if self.pending and self.pending[-1] in tokens:
            self.pending.pop()
            return True
        return False

    def between_vectors(self, out: list[str]) -> bool:
        """Whether this is a cross product: vectors are about, and no number stands beside the sign."""
        rest = self.pending[::-1]
        following = self.following()
        some = any(t.startswith(("\\vec{", "\\mathbf{")) for t in out) or any(t[1:] in spelling.VECTORS for t in rest)
        if out[-1:] == ["\\nabla"]:
            return True
        if not some and "\\cdot" in (*out, *rest) and {"(", ")"} & {*out[-2:-1], *rest}:
            self.crosses |= out[-1:][0].isalpha() and following.isalpha() and len(following) == 1
        some |= self.crosses
        return some and bool(out) and not out[-1][0].isdigit() and not following[:1].isdigit()

    def number(self, token: str, out: list[str]) -> None:
        mantissa, mark, exponent = token.lower().partition("e")
        if out and out[-1][0].isdigit():
            out.append(" ")
        out.append("0" + mantissa if mantissa[0] == "." else mantissa)
        if mark:
            sign = ["-"] if exponent[0] == "-" else []
            out += ["\\cdot", "10", "^", "{", *sign, exponent.lstrip("+-"), "}"]
        elif (
            "." not in mantissa
            and self.pending[-1:] == ["."]
            and self.pending[-2:-1] in (["\\overline"], ["\\bar"], ["\\dot"])
        ):
            self.pending.pop()
            out[-1] += "."  # 0.\overline{3}

    def is_ohm(self, out: list[str]) -> bool:
        r"""Whether \Omega stands behind a number, perhaps with a prefix, and ends the answer."""
        value = out[:-1] if out[-1] in spelling.OHMS else out
        is_power = value[-1:] == ["}"] and "10" in value  # 2 \\times 10^6
        is_number = is_power or (bool(value) and value[-1][0].isdigit())
        return is_number and not "".join(self.pending).strip()

    def ends_open(self) -> bool:
        rest = [token for token in self.pending if not token.isspace()]
        return not rest or rest[-2:] == [".", "\\right"]


def as_word(word: str) -> str:
    return f"\\text{{{word.lower() if word.lower() in ('and', 'or') else word}}}"


def diagonal(inner: list[str]) -> list[str]:
    """diag(1, 2) as the matrix."""
    cells = split(tuple(inner), {","})
    rows = [
        [token for at in range(len(cells)) for token in ("&", *(cells[row] if at == row else ("0",)))][1:]
        for row in range(len(cells))
    ]
    body = [token for row in rows for token in ("\\newrow", *row)]
    return ["\\begin{matrix}", *body[1:], "\\end{matrix}"]


def mapped(out: list[str]) -> list[str]:
    r"""What x \mapsto and g : x \mapsto begin, as f(x) = and g(x) =."""
    function, at = (out[0], 2) if out[1:2] == [":"] else ("f", 0)
    return [function, "(", *out[at:], ")", "="] if len(out[at:]) == 1 else [*out, "\\to"]


def grouped(inner: list[str]) -> list[str]:
    return inner if len(inner) == 1 else ["{", *inner, "}"]


def is_language(run: str) -> bool:
    """Whether a run of letters is a word of a language rather than a product of variables."""
    if not run.isascii() or run.lower() in spelling.WORDS:
        return True
    if run.isupper():
        return False  # AB, HTT: points, or letters in a row
    if run[0].isupper():
        return len(run) >= 3 and run[1:].islower()
    return len(run) >= 4 and run not in "abcdefghijklmnopqrstuvwxyz" and re.search(r"[aeiouy]", run) is not None


def is_unit(tokens: list[str]) -> bool:
    """Whether an argument holds a unit alone: the parts of a fraction of units are one."""
    others = ("^", "{", "}", "\\cdot", "-")
    return bool(tokens) and is_word(tokens[0]) and all(is_word(t) or t in others or t.isdigit() for t in tokens)
