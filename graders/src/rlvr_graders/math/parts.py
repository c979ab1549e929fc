"""What an expression is made of, and the tokens that it is read from: for `expression`."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

from .tokens import Tokens, UnreadableAnswer, closes, commands, join, listed, split

Expression = tuple[Any, ...]

ONE_ARGUMENT = listed(
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch arcsinh arccosh arctanh "
    "ln log exp sign cis arg erf det Re Im abs floor ceil cbrt trace"
)
INVERSES = {name: f"arc{name}" for name in listed("sin cos tan cot sec csc sinh cosh tanh")}
SEVERAL_ARGUMENTS = frozenset({"max", "min", "gcd", "lcm"})
FUNCTIONS = ONE_ARGUMENT | SEVERAL_ARGUMENTS
NO_ARGUMENT = frozenset({"(", "[", "{", "|", "\\cdot"})
TRIGONOMETRIC = frozenset({"sin", "cos", "tan", "cot", "sec", "csc", "cis"})
GREEK = commands(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar aleph partial nabla wp dots top perp emptyset"
)
# Letters that call rather than multiply when a bracket follows: f(x + 1), but a(b + c).
CALLING = frozenset({*"fghFGHO", "\\phi", "\\psi", "\\Phi", "\\Psi", "\\Gamma", "\\zeta", "\\Theta", "\\Omega"})
COUNTED = {"C": "binom", "P": "arrangements"}
BEFORE_COUNTS = frozenset({"\\cdot", "/", "+", "-", "(", "{", "=", "\\times"})
"""What stands before the first index of {}_5C_2."""
UNWORKED = commands("int iint iiint oint lim limsup liminf sup inf bigcup bigcap")
CLOSERS = {"(": ")", "[": "]", "{": "}", "\\langle": "\\rangle"}
BRACKETS = {"\\lfloor": ("floor", "\\rfloor"), "\\lceil": ("ceil", "\\rceil")}
ENDS = frozenset({")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil", ",", ";", "+", "-", "&", "\\newrow"})


_ARITHMETIC = commands("cdot frac")
_COUNT = re.compile(r"([CAP]) _ \{ (\d{1,4}) \} \^ \{ (\d{1,4}) \}(?! \^)")


def symbols(expression: Expression) -> frozenset[str]:
    """The names of the variables in an expression."""
    found: set[str] = set()
    _collect(expression, found)
    return frozenset(found)


def _collect(expression: Expression, found: set[str]) -> None:
    head = expression[0]
    if head == "symbol":
        found.add(expression[1])
    elif head in ("sum", "prod"):
        inner: set[str] = set()
        for part in expression[2:]:
            _collect(part, inner)
        found |= inner - {expression[1]}
    elif head != "number":
        for part in expression[1:]:
            if part.__class__ is tuple:
                _collect(part, found)


class TokenReader:
    """Tokens, and how far they are read."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.at = 0

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

    def signs(self) -> bool:
        negative = False
        while self.peek() in ("+", "-"):
            negative ^= self.take() == "-"
        return negative

    def skip_group(self) -> None:
        self.expect("{")
        depth = 1
        while depth:
            token = self.take()
            depth += (token == "{") - (token == "}")

    def number(self, token: str) -> Expression:
        if self.peek() == "\\overline" and "." in token:
            self.take()
            self.expect("{")
            period = self.take()
            self.expect("}")
            if not period.isdigit():
                raise UnreadableAnswer("the period of a decimal is not a number")
            return ("number", repeating(token, period))
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


def product(factors: list[Expression]) -> Expression:
    return factors[0] if len(factors) == 1 else ("*", *factors)


def whole(value: int) -> Expression:
    return ("number", Fraction(value))


def basis(letter: str) -> Expression:
    return ("basis", *(whole(int(letter == name)) for name in "ijk"))


