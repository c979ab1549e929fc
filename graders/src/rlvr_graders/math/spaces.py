r"""Groups, rings, fields and spaces (\mathbb{Z}_2 \times \mathbb{Z}_4, \mathbb{Q}(\sqrt2)): compared by how they are built."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .leaves import Judge
from .structure import read
from .tokens import CLOSERS, MAX_ITEMS, OPENERS, Tokens, UnreadableAnswer, closes, commands, split, step

GROUPS = frozenset(
    ["GL", "SL", "PGL", "PSL", "SO", "SU", "PSU", "Sp", "Spin", "PSp", "Aut", "Gal", "Hom", "End", "Inn", "Out"]
)
"""Names of groups, written like the number sets: \\mathbb{SO}."""
_OTHER_USES = frozenset({"\\mathbb{P}", "\\mathbb{E}", "\\mathbb{1}", "\\mathbb{I}"})
_ENDS = frozenset({",", ";", "=", "\\in", "\\notin", "\\cong", "\\approx", "\\setminus", "\\to"})
PRODUCT = "\\product"
"""A \\times that is not known yet to be one of spaces or of numbers."""
_SPACES = {"\\cdot": "\\star", "\\times": "\\oplus", PRODUCT: "\\oplus"}
_NAMED = re.compile(r"\\mathbb|\\Bbb|[ℤℝℚℂ]|(?:GL|SL|SO|SU|Sp|Spin)\}?[(_]")  # noqa: RUF001
_FACTOR = r"[SDTACQVZ](?:\^|_)(?:\{\w+\}|\w)"
_PRODUCT = re.compile(rf"(?:.*(?:=|\\cong))?\s*{_FACTOR}(?:\s*(?:\\times|\\ast|\*|\\oplus)\s*{_FACTOR})+\s*\.?")
"""S^1 \\times S^2, D_4 * D_4."""
_OPERATIONS = commands("star otimes rtimes ltimes wedge sqcup amalg")
_MOST_COPIES = 20


def may_hold_spaces(text: str) -> bool:
    is_product = "times" in text or "*" in text or "\\ast" in text
    return is_product and (_NAMED.search(text) is not None or _PRODUCT.fullmatch(text) is not None)


def with_products(tokens: Tokens, text: str) -> Tokens:
    r"""The products between spaces as \oplus, the free ones as \star; a segment that holds no space keeps its signs."""
    are_factors = _PRODUCT.fullmatch(text) is not None
    out: list[str] = []
    begin = 0
    for end in [*(at for at, token in enumerate(tokens) if token in _ENDS), len(tokens)]:
        segment = tokens[begin : end + 1]
        are_spaces = are_factors or is_space(segment)
        signs = _SPACES if are_spaces else {PRODUCT: "\\cdot"}
        out += [signs.get(token, token) for token in segment]
        begin = end + 1
    return tuple(out)


def is_space(tokens: Tokens) -> bool:
    """Whether it is built of number sets or groups; an index may be one without, \\int_{\\mathbb{R}} f."""
    return "\\oplus" in tokens or any(
        token.startswith("\\mathbb{")
        and (token not in _OTHER_USES or tokens[at + 1 : at + 2] == ("^",))
        and tokens[max(at - 2, 0) : at] != ("_", "{")
        for at, token in enumerate(tokens)
    )


def same_space(asked: Tokens, given: Tokens, by: Judge) -> bool:
    """Factors and terms in any order; what stands in brackets, indices and powers by its value."""
    try:
        return _same(asked, given, by)
    except UnreadableAnswer:
        return asked == given


def _same(asked: Tokens, given: Tokens, by: Judge) -> bool:
    step(20 + len(asked) + len(given))
    if asked == given:
        return True
    if is_space(asked) != is_space(given):
        return False
    if not is_space(asked):
        return by.same(read(asked), read(given))
    for operation in (("+", "-"), ("\\oplus",)):
        parts = _terms(asked, operation), _terms(given, operation)
        if len(parts[0]) != len(parts[1]):
            return False
        if len(parts[0]) > 1:
            return _in_any_order(*parts, by)
    is_ring = asked[0].startswith("\\mathbb{") and len(asked[0]) == len("\\mathbb{Q}")
    chains = [_pieces(_cyclic(_ungrouped(side))) for side in (asked, given)]
    return len(chains[0]) == len(chains[1]) and all(
        one == other
        or (one[0][0] == other[0][0] and len(one) > 1 < len(other) and _same_group(one, other, is_ring, by))
        for one, other in zip(*chains, strict=True)
    )


def _terms(tokens: Tokens, operation: Sequence[str]) -> list[Tokens]:
    tokens = _ungrouped(tokens)
    if operation[0] == "+":
        return split(tokens, {"+"}) if "-" not in tokens else [tokens]
    factors = []
    for factor in split(tokens, {"\\oplus"}):
        base, copies = _copies(_ungrouped(factor))
        factors += _terms(base, operation) * copies if copies > 1 or base != tokens else [base]
        if len(factors) > MAX_ITEMS:
            raise UnreadableAnswer(f"a product of more than {MAX_ITEMS} spaces")
    return factors


def _copies(factor: Tokens) -> tuple[Tokens, int]:
    r"""\mathbb{Z}^3 and (\mathbb{Z}/2)^3 as what is taken three times."""
    for width, start in ((4, ("^", "{")), (5, ("^", "{", "\\oplus"))):
        base, power = factor[:-width], factor[-width:]
        if power[:-2] == start and power[-2].isdigit() and 1 <= int(power[-2][:3]) <= _MOST_COPIES and is_space(base):
            pieces = _pieces(base)
            if len(pieces) == 1 or (len(pieces) == 2 and pieces[1][0] == "_"):
                return base, int(power[-2])
    return factor, 1


def _ungrouped(tokens: Tokens) -> Tokens:
    while tokens[:1] in (("(",), ("{",)) and closes(tokens, 0) == len(tokens) - 1 > 1:
        tokens = tokens[1:-1]
    return tokens


def _cyclic(tokens: Tokens) -> Tokens:
    r"""\mathbb{Z}/n\mathbb{Z}, \mathbb{Z}/n and \mathbb{Z}/(n) as \mathbb{Z}_n."""
    if (
        tokens[:3] == ("\\frac", "{", "\\mathbb{Z}")
        and tokens[3:5] == ("}", "{")
        and closes(tokens, 4) == len(tokens) - 1
    ):
        tokens = ("\\mathbb{Z}", "/", *tokens[5:-1])
    order = _ungrouped(tokens[2:])
    if tokens[:2] != ("\\mathbb{Z}", "/") or not order:
        return tokens
    order = _ungrouped(order[:-1] if order[-1] == "\\mathbb{Z}" else order)
    order = order[1:-1] if order[:1] == ("\\langle",) and order[-1] == "\\rangle" else order
    is_number = order and not is_space(order) and "/" not in order and _OPERATIONS.isdisjoint(order)
    return ("\\mathbb{Z}", "_", "{", *order, "}") if is_number else tokens


def _pieces(tokens: Tokens) -> list[Tokens]:
    """Single tokens, and brackets with what they hold; an index or a power with its sign."""
    pieces: list[Tokens] = []
    at = 0
    while at < len(tokens):
        start = at + (tokens[at] in ("^", "_"))
        end = closes(tokens, start) if start < len(tokens) and tokens[start] in OPENERS else start
        end = end if end >= 0 else len(tokens) - 1
        pieces.append(tokens[at : end + 1])
        at = end + 1
    scripts = [n for n in range(1, len(pieces)) if pieces[n - 1][0] == "^" and pieces[n][0] == "_"]
    for n in scripts:  # \\mathbb{F}^n_p
        pieces[n - 1], pieces[n] = pieces[n], pieces[n - 1]
    return pieces


def _same_group(one: Tokens, other: Tokens, is_ring: bool, by: Judge) -> bool:
    if one[-1] != other[-1] or one[-1] not in CLOSERS:
        return False
    start = one[0] in ("^", "_")
    items = [split(side[1 + start : -1], {","}) for side in (one, other)]
    if len(items[0]) != len(items[1]) or not all(all(side) for side in items):
        return False
    if is_ring and len(items[0]) > 1:  # \\mathbb{Q}(\\sqrt2, \\sqrt3)
        return _in_any_order(items[0], items[1], by)
    return all(_same(asked, given, by) for asked, given in zip(*items, strict=True))


def _in_any_order(asked: list[Tokens], given: list[Tokens], by: Judge) -> bool:
    left = list(given)
    for item in asked:
        partner = next((at for at, other in enumerate(left) if _same(item, other, by)), None)
        if partner is None:
            return False
        del left[partner]
    return True
