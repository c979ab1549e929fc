r"""The symbols that quantities usually have: \mu for the mean, r for the radius or the remainder."""

from __future__ import annotations

from .tokens import listed

_TABLE = r"""
mean average expectation expectedvalue: \mu \overline{x} \overline{X} E(X) E(x) EX
variance: \sigma^{2} s^{2} V(X) D(X) Var(X) DX
standarddeviation: \sigma s
quotient: q Q q(x) Q(x)
remainder: r R r(x) R(x)
area: A S K [ABC]
surfacearea totalsurfacearea: S A SA
perimeter: P p
circumference: C
radius: r R
diameter: d D
center centre: C O
slope gradient: m k
intercept y-intercept yintercept: b
length: l L \ell
width: w W
breadth: b
height: h H
base: b
depth: d h
volume: V
maximum: M f_{\max} y_{\max} f(x)_{\max} \max \maxf(x) \max(f(x))
minimum: m f_{\min} y_{\min} f(x)_{\min} \min \minf(x) \min(f(x))
period: T
amplitude: A
frequency: f \nu
wavelength: \lambda
velocity speed: v
acceleration: a
time: t T
distance: d s D
displacement: s d
mass: m M
force: F
energy: E
power: P
work: W
momentum: p
probability: p P
commonratio ratio: r q
commondifference: d
firstterm: a a_{1}
sum: S
median: M
radiusofconvergence: R
domain: D
range: R
"""
_SYMBOLS: dict[str, frozenset[str]] = {}
for _line in _TABLE.strip().splitlines():
    _words, _, _names = _line.partition(": ")
    _SYMBOLS |= dict.fromkeys(_words.split(), listed(_names))


def symbols_of(words: str) -> frozenset[str]:
    """The symbols of what the words name, which stand in one piece and small letters; nothing for any other words."""
    return _SYMBOLS.get(words) or _SYMBOLS.get(words.removeprefix("the").removesuffix("value"), frozenset())


def names_quantity(words: str, symbol: str) -> bool:
    """Whether the symbol usually stands for what the words name."""
    plain = symbol.replace("\\text{Var}", "Var").replace("\\text{var}", "Var").replace(" ", "")
    if plain[-1:] == "]" and plain[0] != "[":
        plain = plain.replace("[", "(").replace("]", ")")
    return plain in symbols_of(words) or plain.replace("_{X}", "").replace("_{x}", "") in symbols_of(words)


def are_moments(symbol: str, other: str) -> bool:
    r"""Whether both are the mean, \mu and E(X), or both the variance, \sigma^2 and D(X)."""
    return any(names_quantity(words, symbol) and names_quantity(words, other) for words in ("mean", "variance"))
