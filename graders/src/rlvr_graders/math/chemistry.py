r"""Chemical formulas and the equations of reactions: H_2SO_4, \mathrm{H_2SO_4} and \ce{H2SO4} are one, CO and Co are not."""

from __future__ import annotations

import re

from .tokens import Tokens, join, word_of

_ELEMENTS = re.findall(
    r"\w+",
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd "
    "Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac "
    "Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og",
)
"""By their atomic numbers."""
_NAMES: dict[str, str] = dict(
    re.findall(
        r"([a-z][a-z ]*) ([A-Z]\w*)",
        "helium He lithium Li beryllium Be nitrogen N oxygen O neon Ne sodium Na magnesium Mg aluminum Al aluminium Al silicon Si "
        "phosphorus P sulfur S sulphur S chlorine Cl argon Ar potassium K calcium Ca titanium Ti chromium Cr manganese Mn iron Fe "
        "cobalt Co nickel Ni copper Cu zinc Zn arsenic As bromine Br krypton Kr silver Ag cadmium Cd tin Sn xenon Xe cesium Cs "
        "barium Ba tungsten W platinum Pt gold Au mercury Hg lead Pb radon Rn radium Ra uranium U water H2O ammonia NH3 methane CH4 "
        "carbon dioxide CO2 carbon monoxide CO sodium chloride NaCl sulfuric acid H2SO4 hydrochloric acid HCl nitric acid HNO3 "
        "sodium hydroxide NaOH hydrogen peroxide H2O2 calcium carbonate CaCO3",
    )
)
"""No symbols that may be the letter of a choice."""
_FIRST_WORDS = frozenset(name.split()[0] for name in _NAMES)
_BEGINNINGS = frozenset({"\\ce", "(", "[", "^", "\\mathbb{SO}", "s", "\\text{sp}"})
_SHELL = r"(\d[spdf])\^?(\d{1,2}?)(?=\d[spdf]|$)"
_SHELLS = re.compile(_SHELL)
_CONFIGURATION = re.compile(rf"(?:\[([A-Z][a-z])\])?((?:{_SHELL})+)")
"""1s^2 2s^2 2p^6, [Ar] 3d^6 4s^2"""
_HYBRID = re.compile(r"sp(?:[23]d?2?)?")
_NOBLE = dict(
    zip(("He", "Ne", "Ar", "Kr", "Xe"), ("1s2", "2s2 2p6", "3s2 3p6", "3d10 4s2 4p6", "4d10 5s2 5p6"), strict=True)
)
_LONGEST = 80
"""Tokens of the longest formula or equation that is looked at."""
_MARKUP = re.compile(r"\\(?:ce|text)(?![A-Za-z])|\\mathbb(?=\{SO\})")
_COUNT = re.compile(r"_\{([1-9]\d*)\}(?!\d)")
_CHARGE = re.compile(r"\^\{*([+-]?)(\d*)\}*([+-]?)\}*")
_ARROW = re.compile(r"->|\\to|\\rightleftharpoons|\\le>")
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
    if (shells := _shells(asked)) and shells == _shells(given):
        return True
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
        return "\\to" in tokens or ">" in tokens or tokens[1:2] in (("s",), ("\\text{s}",))
    return (
        first[0].isupper()
        or first in _BEGINNINGS
        or (first[:6] == "\\text{" and (first[6].isupper() or word_of(first) in _FIRST_WORDS))
    )


def _shells(tokens: Tokens) -> list[str]:
    """The electrons of each shell, 2p6, or a hybrid orbital, sp3; nothing for anything else."""
    text = re.sub(r"[{} ]", "", _MARKUP.sub("", join(tokens))) if 1 < len(tokens) < _LONGEST else ""
    if _HYBRID.fullmatch(text.replace("^", "")):
        return [text.replace("^", "")]
    match = _CONFIGURATION.fullmatch(text)
    if match is None or (match[1] or "He") not in _NOBLE:
        return []
    core = list(_NOBLE)[: list(_NOBLE).index(match[1]) + 1] if match[1] else []
    return sorted(
        [*" ".join(map(_NOBLE.__getitem__, core)).split(), *(f"{m[1]}{m[2]}" for m in _SHELLS.finditer(match[2]))]
    )


def _read(tokens: Tokens) -> list[list[Species]]:
    """The terms on each side of the arrow; nothing where this is no chemistry."""
    if len(tokens) > _LONGEST:
        return []
    name = _NAMES.get(" ".join(map(word_of, tokens))) if len(tokens) < 3 else None
    text = _ISOTOPE.sub(r"<\1,\2>", _MARKUP.sub("", name or join(tokens)).replace("\\cdot", "."))
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
