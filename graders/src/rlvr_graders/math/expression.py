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
from fractions import Fraction
from functools import lru_cache
from typing import Any

from .characters import MAX_NESTING
from .spelling import OPERATORS as _OPERATORS
from .tokens import Tokens, UnreadableAnswer, commands, is_word, join, listed, step, word_of
from .units import UNITS

Expression = tuple[Any, ...]

CONSTANTS = {"\\pi": "pi", "e": "e", "i": "i", "\\infty": "infinity"}
_ONE_ARGUMENT = listed(
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch arcsinh arccosh arctanh "
    "ln log exp sign cis arg erf det Re Im abs floor ceil cbrt trace"
)
_INVERSES = {name: f"arc{name}" for name in listed("sin cos tan cot sec csc sinh cosh tanh")}
_SEVERAL_ARGUMENTS = frozenset({"max", "min", "gcd", "lcm"})
_FUNCTIONS = _ONE_ARGUMENT | _SEVERAL_ARGUMENTS
_NO_ARGUMENT = frozenset({"(", "[", "{", "|", "\\cdot"})
TRIGONOMETRIC = frozenset({"sin", "cos", "tan", "cot", "sec", "csc", "cis"})
_GREEK = commands(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar aleph partial nabla wp dots top perp emptyset"
)
# Letters that call rather than multiply when a bracket follows: f(x + 1), but a(b + c).
_CALLING = frozenset(
    {*"fghFGHO", "\\phi", "\\psi", "\\Phi", "\\Psi", "\\Gamma", "\\zeta", "\\Theta", "\\Omega"}
)
_COUNTED = {"C": "binom", "P": "arrangements"}
_UNWORKED = commands("int iint iiint oint lim limsup liminf sup inf bigcup bigcap")
_CLOSERS = {"(": ")", "[": "]", "{": "}", "\\langle": "\\rangle"}
_BRACKETS = {"\\lfloor": ("floor", "\\rfloor"), "\\lceil": ("ceil", "\\rceil")}
_ENDS = frozenset(
    {")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil", ",", ";", "+", "-", "&", "\\newrow"}
)


@lru_cache(maxsize=128)
def parse(tokens: Tokens) -> Expression:
    """The expression that the tokens write."""
    parser = _Parser(tokens)
    expression = parser.sum()
    if parser.at < len(tokens):
        raise UnreadableAnswer(f"{tokens[parser.at]!r} is not understood in {join(tokens)[:60]!r}")
    return expression


def symbols(expression: Expression) -> frozenset[str]:
    """The names of the variables in an expression."""
    if expression[0] == "symbol":
        return frozenset({expression[1]})
    parts = (part for part in expression[1:] if isinstance(part, tuple))
    inner: frozenset[str] = frozenset().union(*map(symbols, parts))
    return inner - {expression[1]} if expression[0] in ("sum", "prod") else inner


