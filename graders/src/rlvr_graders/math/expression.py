r"""Reads canonical tokens as an expression: a tree of tuples, (head, *parts).

    ("number", Fraction)   ("symbol", name)   ("constant", "pi" | "e" | "i" | "infinity")
    ("+", ...)   ("*", ...)   ("/", a, b)   ("-", a)   ("^", a, b)   ("root", a, degree)
    ("!", a)   ("!!", a)   ("binom", n, k)   ("arrangements", n, k)   ("sum" | "prod", name, low, high, a)
    ("abs", a)   ("floor", a)   ("sin", a)   ("log", a, base)   ("max", ...)   ... as the functions are called
    ("apply", name, ...)   a function that nothing is known of
    ("vector", ...)   ("matrix", rows, *cells)   ("transpose", matrix)   ("det", matrix)

Nothing is worked out here, and nothing is guessed: what has no plain reading raises `UnreadableAnswer`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from . import parts
from .characters import MAX_NESTING
from .measures import UNITS
from .parts import Expression, TokenReader, are_digits, basis, composed, is_matrix, product, symbols, whole
from .spelling import OPERATORS as _OPERATORS
from .tokens import Tokens, UnreadableAnswer, is_word, join, step, word_of

CONSTANTS = {"\\pi": "pi", "e": "e", "i": "i", "\\infty": "infinity"}
__all__ = ["CONSTANTS", "Expression", "parse", "symbols"]


@lru_cache(maxsize=128)
def parse(tokens: Tokens) -> Expression:
    """The expression that the tokens write."""
    parser = _Parser(tokens)
    expression = parser.sum()
    if parser.at < len(tokens):
        raise UnreadableAnswer(f"{tokens[parser.at]!r} is not understood in {join(tokens)[:60]!r}")
    return expression


class _Parser(TokenReader):
    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self.depth = 0
        self.bars = 0
        """How many absolute values are open: there "|" may close one."""
        self.angle = 0
        """Inside how many trigonometric functions: there degrees are a number."""
        self.counters: list[str] = []
        """Names that a sum runs over: there i is one, not the imaginary unit."""
        self.known: dict[int, tuple[list[Expression], int]] = {}
        """What brackets hold that were read to see whether they are a call's, and where they end: no token is read twice."""

    # --- sums, products, powers ---

    def sum(self) -> Expression:
        self.depth += 1
        if self.depth > 2 * MAX_NESTING:
            raise UnreadableAnswer("nested too deeply")
        terms: list[Expression] = []
        while not terms or self.peek() in ("+", "-"):
            negative = self.signs()
            term = self.product()
            terms.append(("-", term) if negative else term)
        self.depth -= 1
        return terms[0] if len(terms) == 1 else ("+", *terms)

    def product(self) -> Expression:
        factors = [self.power()]
        while True:
            token = self.peek()
            if token == "\\cdot" or token == "/":
                self.take()
                negative = self.signs()
                factor = self.power()
                factor = ("-", factor) if negative else factor
                if token == "/":
                    factors = [("/", product(factors), factor)]
                else:
                    factors.append(factor)
            elif token in _OPERATORS or token == "\\times":
                self.take()
                factor = self.power()
                groups = token == "\\oplus" and "\\mathbb{" in f"{factors}{factor}"
                if token == "\\circ" and factor[:1] == ("apply",) and factor[1] != token:  # f \circ g(x)
                    factors = [composed(product(factors), [factor])]
                    continue
                head = ("cross",) if token == "\\times" else ("*",) if groups else ("apply", token)
                factors = [(*head, product(factors), factor)]
            elif is_word(token) and self.tokens[self.at - 1][0].isdigit() and self.peek(1)[:1].isdigit():
                self.take()  # 17 remainder 3 is no product
                factors = [("apply", token, product(factors), self.power())]
            elif self.starts_factor(token):
                is_number = token[0].isdigit() or (token == "{" and self.peek(1)[:1].isdigit())
                if is_number and self.tokens[self.at - 1][0].isdigit():
                    raise UnreadableAnswer("two numbers stand side by side")
                factors.append(self.power())
            else:
                return product(factors)

    def starts_factor(self, token: str) -> bool:
        if token == "|":
            return not self.bars
        is_command = (
            token[:1] == "\\" and token not in parts.ENDS and token not in _OPERATORS and not token.startswith("\\end")
        )
        return token[:1].isalnum() or token in parts.CLOSERS or is_command

    def power(self) -> Expression:
        start = self.at
        base = self.primary()
        while True:
            token = self.peek()
            if token == "^":
                base = self.raised(base)
            elif token == "!":
                self.take()
                double = self.peek() == "!"
                self.at += double
                base = ("!!" if double else "!", base)
            elif token == "\\degree":
                self.take()
                radians = ("/", ("constant", "pi"), whole(180))
                base = ("*", base, radians if self.angle else ("symbol", "\\degree"))
            elif token in ("%", "\\permille"):
                self.take()
                base = ("/", base, whole(100 if token == "%" else 1000))
            elif token in ("\\falling", "\\rising"):
                self.take()
                base = (token[1:], base, self.group())
            elif token == "(" and base[:2] == ("apply", "\\circ"):  # (f \circ g)(x)
                self.take()
                base = composed(base, self.items(")"))
            elif token in ("_", "'"):
                raise UnreadableAnswer(f"{token!r} does not belong behind {join(self.tokens[start : self.at])[:40]!r}")
            else:
                return base

    def raised(self, base: Expression) -> Expression:
        self.take()
        if self.tokens[self.at : self.at + 3] == ("{", "T", "}") and is_matrix(base):
            self.at += 3
            # (1, 2)^T is a column, and so is (1, 2).
            return base if base[0] == "vector" else ("transpose", base)
        exponent = self.group()
        below = re.fullmatch(r"[CAP]_\{(\d+|[nmN])\}", str(base[-1])) if base[0] == "symbol" else None
        count = self.count(base[1], below[1], exponent) if below else None
        if count is not None:
            return count
        if self.peek() == "^":
            raise UnreadableAnswer("two powers follow each other")
        return ("^", base, exponent)

    def count(self, name: str, below: str, above: Expression) -> Expression | None:
        """What C_n^k, C_{10}^{3} and A_5^3 stand for; None for the power of a constant."""
        if name[0] == "C" and below.isalpha() and above[0] in ("number", "symbol"):
            return ("binom", ("symbol", below), above)
        if name[0] == "C" and below.isdigit() and above[0] == "number" and 2 <= above[1] <= int(below):
            return ("binom", whole(int(below)), above)
        return parts.counts(self.tokens).get((name, above))

    def group(self) -> Expression:
        self.expect("{")
        return self.bracket("{")

    # --- what a factor may be ---

    def primary(self) -> Expression:
        step(4)
        token = self.take()
        if token[0].isdigit():
            return self.number(token)
        if token in parts.CLOSERS:
            return self.bracket(token)
        if token in ("_", "^") and (self.at == 1 or self.tokens[self.at - 2] in parts.BEFORE_COUNTS):
            return self.counted()
        if token == "|":
            self.bars += 1
            inner = self.sum()
            self.expect("|")
            self.bars -= 1
            return ("det", inner) if is_matrix(inner) else ("abs", inner)
        if token in parts.BRACKETS:
            head, closer = parts.BRACKETS[token]
            inner = self.sum()
            self.expect(closer)
            return (head, inner)
        if token == "\\frac":
            return self.fraction()
        if token == "\\binom":
            return ("binom", self.group(), self.group())
        if token == "\\sqrt":
            degree = whole(2)
            if self.peek() == "[":
                self.take()
                degree = self.sum()
                self.expect("]")
            return ("root", self.group(), degree)
        if token in ("\\overline", "\\tilde", "\\dot", "\\ddot", "\\hat"):
            start = self.at
            inner = self.group()
            content = self.tokens[start + 1 : self.at - 1]
            if token == "\\overline" and are_digits(content):  # the number with these digits
                digits = [whole(int(t)) if t.isdigit() else ("symbol", t) for t in content]
                return ("+", *(("*", d, whole(10**n)) for n, d in enumerate(reversed(digits))))
            is_name = all(t.isupper() for t in content)
            return parts.figure(token, content) if is_name else ("apply", token, inner)
        if token == "\\underbrace":
            start = self.at
            self.skip_group()
            end = self.at
            count = self.group()
            return parts.repdigit(self.tokens, start, end, self.at, count)
        if token in ("\\vec{i}", "\\vec{j}", "\\vec{k}"):
            return basis(token[5])
        if token.startswith("\\vec{") and len(token) == len("\\vec{AB}") and token[5:7].isupper():
            return ("+", ("symbol", f"\\vec{{{token[6]}}}"), ("-", ("symbol", f"\\vec{{{token[5]}}}")))
        if token in ("\\begin{matrix}", "\\begin{vmatrix}"):
            return self.matrix(token)
        if token in ("\\sum", "\\prod"):
            return self.big(token[1:])
        if token in parts.UNWORKED:
            rest = self.tokens[self.at - 1 :]
            self.at = len(self.tokens)
            return ("symbol", join(rest))
        if token[0] == "\\" and token[1:] in parts.ONE_ARGUMENT:
            return self.function(token[1:])
        if token[0] == "\\" and token[1:] in parts.SEVERAL_ARGUMENTS:
            opener = self.take()
            if opener not in ("(", "\\{"):
                raise UnreadableAnswer(f"the arguments of {token} are missing")
            return (token[1:], *self.items(")" if opener == "(" else "\\}"))
        if token in ("\\angle", "\\triangle"):
            start = self.at
            while self.peek().isupper():
                self.take()
            return parts.figure(token, self.tokens[start : self.at])
        return self.symbol(token)

    def bracket(self, opener: str) -> Expression:
        items = self.items(parts.CLOSERS[opener], () if opener == "{" else (",", ";"))
        return ("vector", *items) if len(items) > 1 else items[0]

    def counted(self) -> Expression:
        """The choices and arrangements of school, {}_8C_3 and ^8P_3."""
        above = self.group()
        letter = self.take()
        self.expect("_")
        if letter not in parts.COUNTED:
            raise UnreadableAnswer(f"an index stands before {letter!r}")
        return (parts.COUNTED[letter], above, self.group())

    def items(self, closer: str, separators: tuple[str, ...] = (",",)) -> list[Expression]:
        start = self.at
        if start in self.known:
            items, self.at = self.known[start]
            return items
        bars, self.bars = self.bars, 0
        items = [self.sum()]
        while self.peek() in separators:
            self.take()
            items.append(self.sum())
        self.expect(closer)
        self.bars = bars
        self.known[start] = items, self.at
        return items

    def fraction(self) -> Expression:
        start = self.at - 1
        top = self.group()
        middle = self.at
        bottom = self.group()
        above, below = self.tokens[start + 2], self.tokens[middle + 1]
        if above == below in ("d", "\\partial") and self.tokens[middle + 2][0].isalpha():
            return ("symbol", join(self.tokens[start : self.at]))  # dy/dx is one name: its d does not cancel
        return ("/", top, bottom)

    def matrix(self, opener: str) -> Expression:
        closer = opener.replace("begin", "end")
        rows: list[list[Expression]] = [[]]
        while self.peek() != closer:
            if self.peek() == "\\newrow":
                self.take()
                rows.append([])
            elif self.peek() == "&":
                self.take()
            else:
                rows[-1].append(self.sum())
        self.take()
        rows = [row for row in rows if row]
        if not rows or len({len(row) for row in rows}) != 1:
            raise UnreadableAnswer("the rows of a matrix differ in length or have an empty cell")
        matrix = ("matrix", len(rows), *(cell for row in rows for cell in row))
        return ("det", matrix) if opener == "\\begin{vmatrix}" else matrix

    def big(self, head: str) -> Expression:
        start = self.at - 1
        bounds = {}
        while self.peek() in ("_", "^"):
            mark = self.take()
            begin = self.at
            self.skip_group()
            bounds[mark] = self.tokens[begin + 1 : self.at - 1]
        lower, upper = bounds.get("_", ()), bounds.get("^", ())
        if len(lower) < 3 or lower[1] != "=" or not upper:  # over a set or without an end: nothing to add up
            self.at = len(self.tokens)
            return ("symbol", join(self.tokens[start:]))
        self.counters.append(lower[0])
        body = self.product()
        self.counters.pop()
        return (head, lower[0], parse(lower[2:]), parse(upper), body)

    def function(self, name: str) -> Expression:
        base: Expression | None = None
        power: Expression | None = None
        while self.peek() in ("_", "^"):
            if self.take() == "_":
                base = self.group()
            elif self.tokens[self.at : self.at + 4] == ("{", "-", "1", "}") and name in parts.INVERSES:
                self.at += 4
                name = parts.INVERSES[name]
            else:
                power = self.group()
        self.angle += name in parts.TRIGONOMETRIC
        argument = self.argument()
        self.angle -= name in parts.TRIGONOMETRIC
        if base is not None and name not in ("log", "ln"):
            raise UnreadableAnswer(f"\\{name} has an index")
        if name == "cbrt":
            return ("root", argument, whole(3))
        result: Expression = (name, argument) if base is None else ("log", argument, base)
        return result if power is None else ("^", result, power)

    def argument(self) -> Expression:
        """A function's argument: a bracket, or the product that follows up to a sign, another function or a bracket."""
        if self.peek() in ("(", "[", "{", "|"):
            return self.primary()
        negative = self.signs()
        factors = [self.power()]
        if self.angle and self.peek() == "(" and factors[0][0] == "number":
            factors.append(self.power())  # \\sin 2(x + 1)
        while True:
            token = self.peek()
            if not self.starts_factor(token) or token in parts.NO_ARGUMENT or token[1:] in parts.FUNCTIONS:
                argument = product(factors)
                return ("-", argument) if negative else argument
            factors.append(self.power())

    def symbol(self, token: str) -> Expression:
        if is_word(token) and len(token) == len("\\text{x}"):
            token = token[6:-1]
        known = (
            (len(token) == 1 and token.isalpha())
            or token in parts.GREEK
            or token.startswith(("\\text{", "\\mathbb{", "\\mathfrak{", "\\vec{", "\\mathbf{"))
        )
        if not known and token not in CONSTANTS:
            raise UnreadableAnswer(f"{token!r} is not understood in {join(self.tokens)[:60]!r}")
        name = UNITS.get(word_of(token), word_of(token)) or token
        if self.tokens[self.at - 1 : self.at + 3] == ("\\mathbb{Z}", "/", self.peek(1), "\\mathbb{Z}"):
            name = f"\\mathbb{{Z}}_{{{self.peek(1)}}}"
            self.at += 3
        while self.peek() in ("_", "'"):
            if self.take() == "'":
                name += "'"
            else:
                begin = self.at
                self.skip_group()
                name += "_" + parts.index(self.tokens[begin + 1 : self.at - 1])
        if name in CONSTANTS and name not in self.counters:
            return ("constant", CONSTANTS[name])
        return self.call(name, token) or ("symbol", name)

    def call(self, name: str, letter: str) -> Expression | None:
        """f(x), f^{-1}(x), C(8, 3): None where the letter does not call."""
        start = self.at
        event, end = parts.event(self.tokens, start)
        if event and name in ("P", "p", "E", "\\mathbb{P}", "\\mathbb{E}"):
            self.at = end
            return ("symbol", f"{name}({event})")
        if name in parts.COUNTED and self.peek() == "(":
            self.take()
            items = self.items(")")
            if len(items) == 2:
                return (parts.COUNTED[name], *items)
            self.at = start
        if letter not in parts.CALLING:
            return None
        if self.tokens[self.at : self.at + 5] == ("^", "{", "-", "1", "}"):
            self.at += 5
            name += "^{-1}"
        if self.peek() == "(":
            self.take()
            items = self.items(")")
            if not any(letter in symbols(item) for item in items):  # h(h + 1) is a product
                return ("apply", name, *items)
        self.at = start
        return None
