r"""Brings an answer into one canonical spelling, as a tuple of tokens: the same for reference and prediction.

Only spelling is touched here (``\dfrac``, ``\left``, spaces, Unicode signs, ``\frac12``, ``sqrt(2)``, ``10,\!080``). What an answer
means (a set, a unit, a percentage) is `structure`'s business. A canonical token is a number, a letter, a command, a sign, or a word:
``\text{word}``. Arguments stand in braces, and " " stands between two numbers that must not become one.
"""

from __future__ import annotations

import re
from functools import lru_cache

from . import spelling
from .characters import MAX_NESTING, check_size, digits_joined, plain_characters
from .measures import BARE_UNITS, CASED, PREFIXES
from .source import Source, as_word, diagonal, grouped, is_language, is_unit, mapped
from .spaces import GROUPS, PRODUCT, may_hold_spaces, with_products
from .tokens import Tokens, UnreadableAnswer, is_word, split, word_of
from .units import ORDINALS

_PLAIN_NUMBER = re.compile(r"(-?)([0-9]+(?:\.[0-9]+)?)\.?")
_SIGNS = {
    "<=": "\\le",
    "=<": "\\le",
    ">=": "\\ge",
    "==": "=",
    "~=": "\\approx",
    "!=": "\\ne",
    "*": "\\cdot",
    "+/-": "\\pm",
}
_DENIED = {
    "=": "\\ne", "\\in": "\\notin", "<": "\\ge", ">": "\\le", "\\le": ">", "\\ge": "<", "\\leq": ">", "\\geq": "<",
    "\\equiv": "\\nequiv",
}  # fmt: skip
_BASIS = frozenset("ijk")
_NUMBERS = {
    shown: f"\\mathbb{{{name}}}" for name in "ZNQR" for shown in (name, f"\\mathbf{{{name}}}", f"\\text{{{name}}}")
}
"""Behind \\in they are sets of numbers."""
_STRAY_BACKSLASH = re.compile(r"(?<!\\)\\(?=[0-9])")
_AFTER_NAMES = ("(", "_", "\\left")
_FUNCTION_AND_LETTER = re.compile(r"(sin|cos|tan|cot|sec|csc|log|ln)([a-z])")


@lru_cache(maxsize=512)  # long answers are kept too: this bounds what they take
def tokens_of(raw: str, *, thousands: bool = True, crosses: bool = False) -> Tokens:
    """The canonical tokens. With `thousands`, the commas of 1,234 belong to the number; with `crosses` letters are vectors."""
    plain = _PLAIN_NUMBER.fullmatch(raw) if len(raw) < 100 else None
    if plain is not None:
        return (plain[1], plain[2]) if plain[1] else (plain[2],)
    check_size(raw)
    text = plain_characters(raw)
    if "\\\\" in text and "\\begin" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z])", r"\\", text)  # commands escaped twice
    if "\\" in text:
        text = _STRAY_BACKSLASH.sub("", text)
    text = _unmarked(digits_joined(text, thousands=thousands).strip())
    reader = _Reader(text)
    reader.crosses = crosses
    reader.spaces = may_hold_spaces(text)
    tokens = tuple(reader.math())
    if reader.spaces:
        tokens = with_products(tokens, text)
    if reader.crosses:
        tokens = tuple(f"\\vec{{{t}}}" if len(t) == 1 and t.isalpha() else t for t in tokens)
    if tokens == ("\\mathbf{R}",):
        tokens = ("\\mathbb{R}",)
    if "\\in" in tokens:
        tokens = tuple(_NUMBERS.get(t, t) if at and tokens[at - 1] == "\\in" else t for at, t in enumerate(tokens))
    if "\\times" in tokens:  # bold capitals are vectors there, otherwise matrices
        tokens = tuple(token.replace("\\mathbf{", "\\vec{") for token in tokens)
    return tokens


def _unmarked(text: str) -> str:
    """Without the marks of Markdown and the quotes around it; the star of \\mathbb{R}^* and the inches of 5'4" are none."""
    text = text.lstrip('*`"')
    if text.endswith("\\$") and not text[-3:-2].isdigit():
        text = text[:-2]  # a dollar sign that closes nothing
    if "'" in text:
        text = re.sub(r"(?<=\d)\"", "''", text)
    return text if text.endswith("^*") else text.rstrip('*`"')