class _Parser:
    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0
        """How many absolute values are open: there "|" may close one."""
        self.angle = 0
        """Inside how many trigonometric functions: there degrees are a number."""
        self.counters: list[str] = []
        """Names that a sum runs over: there i is one, not the imaginary unit."""
        self.known: dict[int, tuple[list[Expression], int]] = {}
        """What brackets hold that were read to see whether they are a call's, and where they end: no token is read twice."""

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        if not token:
            raise UnreadableAnswer(f"{join(self.tokens)[:60]!r} ends too early")
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        if self.peek() != token:
            raise UnreadableAnswer(f"{token!r} is missing in {join(self.tokens)[:60]!r}")
        self.at += 1

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

    def signs(self) -> bool:
        negative = False
        while self.peek() in ("+", "-"):
            negative ^= self.take() == "-"
        return negative

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
                    factors = [("/", _product(factors), factor)]
                else:
                    factors.append(factor)
            elif token in _OPERATORS or token == "\\times":
                self.take()
                factor = self.power()
                groups = token == "\\oplus" and "\\mathbb{" in f"{factors}{factor}"
                head = ("cross",) if token == "\\times" else ("*",) if groups else ("apply", token)
                factors = [(*head, _product(factors), factor)]
            elif self.starts_factor(token):
                is_number = token[0].isdigit() or (token == "{" and self.peek(1)[:1].isdigit())
                if is_number and self.tokens[self.at - 1][0].isdigit():
                    raise UnreadableAnswer("two numbers stand side by side")
                factors.append(self.power())
            else:
                return _product(factors)

    def starts_factor(self, token: str) -> bool:
        if token == "|":
            return not self.bars
        is_command = (
            token[:1] == "\\"
            and token not in _ENDS
            and token not in _OPERATORS
            and not token.startswith("\\end")
        )
        return token[:1].isalnum() or token in _CLOSERS or is_command

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
                radians = ("/", ("constant", "pi"), _number(180))
                base = ("*", base, radians if self.angle else ("symbol", "\\degree"))
            elif token in ("%", "\\permille"):
                self.take()
                base = ("/", base, _number(100 if token == "%" else 1000))
            elif token in ("\\falling", "\\rising"):
                self.take()
                base = (token[1:], base, self.group())
            elif token == "(" and base[:2] == ("apply", "\\circ"):  # (f \circ g)(x)
                self.take()
                base = _composed(base, self.items(")"))
            elif token in ("_", "'"):
                raise UnreadableAnswer(
                    f"{token!r} does not belong behind {join(self.tokens[start : self.at])[:40]!r}"
                )
            else:
                return base

    def raised(self, base: Expression) -> Expression:
        self.take()
        if self.tokens[self.at : self.at + 3] in (("{", "T", "}"), ("{", "\\top", "}")) and _is_matrix(base):
            self.at += 3
            # (1, 2)^T is a column, and so is (1, 2).
            return base if base[0] == "vector" else ("transpose", base)
        exponent = self.group()
        below = re.fullmatch(r"C_\{(\d+)\}", str(base[-1])) if base[0] == "symbol" else None
        if below and exponent[0] == "number" and 2 <= exponent[1] <= int(below[1]):
            return ("binom", _number(int(below[1])), exponent)  # C_{10}^{3}
        if self.peek() == "^":
            raise UnreadableAnswer("two powers follow each other")
        return ("^", base, exponent)

    def group(self) -> Expression:
        self.expect("{")
        return self.bracket("{")

    # --- what a factor may be ---

    def primary(self) -> Expression:
        step(4)
        token = self.take()
        if token[0].isdigit():
            return self.number(token)
        if token in _CLOSERS:
            return self.bracket(token)
        if token in ("_", "^") and self.at == 1:
            return self.counted()
        if token == "|":
            self.bars += 1
            inner = self.sum()
            self.expect("|")
            self.bars -= 1
            return ("det", inner) if _is_matrix(inner) else ("abs", inner)
        if token in _BRACKETS:
            head, closer = _BRACKETS[token]
            inner = self.sum()
            self.expect(closer)
            return (head, inner)
        if token == "\\frac":
            return self.fraction()
        if token == "\\binom":
            return ("binom", self.group(), self.group())
        if token == "\\sqrt":
            degree = _number(2)
            if self.peek() == "[":
                self.take()
                degree = self.sum()
                self.expect("]")
            return ("root", self.group(), degree)
        if token in ("\\overline", "\\tilde", "\\dot", "\\ddot", "\\hat"):
            start = self.at
            inner = self.group()
            content = self.tokens[start + 1 : self.at - 1]
            if token == "\\overline" and _are_digits(content):  # the number with these digits
                digits = [_number(int(t)) if t.isdigit() else ("symbol", t) for t in content]
                return ("+", *(("*", d, _number(10**n)) for n, d in enumerate(reversed(digits))))
            is_name = all(t.isupper() for t in content)
            return ("symbol", join((token, *content))) if is_name else ("apply", token, inner)
        if token == "\\underbrace":
            start = self.at
            self.skip_group()
            return ("apply", join(self.tokens[start - 1 : self.at]), self.group())
        if token.startswith("\\vec{") and len(token) == len("\\vec{AB}") and token[5:7].isupper():
            return ("+", ("symbol", f"\\vec{{{token[6]}}}"), ("-", ("symbol", f"\\vec{{{token[5]}}}")))
        if token in ("\\begin{matrix}", "\\begin{vmatrix}"):
            return self.matrix(token)
        if token in ("\\sum", "\\prod"):
            return self.big(token[1:])
        if token in _UNWORKED:
            rest = self.tokens[self.at - 1 :]
            self.at = len(self.tokens)
            return ("symbol", join(rest))
        if token[0] == "\\" and token[1:] in _ONE_ARGUMENT:
            return self.function(token[1:])
        if token[0] == "\\" and token[1:] in _SEVERAL_ARGUMENTS:
            opener = self.take()
            if opener not in ("(", "\\{"):
                raise UnreadableAnswer(f"the arguments of {token} are missing")
            return (token[1:], *self.items(")" if opener == "(" else "\\}"))
        if token in ("\\angle", "\\triangle"):
            start = self.at
            while self.peek().isupper():
                self.take()
            return ("symbol", join((token, *self.tokens[start : self.at])))
        return self.symbol(token)

    def number(self, token: str) -> Expression:
        if self.peek() == "\\overline" and "." in token:
            self.take()
            self.expect("{")
            period = self.take()
            self.expect("}")
            if not period.isdigit():
                raise UnreadableAnswer("the period of a decimal is not a number")
            return ("number", _repeating(token, period))
        value = Fraction(token)
        part = self.proper_fraction() if token.isdigit() else None
        return ("number", value if part is None else value + part)

    def proper_fraction(self) -> Fraction | None:
        r"""The fraction of a mixed number that follows: 1\frac{4}{5} is 9/5 by the convention of every school text; so is 1 4/5."""
        following = self.tokens[self.at : self.at + 7]
        if len(following) == 7 and following[0] == "\\frac":
            top, bottom, width = following[2], following[5], 7
            fits = (following[1], following[3], following[4], following[6]) == ("{", "}", "{", "}")
        else:
            top, bottom, width = *(following[1:2] or ("",)), *(following[3:4] or ("",)), 4
            fits = following[:1] == (" ",) and following[2:3] == ("/",)
        if not fits or not (top.isdigit() and bottom.isdigit()) or not 0 <= int(top) < int(bottom):
            return None
        self.at += width
        return Fraction(int(top), int(bottom))

    def bracket(self, opener: str) -> Expression:
        items = self.items(_CLOSERS[opener], () if opener == "{" else (",", ";"))
        return ("vector", *items) if len(items) > 1 else items[0]

    def counted(self) -> Expression:
        """The choices and arrangements of school, {}_8C_3 and ^8P_3."""
        above = self.group()
        letter = self.take()
        self.expect("_")
        if letter not in _COUNTED:
            raise UnreadableAnswer(f"an index stands before {letter!r}")
        return (_COUNTED[letter], above, self.group())

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

    def skip_group(self) -> None:
        self.expect("{")
        depth = 1
        while depth:
            token = self.take()
            depth += (token == "{") - (token == "}")

    def function(self, name: str) -> Expression:
        base: Expression | None = None
        power: Expression | None = None
        while self.peek() in ("_", "^"):
            if self.take() == "_":
                base = self.group()
            elif self.tokens[self.at : self.at + 4] == ("{", "-", "1", "}") and name in _INVERSES:
                self.at += 4
                name = _INVERSES[name]
            else:
                power = self.group()
        self.angle += name in TRIGONOMETRIC
        argument = self.argument()
        self.angle -= name in TRIGONOMETRIC
        if base is not None and name not in ("log", "ln"):
            raise UnreadableAnswer(f"\\{name} has an index")
        if name == "cbrt":
            return ("root", argument, _number(3))
        result: Expression = (name, argument) if base is None else ("log", argument, base)
        return result if power is None else ("^", result, power)

    def argument(self) -> Expression:
        """A function's argument: a bracket, or the product that follows up to a sign, another function or a bracket."""
        if self.peek() in ("(", "[", "{", "|"):
            return self.primary()
        negative = self.signs()
        factors = [self.power()]
        while True:
            token = self.peek()
            if not self.starts_factor(token) or token in _NO_ARGUMENT or token[1:] in _FUNCTIONS:
                product = _product(factors)
                return ("-", product) if negative else product
            factors.append(self.power())

    def symbol(self, token: str) -> Expression:
        if is_word(token) and len(token) == len("\\text{x}"):
            token = token[6:-1]
        known = (
            (len(token) == 1 and token.isalpha())
            or token in _GREEK
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
                name += "_" + join(self.tokens[begin : self.at])
        if name in CONSTANTS and name not in self.counters:
            return ("constant", CONSTANTS[name])
        return self.call(name, token) or ("symbol", name)

    def call(self, name: str, letter: str) -> Expression | None:
        """f(x), f^{-1}(x), C(8, 3): None where the letter does not call."""
        start = self.at
        if name in _COUNTED and self.peek() == "(":
            self.take()
            items = self.items(")")
            if len(items) == 2:
                return (_COUNTED[name], *items)
            self.at = start
        if letter not in _CALLING:
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


def _product(factors: list[Expression]) -> Expression:
    return factors[0] if len(factors) == 1 else ("*", *factors)


def _number(value: int) -> Expression:
    return ("number", Fraction(value))


def _are_digits(content: Tokens) -> bool:
    letters = [token for token in content if token.isalpha()]
    plain = all(len(token) == 1 and token.isalnum() and not token.isupper() for token in content)
    return plain and len(content) > 1 and len(letters) > 0 and not {"z", "w"}.intersection(letters)


def _composed(chain: Expression, arguments: list[Expression]) -> Expression:
    """(f \\circ g)(x) as f(g(x))."""
    if chain[:2] == ("apply", "\\circ"):
        return _composed(chain[2], [_composed(chain[3], arguments)])
    if chain[0] != "symbol":
        raise UnreadableAnswer("a composition of what are no functions")
    return ("apply", chain[1], *arguments)


def _is_matrix(expression: Expression) -> bool:
    return expression[0] in ("matrix", "vector", "transpose")


def _repeating(head: str, period: str) -> Fraction:
    """0.1666... with head "0.1" and period "6": (16 - 1) / 90."""
    integer, _, places = head.partition(".")
    shifted = int(integer + places + period) - int(integer + places)
    return Fraction(shifted, (10 ** len(period) - 1) * 10 ** len(places))