@lru_cache(maxsize=16)
def counts(tokens: Tokens) -> dict[tuple[str, Expression], Expression]:
    """What the C_5^2, A_3^3 and P_4^2 of an answer stand for; nothing where letters are about, or such a name alone: C_1 x + C_2.

    The larger number of a C is the set. Without a number above two they may be the powers of constants.
    """
    found: dict[tuple[str, Expression], Expression] = {}
    text, largest = " ".join(tokens), 0
    for letter, low, high in _COUNT.findall(text):
        below, above = int(low), int(high)
        if letter != "C" and above > below:
            return {}
        largest = max(largest, below, above)
        head = "binom" if letter == "C" else "arrangements"
        numbers = whole(max(below, above)), whole(min(below, above))
        found[f"{letter}_{{{low}}}", whole(above)] = (head, *numbers)
    others = {*_COUNT.sub("", text).split()} - _ARITHMETIC
    return found if largest > 2 and not any(token[0] == "\\" or token.isalpha() for token in others) else {}


def are_digits(content: Tokens) -> bool:
    letters = [token for token in content if token.isalpha()]
    plain = all(len(token) == 1 and token.isalnum() and not token.isupper() for token in content)
    return plain and len(content) > 1 and len(letters) > 0 and not {"z", "w"}.intersection(letters)


def composed(chain: Expression, arguments: list[Expression]) -> Expression:
    """(f \\circ g)(x) as f(g(x))."""
    if chain[:2] == ("apply", "\\circ"):
        return composed(chain[2], [composed(chain[3], arguments)])
    if chain[0] != "symbol":
        raise UnreadableAnswer("a composition of what are no functions")
    return ("apply", chain[1], *arguments)


def figure(command: str, points: Tokens) -> Expression:
    """The angle BAC is CAB, and the segment AB is BA."""
    turns = (command, len(points)) in (("\\angle", 3), ("\\overline", 2))
    return ("symbol", join((command, *(min(points, points[::-1]) if turns else points))))


def event(tokens: Tokens, start: int) -> tuple[str, int]:
    r"""What P(A | B) and P(A \cap B) are about, in one spelling, and where the bracket ends; nothing for any other bracket."""
    end = closes(tokens, start) if tokens[start : start + 1] == ("(",) else -1
    inside = tokens[start + 1 : end] if end > 0 else ()
    if {"|", "\\mid", "\\cap", "\\cup"}.isdisjoint(inside) or inside.count("|") > 1:
        return "", 0
    operations = {"\\cap", "\\cup"}.intersection(inside)
    operation = operations.pop() if len(operations) == 1 else ""
    sides = (sorted(map(join, split(side, {operation}))) for side in split(inside, {"|", "\\mid"}))
    return "|".join(operation.join(members) for members in sides), end + 1


def index(tokens: Tokens) -> str:
    """An index in one order of its terms: F_{1+n} is F_{n+1}."""
    if not {"+"}.isdisjoint(tokens) and {"(", "{", ",", "=", "^", "_"}.isdisjoint(tokens):
        terms: list[Tokens] = []
        for token in tokens if tokens[0] in "+-" else ("+", *tokens):
            terms = [*terms, (token,)] if token in "+-" else [*terms[:-1], (*terms[-1], token)]
        ordered = sorted(terms, key=lambda term: (term[1:2] < ("A",), term))
        tokens = tuple(token for term in ordered for token in term)
        tokens = tokens[1:] if tokens[0] == "+" else tokens
    return f"{{{join(tokens)}}}"


def repdigit(tokens: Tokens, start: int, end: int, after: int, count: Expression) -> Expression:
    r"""\underbrace{99\ldots9}_{n} as 10^n - 1; a name where other digits stand beside it or differ."""
    digits = set("".join(token for token in tokens[start + 1 : end - 1] if token != "\\dots"))
    beside = (*tokens[max(start - 2, 0) : start - 1], *tokens[after : after + 1])
    alone = tokens.count("\\underbrace") == 1 and not any(token[0].isdigit() for token in beside)
    if len(digits) != 1 or not alone or not next(iter(digits)).isdigit():
        return ("apply", join(tokens[start - 1 : end]), count)
    nines = ("+", ("^", whole(10), count), ("-", whole(1)))
    return ("/", ("*", whole(int(digits.pop())), nines), whole(9))


def is_matrix(expression: Expression) -> bool:
    return expression[0] in ("matrix", "vector", "transpose")


def repeating(head: str, period: str) -> Fraction:
    """0.1666... with head "0.1" and period "6": (16 - 1) / 90."""
    integer, _, places = head.partition(".")
    shifted = int(integer + places + period) - int(integer + places)
    return Fraction(shifted, (10 ** len(period) - 1) * 10 ** len(places))