class _Reader(Source):
    """Takes TeX's tokens one after the other and writes canonical ones."""

    def math(self, closer: str | None = None, *, text: bool = False) -> list[str]:
        """Everything up to the closer. With `text`, letters are words."""
        self.depth += 1
        if self.depth > MAX_NESTING + 1:
            raise UnreadableAnswer(f"brackets nest deeper than {MAX_NESTING}")
        out: list[str] = []
        gap = True  # whether a space, an opening bracket or the beginning stands before the token
        while self.pending:
            token = self.pending.pop()
            if token == closer or (closer == "\\end" and token.startswith("\\end")):
                self.depth -= 1
                return out
            if token in ("\\choose", "\\over"):
                rest = self.math(closer, text=text)
                self.depth -= 1
                return ["\\binom" if token == "\\choose" else "\\frac", "{", *out, "}", "{", *rest, "}"]
            gap = self.write(token, out, gap, text)
        if closer is not None:
            raise UnreadableAnswer(f"{closer!r} is missing")
        return out

    def write(self, token: str, out: list[str], gap: bool, text: bool) -> bool:
        """Writes what a token stands for; whether it leaves a gap behind it."""
        if token[0] == "\\":
            return self.command(token[1:], out, gap, text)
        if token[0].isspace() or token in ("~", "$"):
            return True
        if token[0] in "0123456789" or (token[0] == "." and token[1:].isdigit()):
            self.number(token, out)
        elif token[0].isalpha():
            self.letters(token, out, gap, text)
        elif token == "{":
            inner = self.math("}", text=text)
            if out[-1:] == ["\\setminus"] and inner[-1:] != ["\\}"]:
                out += ["\\{", *inner, "\\}"]  # Z without {0}
                return False
            out += inner if len(inner) < 2 and not "".join(inner).isalnum() else ["{", *inner, "}"]  # 7{:}30
        elif token == "}":
            raise UnreadableAnswer("a '}' closes nothing")
        elif token in ("^", "_", "**"):
            self.script("_" if token == "_" else "^", out)
        elif token.startswith("..."):
            out.append("\\dots")
        elif token == "." and out and is_word(out[-1]):
            pass  # sq. units
        elif token == "-" and out and out[-1].startswith("\\mathbb{") and self.following() == "\\{":
            out.append("\\setminus")
        elif not (text and token in '".?!*-'):
            out.append(_SIGNS.get(token, token))
        elif token == "-" and self.pending and self.pending[-1][0].isdigit():
            out.append(token)
        return token in "([,;:=/-."

    # --- numbers and letters ---

    def letters(self, run: str, out: list[str], gap: bool, text: bool) -> None:
        if "." in run:
            out.append(as_word(run.lower().replace(".", "").replace(" ", "")))  # p.m.
            return
        if text:
            if out[-1:] == ["\\mu"] and f"u{run}" in CASED:
                out[-1] = as_word(f"u{run}")
                return
            while len(self.pending) > 1 and self.pending[-1] in ("-", "'") and self.pending[-2].isalpha():
                run += self.pending.pop() + self.pending.pop()  # non-real, isn't
            out.append({"mod": "\\mod", "infinity": "\\infty", "pi": "\\pi"}.get(run) or as_word(run))
            return
        if len(run) == 1 and run.isascii():
            self.letter(run, out, gap)
            return
        after_number = bool(out) and (
            out[-1][0].isdigit() or is_word(out[-1]) or (gap and run != "in" and out[-1] in ("\\pi", "}"))
        )
        is_unit = (
            run.lower() in BARE_UNITS
            or run in ORDINALS
            or (gap and run in CASED and not run.islower() and not run.isupper())
        )
        if after_number and is_unit and not self.has_argument(run):
            out.append(as_word(run))
        elif run == "log" and self.pending[-2:] in (["(", "2"], ["(", "10"]):  # log2(8)
            out += ["\\log", "_", "{", self.pending.pop(), "}"]
        elif run.lower() in ("am", "pm") and after_number and not self.pending:
            out.append(as_word(run))
        elif run in GROUPS and self.following() in _AFTER_NAMES:
            out.append(f"\\mathbb{{{run}}}")
        elif run == "diag" and self.skip("("):
            out += diagonal(self.math(")"))
        elif run in spelling.COMMAND_WORDS:
            self.command(spelling.COMMAND_WORDS[run], out, gap, text)
        elif match := _FUNCTION_AND_LETTER.fullmatch(run):
            out += ["\\" + match[1], match[2]]
        elif (
            run.lower() in ("and", "or")
            or (run == "at" and self.following() in ("least", "most"))
            or (is_language(run) and ((gap and self.at_gap(len(run))) or len(run) > 4))
        ):
            out.append(as_word(run))
        else:
            out += run

    def letter(self, letter: str, out: list[str], gap: bool) -> None:
        """A variable, or what else a single letter may be: 3 x 10^8, km/h, 25 m^2 (with a space, which 25m^2 has not)."""
        after_number = gap and bool(out) and out[-1][0].isdigit()
        after_unit = len(out) > 1 and (
            (out[-1] in ("/", "\\cdot") and is_word(out[-2]))
            or (gap and out[-2][0].isdigit() and word_of(out[-1]) in {*BARE_UNITS, "m"})  # 30 kg m/s^2
        )
        if letter == "x" and after_number and self.pending[-3:] == ["^", "10", " "]:
            out.append("\\cdot")
        elif letter == "U" and out and out[-1] in ")]}" and self.following() in ("(", "[", "{", "\\left"):
            out.append("\\cup")
        elif out[-1:] == ["\\mu"] and out[-2:-1] and out[-2][0].isdigit() and not self.following():
            out[-1] = as_word("u" + letter)
        else:
            has_power = letter == "m" and after_number and self.pending[-1:] in (["^"], ["/"])
            has_power |= letter in "mg" and after_number and self.before_unit()
            is_unit = has_power or (letter in spelling.UNIT_LETTERS | {"h"} and after_unit)
            out.append(as_word(letter) if is_unit else letter)

    # --- arguments ---

    def script(self, mark: str, out: list[str]) -> None:
        """A power or an index. Those who leave the braces out mean the whole number: 2^10."""
        if mark == "^" and self.pending[-2:-1] + self.pending[-1:] in (["\\underline", "{"], ["\\overline", "{"]):
            name = "\\falling" if self.pending[-2] == "\\underline" else "\\rising"
            out += [name, "{", *self.argument(), "}"]
            return
        inner = self.argument(whole_number=True)
        plain = "".join(inner).removeprefix("\\text{").removesuffix("}")
        if (
            mark == "^"
            and plain in ("\\circ", "\\degree", "o")
            and (out or "".join(self.pending[:-3:-1]).strip()[:1] in ("C", "F"))
        ):
            out.append("\\degree")
            for scale in ("C", "F"):
                out += [as_word(scale)] if self.skip(scale) else []
        elif mark == "^" and plain in ORDINALS:
            out.append(as_word(plain))
        elif mark == "^" and plain and not plain.strip("'"):
            out += inner
        elif mark == "^" and plain in ("(1)", "(2)", "(3)", "(4)") and out and out[-1] in "fghyuFGH":
            out += "'" * int(plain[1])
        elif inner in (["\\top"], ["\\intercal"]) and mark == "^":
            out += ["^", "{", "T", "}"]
        elif inner:
            out += [mark, "{", *(["*"] if inner == ["\\cdot"] else inner), "}"]  # \\mathbb{R}^*

    def argument(self, *, whole_number: bool = False, text: bool = False) -> list[str]:
        r"""TeX's next argument: a group or a single token; of a number one digit, as in ``\frac12``, or the `whole_number`."""
        self.depth += 1
        if self.depth > MAX_NESTING + 1:
            raise UnreadableAnswer(f"arguments nest deeper than {MAX_NESTING}")
        out: list[str] = []
        while not out:
            if not self.pending or self.pending[-1] in ("}", ")", "]", "&") or self.pending[-1][:4] == "\\end":
                raise UnreadableAnswer("the argument of a power, index, fraction or root is missing")
            token = self.pending.pop()
            if token == "{":
                out = self.math("}", text=text)
                break
            if token == "(" and whole_number:  # x^(n+1), sqrt(2)
                out = self.math(")")
                break
            if whole_number and token in "+-":
                alone = not self.pending or self.pending[-1][0] in " )}]=,;:."  # the set R^+
                out = [token] if alone else [token, *self.argument(whole_number=True)]
                break
            is_whole = (token.isdigit() and whole_number) or token in spelling.COMMAND_WORDS
            if len(token) > 1 and token.isalnum() and not is_whole:
                self.pending.append(token[1:])
                token = token[0]
            self.write(token, out, True, text)
        self.depth -= 1
        return out

    # --- commands ---

    def command(self, name: str, out: list[str], gap: bool, text: bool) -> bool:
        """Writes what a command stands for; whether it leaves a gap behind it."""
        name = spelling.ALIASES.get(name, name)
        if name in spelling.SPACES or name in "()[]":
            if name.endswith("quad") and "=" in out and "=" in self.pending and self.pending[-1:] != ["("]:
                out.append(";")  # x = 3 \quad y = 4
            return True
        if name in spelling.IGNORED:
            if name in ("left", "right", "middle"):
                self.skip(".")
            return True
        if name[0] == "\\":
            out.append("\\newrow" if self.tables else ";")
            return True
        if name.startswith(("begin", "end")) and name[-1] == "}":
            self.environment(name, out)
        elif name in spelling.IGNORED_WITH_ARGUMENT:
            self.skip("*")
            self.argument()
        elif name in spelling.SECOND_ARGUMENT:
            self.argument()
            inner = self.argument(text=text)
            is_marked = name != "textcolor" and name != "colorbox" and all(len(t) == 1 and t.isalpha() for t in inner)
            out += ["\\tilde", "{", *inner, "}"] if is_marked else grouped(inner)  # a sign over a letter says something
        elif name in spelling.TRANSPARENT:
            self.shown(name, out, text)
        elif name in spelling.NUMBERS_WITH_UNIT:
            out += self.argument() if spelling.NUMBERS_WITH_UNIT[name] == 2 else []
            self.unit_of_siunitx(out)
        elif name == "num":
            out += self.argument()
        elif name == "ang":
            parts = zip(split(tuple(self.argument()), {";"}), ("\\degree", "'", "''"), strict=False)
            out += [token for part, mark in parts if part for token in (*part, *mark.replace("''", "' '").split())]
        elif name in ("qtyrange", "SIrange", "numrange"):
            ends, unit = (self.argument(), self.argument()), list[str]()
            if name != "numrange":
                self.unit_of_siunitx(unit)
            out += [*ends[0], *unit, as_word("to"), *ends[1], *unit]
        elif name == "Omega" and out and self.is_ohm(out):
            out[len(out) - (out[-1] in spelling.OHMS) :] = [as_word(spelling.OHMS.get(out[-1], "") + "ohm")]
        elif name == "mapsto":
            out[:] = mapped(out)
        elif name == "times":
            is_cross = self.between_vectors(out) or out[-1:] in (["]"], ["\\}"])
            out.append("\\times" if is_cross else PRODUCT if self.spaces else "\\cdot")
        elif name == "circ" and out and out[-1].isdigit() and not self.pending:
            out.append("\\degree")
        elif name == "#" and not out:
            return True
        elif name in spelling.TEXT:
            self.skip("*")
            self.text(name, out)
        elif name in spelling.FONTS:
            out.append(f"\\{name}{{{''.join(self.argument())}}}")
        elif name == "sqrt":
            index = ["[", *self.math("]"), "]"] if self.skip("[") else []
            is_call = self.skip("(")
            out += ["\\sqrt", *index, "{", *(self.math(")") if is_call else self.argument()), "}"]
        elif name in spelling.ARGUMENTS:
            self.with_arguments(name, out)
        elif name == "pmod":
            out += ["\\mod", "{", *self.argument(whole_number=True), "}"]
        elif name == "lg":
            out += ["\\log", "_", "{", "10", "}"]
        elif name == "lb":
            out += ["\\log", "_", "{", "2", "}"]
        elif name == "not":
            denied = next((sign for sign in _DENIED if self.skip(sign)), "")
            out.append(_DENIED.get(denied, "\\not"))
        else:
            out.append(spelling.SIGNS.get(name, "\\" + name))
        return False

    def shown(self, name: str, out: list[str], text: bool) -> None:
        """What a command shows of its argument; a letter as a vector, a brace with the count of what it spans."""
        if name == "bbox" and self.skip("["):
            self.math("]")
        inner = self.argument(text=text)
        if name in spelling.VECTORS and len(inner) in (1, 2) and all(len(t) == 1 and t.isalpha() for t in inner):
            is_matrix = name not in ("vec", "overrightarrow") and inner[0].isupper()
            out.append(f"\\{'mathbf' if is_matrix else 'vec'}{{{''.join(inner)}}}")
            return
        count = self.argument() if name.endswith("brace") and self.skip("_", "^") else []
        if count and "\\dots" in inner:
            out += ["\\underbrace", "{", *inner, "}", "{", *(t for t in count if not is_word(t)), "}"]
        else:
            out += grouped(inner)

    def unit_of_siunitx(self, out: list[str]) -> None:
        r"""\SI{9.8}{\meter\per\second\squared}: the names are words, prefixes belong to the next one."""
        self.skip("{")
        prefix = ""
        while self.pending:
            token = self.pending.pop()
            name = token.removeprefix("\\")
            if token == "}":
                return
            if name in PREFIXES:
                prefix = name
            elif token in ("^", "_", "**"):
                self.script("^", out)
            elif name in ("per", "/"):
                out.append("/")
            elif name.isalpha():
                out.append(as_word(prefix + name))
                prefix = ""

    def text(self, name: str, out: list[str]) -> None:
        inner = self.math("}", text=True) if self.skip("{") else self.argument(text=True)
        word = inner[0][6:-1] if len(inner) == 1 and is_word(inner[0]) else ""
        if f"u{word}" in CASED and out[-1:] == ["\\mu"]:
            out[-1] = as_word("u" + word)
            return
        if inner[-1:] == ["\\Omega"] and len(inner) < 3 and self.is_ohm([*out, *inner[:-1]]):  # \mathrm{k\Omega}
            inner = [as_word(spelling.OHMS.get(inner[0], "") + "ohm")]
        before = out[:-1] if out[-1:] == ["/"] else out
        if before is not out and before and is_word(before[-1]):  # 30 \\mathrm{km} / \\mathrm{h}
            before = before[:-1]
        after_value = self.in_unit or (
            bool(before) and (before[-1][0].isdigit() or before[-1] in ("}", ")", "\\degree"))
        )
        is_unit = after_value and (word in BARE_UNITS or word in spelling.UNIT_LETTERS)
        is_short = name == "operatorname" and word in ("sh", "ch", "th")
        if word in GROUPS and self.following() in _AFTER_NAMES:
            out.append(f"\\mathbb{{{word}}}")
        elif word == "diag" and self.skip("("):
            out += diagonal(self.math(")"))
        elif (word in spelling.FUNCTIONS or is_short) and not is_unit:
            self.command(word, out, True, False)
        elif len(word) == 1 and name in spelling.UPRIGHT and not is_unit:
            out.append(word)
        else:
            if inner and out and out[-1][0].isdigit() and inner[0][0].isdigit():
                out.append(" ")
            out += inner

    def with_arguments(self, name: str, out: list[str]) -> None:
        before, self.in_unit = self.in_unit, name == "frac" and bool(out) and out[-1][0].isdigit()
        arguments = [self.argument() for _ in range(spelling.ARGUMENTS[name])]
        self.in_unit = before
        if name == "hat" and len(arguments[0]) == 1 and arguments[0][0][-2:].strip("}") in _BASIS:
            out.append(f"\\vec{{{arguments[0][0][-2:].strip('}')}}}")
            return
        if name == "frac" and all(map(is_unit, arguments)):
            out += [*arguments[0], "/", "(", *arguments[1], ")"]  # \frac{\text{m}}{\text{s}}
            return
        if name == "dot" and arguments[0] and out and (out[-1][0].isdigit() or out[-1] == "}"):
            first = len(out) - 1 - out[::-1].index("\\overline") if "\\overline" in out else len(out)
            period = [token for token in out[first + 1 :] if token not in "{}"] + arguments[0]
            if out[-1][0].isdigit() or (first < len(out) and all(token.isdigit() for token in period)):
                name, arguments = ("overline", [["".join(period)]])  # 0.\dot{1}4\dot{2}: from the first dot to the last
                del out[first:]
        out.append("\\" + name)
        for inner in arguments:
            out += ["{", *inner, "}"]

    def environment(self, name: str, out: list[str]) -> None:
        if name.startswith("end"):
            return  # it ends nothing
        name = name[5:].strip(" {}*")
        if name in spelling.WITH_COLUMNS:
            if self.skip("["):
                self.math("]")
            self.argument()
        kind = spelling.TABLES.get(name, "")
        self.tables += 1
        body = self.math("\\end")
        self.tables -= 1
        if out and out[-1] == "\\{" and self.ends_open():  # \left\{ ... \right. around the lines of a system
            out.pop()
            kind = "cases" if kind else ""
        if kind:
            out += [f"\\begin{{{kind}}}", *body, f"\\end{{{kind}}}"]
        else:
            out += [";" if token == "\\newrow" else token for token in body if token != "&"]
