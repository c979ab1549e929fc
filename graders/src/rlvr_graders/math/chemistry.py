r"""Chemical formulas and the equations of reactions: H_2SO_4, \mathrm{H_2SO_4} and \ce{H2SO4} are one, CO and Co are not."""

from __future__ import annotations

import re

from .tokens import Tokens, join

_ELEMENTS = re.findall(
    r"\w+",
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd "
    "Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac "
    "Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og",
)
"""By their atomic numbers."""
_BEGINNINGS = frozenset({"\\ce", "(", "[", "^", "\\mathbb{SO}"})
_LONGEST = 80
"""Tokens of the longest formula or equation that is looked at."""
_MARKUP = re.compile(r"\\(?:ce|text)(?![A-Za-z])|\\mathbb(?=\{SO\})")
_COUNT = re.compile(r"_\{([1-9]\d*)\}(?!\d)")
_CHARGE = re.compile(r"\^\{*([+-]?)(\d*)\}*([+-]?)\}*")
_ARROW = re.compile(r"->|\\to|\\rightleftharpoons|<=>")
_PLUS = re.compile(r"(?<=[\w)+-])\+(?=[0-9A-Z\[(]|e\^)")
_ISOTOPE = re.compile(r"\^\{(\d+)\}(?:_\{(\d+)\})?(?=\{?[A-Z])")
_GROUP = rf"(?:(?:{'|'.join(sorted(_ELEMENTS, key=len, reverse=True))})\d*|[(\[](?=[A-Z(\[])|[)\]]\d*)+"
_SPECIES = re.compile(
    rf"(?P<factor>\d*)(?:(?:<(?P<mass>\d+),(?P<number>\d*)>)?(?P<nucleus>{_GROUP}(?:\.\d*{_GROUP})?)(?:(?P<mark>\^?)(?P<charge>\d*)(?P<sign>[+-]))?"
    r"|(?P<electron>e)\^?-)(?P<state>\((?:aq|s|l|g)\))?"
)

Species = frozenset[tuple[str, str, str]]
"""How one term may be read: its factor, its formula with the charge, its state."""


def same_formula(asked: Tokens, given: Tokens) -> bool | None:
    """Whether two chemical formulas are one: also no where they differ in capitals alone. None where this does not tell."""
    if not (_may_begin(asked) and _may_begin(given)):
        return None
    sides, others = _read(asked), _read(given)
    if not sides or len(sides) != len(others):
        return None
    if all(map(_same_terms, sides, others)):
        return True
    return False if all(map(_same_terms, _in_small(sides), _in_small(others))) else None


def is_formula(tokens: Tokens) -> bool:
    """Whether it can be nothing but chemistry: a reaction, more than one letter with a charge, or what says so."""
    return _may_begin(tokens) and bool(_read(tokens)) and (tokens[0] == "\\ce" or (len(tokens) > 5 and "^" in tokens))


def _may_begin(tokens: Tokens) -> bool:
    first = tokens[0]
    if first[0].isdigit():
        return "\\to" in tokens or ">" in tokens
    return first[0].isupper() or first in _BEGINNINGS or (first[:6] == "\\text{" and first[6].isupper())


def _read(tokens: Tokens) -> list[list[Species]]:
    """The terms on each side of the arrow; nothing where this is no chemistry."""
    if len(tokens) > _LONGEST:
        return []
    text = _ISOTOPE.sub(r"<\1,\2>", _MARKUP.sub("", join(tokens)).replace("\\cdot", "."))
    text = _CHARGE.sub(_charge, _COUNT.sub(r"\1", text))
    sides = _ARROW.split(re.sub("[{} ]", "", text))
    if len(sides) > 2:
        return []
    is_reaction = len(sides) == 2
    terms = [[_species(term, is_reaction) for term in (_PLUS.split(side) if is_reaction else [side])] for side in sides]
    return terms if all(map(all, terms)) else []


def _charge(match: re.Match[str]) -> str:
    before, number, behind = match.groups()
    return f"^{'' if number == '1' else number}{before or behind}"


def _species(text: str, is_term: bool) -> Species:
    match = _SPECIES.fullmatch(text)
    if match is None or (match["factor"] and not is_term):
        return frozenset()
    factor, state = match["factor"], match["state"] or ""
    if match["electron"]:
        return frozenset({(factor, "e-", state)})
    nucleus, sign, number = match["nucleus"], match["sign"] or "", match["number"]
    if not _closed(nucleus) or (
        number and (nucleus not in _ELEMENTS or _ELEMENTS.index(nucleus) + 1 != int(number[:4]))
    ):
        return frozenset()
    if state and len(nucleus) == 1 and not is_term:
        return frozenset()  # C(s) may be a function
    core = f"{match['mass'] or ''}{nucleus}"
    if not sign or match["mark"]:
        return frozenset({(factor, f"{core}^{match['charge'] or ''}{sign}", state)})
    # the 3 of Fe3+ is the charge, the 4 of NH4+ counts
    last = core[-1] if core[-1].isdigit() else ""
    return frozenset({(factor, f"{core}^{sign}", state), (factor, f"{core.removesuffix(last)}^{last}{sign}", state)})


def _closed(core: str) -> bool:
    depth = 0
    for character in core:
        depth += (character in "([") - (character in ")]")
        if depth < 0:
            return False
    return depth == 0


def _same_terms(asked: list[Species], given: list[Species]) -> bool:
    """Every term has a partner; a state that only one side names says nothing."""
    states = [any(state for term in terms for _, _, state in term) for terms in (asked, given)]
    if states[0] != states[1]:
        asked, given = ([frozenset((f, name, "") for f, name, _ in term) for term in terms] for terms in (asked, given))
    left = list(given)
    for term in asked:
        partner = next((at for at, other in enumerate(left) if term & other), None)
        if partner is None:
            return False
        del left[partner]
    return not left


def _in_small(sides: list[list[Species]]) -> list[list[Species]]:
    return [[frozenset((f, name.lower(), state) for f, name, state in term) for term in terms] for terms in sides]
