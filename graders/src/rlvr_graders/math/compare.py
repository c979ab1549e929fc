r"""Whether a prediction answers as the reference does: shape by shape, with the expressions at the leaves left to `Algebra`.

The decisions taken here are listed in graders/docs/math.md. The reference always comes first: it says what is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from string import ascii_lowercase

from ..extract import MAX_PHRASE, choice_letter
from ..verdict import CORRECT, UNREADABLE_REFERENCE, WRONG
from .arrows import has_vectors, same_arrows, with_basis
from .characters import MAX_LENGTH, has_thousands
from .chemistry import is_formula, same_formula
from .cycles import cycles
from .exact import TooLarge
from .expression import Expression, parse
from .families import renamed, whole_turns, without_constant_word
from .integers import same_integers
from .latex import tokens_of
from .leaves import Algebra, Judge, UnreadableReference, reference_expression, same_leaf
from .moments import same_moment
from .notations import in_one_notation
from .parts import whole
from .phrases import same_ranges, subject
from .relations import (
    OF_VARIABLES,
    TASKS,
    as_residue,
    describes_set,
    parity,
    same_families,
    same_in_order,
    same_parity,
    same_relation,
    same_residues,
    same_sets,
    variables,
)
from .selections import same_selection
from .series import same_series
from .spaces import is_space, same_space
from .structure import ORDER, RELATIONS, Node, letters, read
from .tokens import Tokens, UnreadableAnswer, is_word, listed, split, step, word_of
from .units import NO_UNIT
from .words import SAME_WORDS, contradict, phrase, same_words, truths

_DECIMAL_COMMA = re.compile(r"-?\d+,\d+", re.ASCII)
_LABELS = listed(
    "rank point quadrant dimension degree order area volume option case row level page step line place position player quadrant "
    "day question statement ph"
)
_ORDERED = listed("respectively order tallest shortest largest smallest oldest youngest heaviest lightest")
"""Words of a list whose items stand in their order."""
_ROOTS = frozenset({*"xyztwrkmn", "\\lambda"})
"""Letters whose numbered values are solutions; a_1 and a_2 are terms, in their order."""
_BASIS = frozenset("jk")
_EXCEPTIONS = frozenset({"\\ne"})
_DOMAINS = ORDER | _EXCEPTIONS
_FACE = re.compile(r"\\(?:text|math)[a-z]*|[{}$*\s]")
_SMALL_CHOICE = re.compile(
    r"(?:the)?(?:option|choice|answer)(?:is)?:?(?:([a-j])|\(([a-j])\)|([a-j])\))\.?|\(([a-j])\)\.?|([a-j])\)"
)
_VECTORS = frozenset({"\\begin{matrix}", "(", "\\langle"})


class Comparison(Judge):
    """Compares each pair of parts once, however often it is asked for: so the work is bounded by the pairs that there are."""

    def __init__(self, algebra: Algebra) -> None:
        self.algebra = algebra
        self._known: dict[tuple[Node, Node, bool], bool] = {}

    def same(self, asked: Node, given: Node, *, in_list: bool = False) -> bool:
        key = asked, given, in_list
        if key not in self._known:
            step(10)
            self._known[key] = asked == given or _same(asked, given, self, in_list)
        return self._known[key]


def judge(reference: str, prediction: str, algebra: Algebra) -> str:
    """Why the prediction is right ("correct") or not, in words."""
    by = Comparison(algebra)
    if asked_cycles := cycles(reference):
        return CORRECT if cycles(prediction, of_permutation=True) == asked_cycles else WRONG
    if (is_same := same_selection(reference, prediction)) is not None:
        return CORRECT if is_same else WRONG
    try:
        reading = tokens_of(prediction)
    except UnreadableAnswer as error:
        return f"unparsable answer: {error}"
    try:
        expected = tokens_of(reference)
        if "\\mod" in expected or (
            "\\bmod" in expected and not letters(_last_side(expected[: expected.index("\\bmod")]))
        ):
            # A reference 7 \bmod 12 names a residue; in a prediction it is still to be worked out.
            expected, reading = as_residue(expected), as_residue(reading)
        values = _without_label(expected), _without_label(reading)
        is_choice = _same_choice(reference, prediction)
        if values[0] != expected and (not is_choice or values[1] != reading):
            # (D) 12 is asked: beside D with a value, or a value alone, the value counts
            if values[1] != reading and not is_choice:
                return WRONG  # another letter
            expected, reading, is_choice = *values, False
        if "mathbb" in reference + prediction:
            expected, reading = _same_bold(expected, reading), _same_bold(reading, expected)
        if not _BASIS.isdisjoint(expected) or not _BASIS.isdisjoint(reading):
            expected, reading = with_basis(expected, reading), with_basis(reading, expected)
        expected, reading = in_one_notation(expected, reading)
        asked = read(expected)
    except UnreadableAnswer as error:
        return f"{UNREADABLE_REFERENCE}: {error}"
    if expected == reading or is_choice:
        return CORRECT
    if contradict(expected, reading):
        return WRONG
    if same_integers(expected, reading):
        return CORRECT
    moment = same_moment(expected, reading) if len(reading) > 1 or len(expected) > 1 else None
    if moment is not None:
        return CORRECT if moment else WRONG
    if is_word(expected[0]):
        subjects = subject(expected), subject(reading)
        if all(subjects) and subjects[0].isdisjoint(subjects[1]):
            return WRONG  # Ann has 5, Bob has 5
    # Where one side sets no arrows, the other's say nothing.
    if has_vectors(expected) != has_vectors(reading) and letters(expected) and letters(reading):
        expected, reading = same_arrows(expected, reading, reference, prediction)
        asked = read(expected)
    try:
        given = read(without_constant_word(reading if letters(expected) else _without_label(reading)))
        unworked = TASKS.intersection(given.tokens) - TASKS.intersection(expected)
        unworked -= OF_VARIABLES if letters(given.tokens) else frozenset()
        unworked -= {"\\sum"} if "\\dots" in expected else frozenset()  # 1 + x + x^2 + \\dots is asked
        if unworked and given.kind != "relation":
            return f"not worked out: {sorted(unworked)[0]} is left in the answer"
        if by.same(asked, given):
            return CORRECT
        sets = [{numbers for _, numbers in node.ranges} for node in (asked, given)]
        may_rename = (
            asked.ranges == given.ranges or same_ranges(asked.ranges, given.ranges) or set() in sets
        ) and parity(asked) is None
        if may_rename and any(by.same(asked, read(tokens)) for tokens in renamed(asked, given)):
            return CORRECT
        if (full := _substituted(given)) is not None and by.same(asked, read(full)):
            return CORRECT
        if not (asked.ranges or given.ranges) and (turns := whole_turns(asked, given)) and by.same(*turns):
            return CORRECT
        named = _unnamed(asked), _unnamed(given)
        if (named[0] is None) != (named[1] is None) and by.same(named[0] or asked, named[1] or given):
            return CORRECT  # rank 2, point B
        formulas = _without_domain(asked, _DOMAINS), _without_domain(given, _EXCEPTIONS)
        if (formulas[0] is asked) != (formulas[1] is given) and by.same(*formulas):
            return CORRECT
        is_comma = _DECIMAL_COMMA.fullmatch(prediction.strip()) and not has_thousands(prediction)
        if is_comma and "." in asked.text and asked.kind == "leaf":
            comma = read(tokens_of(prediction.replace(",", ".")))
            return CORRECT if by.same(asked, comma) else WRONG
        # "100,200" may be one number or a list of two: the list is tried where the number did not match.
        if has_thousands(reference) or has_thousands(prediction):
            lists = [read(tokens_of(text, thousands=False)) for text in (reference, prediction)]
            if has_thousands(reference) and asked.kind == "leaf":  # a number, or else a list as it stands
                is_list = lists[1].kind in ("list", "set") and lists[0].kind == "list"
                texts = [[item.text for item in node.items] for node in lists]
                return CORRECT if is_list and texts[0] == texts[1] else WRONG
            if by.same(lists[0], lists[1]):
                return CORRECT
    except UnreadableReference as error:
        if asked.kind != "leaf" or describes_set(asked) or phrase(asked) in SAME_WORDS or is_formula(expected):
            return WRONG  # an interval is no expression: it was read, and a number is not it
        return f"{UNREADABLE_REFERENCE}: {error}"
    except UnreadableAnswer as error:
        return f"unparsable answer: {error}"
    except TooLarge:
        return "unparsable answer: its value is too large to work out"
    if {*expected, *reading} == {"\\text{NO}", "\\text{No}"} and "\\text" in reference + prediction:
        return CORRECT  # the word, not nitric oxide and nobelium
    if given.kind == "list" and asked.kind not in ("list", "tuple", "set", "union", "matrix"):
        return "wrong answer: several answers where one is asked"
    return WRONG


def _unnamed(node: Node) -> Node | None:
    """Of "rank 2", "Store B" and "4th place" the 2, the B and the 4; None for anything else."""
    tokens = node.whole or node.tokens
    if node.kind not in ("leaf", "words") or not is_word(tokens[0]):
        return None
    name = word_of(tokens[0])
    rest = "".join(word_of(token) or token for token in tokens[1:])
    is_numbered = tokens[0][6:7].isupper() and (rest.isdigit() or (len(rest) == 1 and rest.isalpha()))
    return read(tokens[1:]) if tokens[1:] and (name in _LABELS or is_numbered) else None


def _substituted(node: Node) -> Tokens | None:
    """1 - q^n where q = 1 - p as 1 - (1 - p)^n."""
    if node.kind != "conditional":
        return None
    tokens = node.items[0].tokens
    for condition in node.items[1:]:
        if (
            condition.operators != ("=",)
            or len(name := condition.items[0].tokens) > 1
            or name[0] not in tokens
            or len(tokens) > MAX_LENGTH  # a = bb, b = cc, c = dd, ...
        ):
            return None
        value = ("(", *condition.items[1].tokens, ")")
        tokens = tuple(part for token in tokens for part in (value if token == name[0] else (token,)))
    return tokens


def _same_bold(tokens: Tokens, other: Tokens) -> Tokens:
    r"""\mathbf{Z} and, where all letters are plain, Z as \mathbb{Z} where the other side has that."""
    names = {token[-2]: token for token in other if token.startswith("\\mathbb{") and len(token) == 10}
    if not any(token.startswith("\\mathbb{") for token in tokens):
        tokens = tuple(names.get(token, token) for token in tokens)
    bold = {f"\\{font}{{{name}}}": shown for name, shown in names.items() for font in ("mathbf", "vec")}
    if bold.keys().isdisjoint(tokens):
        return tokens
    return tuple("\\oplus" if token == "\\times" else bold.get(token, token) for token in tokens)


def _without_domain(node: Node, operators: frozenset[str]) -> Node:
    r"""Of \frac{x^2}{x - 1}, x \ne 1 the formula: whoever leaves out where it holds answers the same."""
    if node.kind not in ("list", "conditional") or node.form not in ("", ","):
        return node
    value, *conditions = node.items
    is_formula = value.kind == "leaf" or (value.kind == "relation" and value.items[0].text[1:2] in ("(", "_"))
    for condition in conditions:
        name = condition.items[0].text.strip("|") if condition.kind == "relation" else ""
        is_counted = name in ("n", "k", "m") and set(condition.operators) <= {">", "\\ge"}
        if not name or name not in value.tokens or not (is_counted or operators.issuperset(condition.operators)):
            return node
    return value if is_formula and conditions else node


def _last_side(tokens: Tokens) -> Tokens:
    return split(tokens, RELATIONS)[-1]


def _same(asked: Node, given: Node, by: Judge, in_list: bool) -> bool:
    of_chemistry = same_formula(asked.whole or asked.tokens, given.whole or given.tokens)
    if of_chemistry is not None:
        return of_chemistry
    if asked.ranges or given.ranges:
        return same_families(asked, given, by)
    of_parity = same_parity(asked, given, by)
    if of_parity is not None:
        return of_parity
    if asked.kind == given.kind == "leaf":
        if is_space(asked.tokens) or is_space(given.tokens):
            return same_space(asked.tokens, given.tokens, by)
        if "\\sum" in (asked.tokens[0], given.tokens[0]):
            of_series = same_series(asked.tokens, given.tokens, by)
            if of_series is not None:
                return of_series
        return same_leaf(asked, given, by.algebra, in_list=in_list)
    if (said := truths(asked)) and (answered := truths(given)):
        return said == answered
    if {asked.kind, given.kind} == {"words", "conditional"}:
        return False  # yes, if n is odd
    if asked.kind == "words" and given.operators == ("\\in",):  # all positive integers, n \\in \\mathbb{N}
        return by.same(asked, given.items[1])
    if "words" in (asked.kind, given.kind) or {phrase(asked), phrase(given)} <= SAME_WORDS.keys():
        return same_words(asked, given) or same_sets(asked, given, by)
    if "residue" in (asked.kind, given.kind):
        return same_residues(asked, given, by)
    if "relation" in (asked.kind, given.kind):
        return same_relation(asked, given, by)
    if asked.kind == "leaf" and given.kind == "list" and given.form != ",":
        if (
            given.form == "and"
            and len(given.items) == 2
            and given.items[0].text.isdigit()
            and given.items[1].text[:5] == "\\frac"
        ):
            return by.same(asked, Node("leaf", given.items[0].tokens + given.items[1].tokens))  # 2 and 3/4
        return len(_assigned(given)) < 2 and _is_one_of(given, asked, by)
    if asked.kind == "list" and given.kind == "leaf" and asked.form == "or" and _is_one_of(asked, given, by):
        return True
    return _same_shape(_plain(asked), _plain(given), by)


def _is_one_of(listed: Node, value: Node, by: Judge) -> bool:
    """1/2 or 0.5 is one answer, spelled twice, and so is 2 hours (120 minutes)."""
    first, *others = listed.items
    return all(by.same(first, other) for other in others) and any(by.same(value, item) for item in listed.items)


def _same_shape(asked: Node, given: Node, by: Judge) -> bool:
    kinds = {asked.kind, given.kind}
    if kinds == {"list"} and not _ORDERED.isdisjoint(map(word_of, asked.tokens)):
        return same_in_order(asked.items, given.items, by)
    if kinds == {"list"} and _counts_each(asked) != _counts_each(given):
        by_name = [_by_count(n) if _counts_each(n) else n for n in (asked, given)]
        if all(item.operators == ("=",) for node in by_name for item in node.items):
            return _same_unordered(by_name[0], by_name[1], by)
    if kinds == {"list"} and _in_order(asked, given):
        return same_in_order(_values(asked), _values(given), by)
    named = kinds == {"list"} and _values(asked) is not asked.items and not _are_numbered(asked)
    if named and any(item.kind != "relation" for item in given.items):
        return False  # a = 1, b = 2 is not 1 or 2
    if kinds == {"list", "conditional"} and "," in (asked.form, given.form):  # C e^x, C > 0
        return same_in_order(asked.items, given.items, by)
    if kinds == {"list"} and given.form == "or" and len(_assigned(given)) > 1 and not _assigned(asked):
        return False  # x = 3 or y = -3
    if kinds == {"list"} and asked.form != given.form and _joins_conditions(asked):
        are_sets = describes_set(asked) and describes_set(given)
        if "," not in (asked.form, given.form):
            return are_sets and same_sets(asked, given, by)  # and, or
        if are_sets and same_sets(asked, asked, by) and same_sets(given, given, by):
            return same_sets(asked, given, by)  # a comma says either, and the set tells which
        if "or" in (asked.form, given.form) and len(variables(asked)) > 1:
            return False  # x > 0, y > 0 is both
    if kinds == {"list", "set"} and len(_assigned(asked if asked.kind == "list" else given)) > 1:
        return False  # x = 1, y = 2 are not the values of one quantity
    if (kinds <= {"list", "set"} or kinds in ({"union"}, {"intersection"})) and _same_unordered(asked, given, by):
        return True
    if kinds == {"tuple"} and asked.form == given.form == ":" and not _are_times(asked, given):
        return len(asked.items) == len(given.items) and _same_ratio(asked.items, given.items, by)
    if kinds == {"tuple"}:
        return _same_brackets(asked, given) and same_in_order(asked.items, given.items, by)
    if asked.kind == "tuple" and given.kind == "leaf" and given.tokens[0].isupper() and given.tokens[1:2] == ("(",):
        return by.same(asked, read(given.tokens[1:]))  # P(2, 5)
    if kinds == {"list", "matrix"}:  # a column
        asked, given = (
            replace(n, kind="tuple", form="()") if n.kind == "matrix" and n.form == "1" else n for n in (asked, given)
        )
        kinds = {asked.kind, given.kind}
    if kinds == {"list", "tuple"} and not describes_set(asked if asked.kind == "list" else given):
        # Brackets forgotten on one side: then the order is all that tells a tuple. [1, 2] alone is an interval.
        form, names = (asked.form, given) if asked.kind == "tuple" else (given.form, asked)
        if _values(names) is names.items and len(_assigned(names)) > 1:
            return False  # y = 1, y = 2, z = 3
        is_point = form == "()" or (form == "[]" and len(asked.items) > 2)
        return (
            is_point
            and not _are_alternatives(asked if asked.kind == "list" else given)
            and same_in_order(_values(asked), _values(given), by)
        )
    if kinds == {"matrix", "leaf"}:
        asked, given = _identity(asked, given), _identity(given, asked)
        kinds = {asked.kind, given.kind}
    if kinds == {"matrix"}:
        return asked.form == given.form and same_in_order(asked.items, given.items, by)
    if kinds == {"matrix", "tuple"} and "tuple" in {item.kind for item in asked.items + given.items}:
        asked, given = _as_matrix(asked), _as_matrix(given)  # [[1, 2], [3, 4]]
        return asked.form == given.form and same_in_order(asked.items, given.items, by)
    if kinds == {"matrix", "tuple"}:  # a vector as a column, a row or in brackets
        table, vector = (asked, given) if asked.kind == "matrix" else (given, asked)
        is_vector = table.form in ("1", str(len(table.items)))
        return is_vector and vector.form in ("()", "[]") and same_in_order(asked.items, given.items, by)
    if "cases" in kinds:
        return (kinds == {"cases"} and _same_unordered(asked, given, by)) or _same_functions(asked, given, by)
    if kinds in ({"conditional"}, {"described"}):
        return same_in_order(asked.items, given.items, by)
    if describes_set(asked) and describes_set(given):
        return same_sets(asked, given, by)
    if kinds == {"leaf", "list"} and _VECTORS.intersection(asked.tokens + given.tokens):
        asked, given = _as_vector(asked), _as_vector(given)
        kinds = {asked.kind, given.kind}
    if kinds <= {"matrix", "tuple", "leaf"} and "leaf" in kinds and _VECTORS.intersection(asked.tokens + given.tokens):
        if NO_UNIT not in (asked.unit, given.unit) and asked.unit != given.unit:
            return False
        return by.algebra.equal(reference_expression(asked.tokens), parse(given.tokens))
    asked, given = _quotient(asked), _quotient(given)
    return asked.kind == given.kind == "leaf" and same_leaf(asked, given, by.algebra)


def _joins_conditions(node: Node) -> bool:
    """Whether "and" and "or" between the items make a difference: not between numbers, nor between values of one name."""
    return (
        letters(node.tokens)
        and not _are_numbered(node)
        and not _are_alternatives(replace(node, form=""))
        and any(item.kind in ("relation", "words") or letters(item.tokens) for item in node.items)
    )


def _assigned(node: Node) -> set[str]:
    """The letters that a list of assignments is about: x and y of x = 1, y = 2; x alone of x_1 = 1, x_2 = 2."""
    return {item.items[0].tokens[0] for item in node.items if item.operators == ("=",)}


def _are_numbered(node: Node) -> bool:
    """x_1 = 5, x_2 = -2: values of one quantity."""
    names = _assigned(node)
    return (
        len(names) == 1 < len(node.items) and names <= _ROOTS and all(item.operators == ("=",) for item in node.items)
    )


def _are_alternatives(node: Node) -> bool:
    """x = 1 or x = 4, and x = 1, x = 4: several values of one quantity are no point (1, 4)."""
    names = {item.items[0].tokens for item in node.items if item.operators == ("=",)}
    return node.form == "or" or (len(names) == 1 and all(item.operators == ("=",) for item in node.items))


def _same_functions(asked: Node, given: Node, by: Judge) -> bool:
    """A function by cases beside another, or beside one formula: by their values."""
    try:
        return by.algebra.equal(_as_function(asked), _as_function(given))
    except UnreadableAnswer:
        return False


def _as_function(node: Node) -> Expression:
    if node.kind == "cases":
        return (
            "piecewise",
            *(
                part
                for branch in node.items
                for part in (
                    parse(branch.items[0].tokens),
                    _condition(branch.items[1]) if branch.items[1:] else ("and",),
                )
            ),
        )
    if node.kind != "leaf":
        raise UnreadableAnswer("this is not a function by cases")
    return parse(node.tokens)


def _condition(node: Node) -> Expression:
    if node.kind == "words" and word_of(node.tokens[0]) in ("otherwise", "else", "elsewhere"):
        return ("and",)
    if (said := parity(node)) and said[1]:  # n is even
        half = ("floor", ("/", ("symbol", said[1]), whole(2)))
        return ("and", ("=", ("symbol", said[1]), ("+", ("*", whole(2), half), whole(said[0]))))
    if node.kind == "list":
        return ("or" if node.form == "or" else "and", *map(_condition, node.items))
    if node.kind != "relation" or not set(node.operators) <= {*ORDER, "=", "\\ne"}:
        raise UnreadableAnswer("a condition is not understood")
    sides = [parse(item.tokens) for item in node.items]
    return ("and", *zip(node.operators, sides, sides[1:], strict=False))


def _plain(node: Node) -> Node:
    """A set or list of one value is that value."""
    is_one = len(node.items) == 1 and (
        node.kind in ("set", "list", "matrix") or (node.kind == "tuple" and not letters(node.tokens))
    )
    return node.items[0] if is_one and not describes_set(node.items[0]) else node


def _identity(node: Node, other: Node) -> Node:
    """I and I_2 as the matrix that they name, where the other is one of that size."""
    size = other.form
    if node.text not in ("I", f"I_{{{size}}}", f"E_{{{size}}}") or len(other.items) != int(size) ** 2:
        return node
    cells = tuple(read(("1",) if at % (int(size) + 1) == 0 else ("0",)) for at in range(int(size) ** 2))
    return replace(other, items=cells)


def _as_vector(node: Node) -> Node:
    """x = 1 + t, y = 2, z = 3 + t as the vector."""
    values = _values(node) if node.kind == "list" else node.items
    if values is node.items:
        return node
    inside = tuple(token for value in values for token in (",", *value.tokens))
    return Node("tuple", ("(", *inside[1:], ")"), tuple(values), form="()")


def _as_matrix(node: Node) -> Node:
    if node.kind == "matrix" or len({(row.kind, len(row.items)) for row in node.items}) != 1:
        return node
    cells = tuple(cell for row in node.items for cell in row.items)
    return Node("matrix", node.tokens, cells, form=str(len(node.items[0].items)))


def _quotient(node: Node) -> Node:
    """A ratio 3:4 as the fraction 3/4, for where a number stands on the other side. Two ratios (or times) are compared as they are."""
    if node.kind != "tuple" or node.form != ":" or len(node.items) != 2 or any(item.unit.words for item in node.items):
        return node
    top, bottom = node.items
    return Node("leaf", ("\\frac", "{", *top.tokens, "}", "{", *bottom.tokens, "}"))


def _are_times(*nodes: Node) -> bool:
    """Whether all may be times of the day, 3:30; a ratio may be reduced, a time not."""
    return all(all(len(item.tokens) == 1 and len(item.text) == 2 for item in node.items[1:]) for node in nodes)


def _same_ratio(asked: Sequence[Node], given: Sequence[Node], by: Judge) -> bool:
    """4:6 is 2:3: term by term, or each to the first."""
    if same_in_order(asked, given, by):
        return True
    ratios = [
        [("\\frac", "{", *_in_bases(item), "}", "{", *_in_bases(items[0]), "}") for item in items[1:]]
        for items in (asked, given)
    ]
    return all(by.same(Node("leaf", a), Node("leaf", g)) for a, g in zip(*ratios, strict=True))


def _in_bases(node: Node) -> Tokens:
    """The value in base units: the parts of a ratio may have different ones, 1 cm to 500 m."""
    top, bottom = map(str, node.unit.in_bases()[0].as_integer_ratio())
    return (*node.tokens, "\\cdot", top, "/", bottom) if node.unit.measure else node.tokens


def _same_brackets(asked: Node, given: Node) -> bool:
    """Round and square brackets are the same around a vector of three or more, but not around an interval or a point."""
    return asked.form == given.form or (len(asked.items) > 2 and {asked.form, given.form} == {"()", "[]"})


# --- parts and their order ---


def _same_unordered(asked: Node, given: Node, by: Judge) -> bool:
    """Every item has its own partner; in a set, any partner. Equality is transitive, so taking the first partner is safe."""
    left = list(given.items)
    if asked.kind == given.kind == "set":
        same = [[_is_set(a) == _is_set(g) and by.same(a, g) for g in given.items] for a in asked.items]
        both = bool(asked.items) == bool(given.items)
        return both and all(map(any, same)) and all(map(any, zip(*same, strict=True)))  # {1, {2}} is not {1, 2}
    # An answer that is listed twice is no other answer.
    if len(left) > len(asked.items) > 1 and not _repeats(asked, by):
        left = [item for at, item in enumerate(left) if not any(by.same(item, other) for other in left[:at])]
    if len(asked.items) != len(left):
        return False
    for item in asked.items:
        partner = next((i for i, other in enumerate(left) if by.same(item, other, in_list=True)), None)
        if partner is None:
            return False
        del left[partner]
    return True


def _is_set(node: Node) -> bool:
    return node.kind == "set" or node.tokens == ("\\emptyset",)


def _repeats(node: Node, by: Judge) -> bool:
    return any(by.same(item, other) for at, item in enumerate(node.items) for other in node.items[:at])


def _in_order(asked: Node, given: Node) -> bool:
    """Whether one list names its values (x = 1, y = 2) and the other does not: then the order tells which is which."""
    named = [_values(node) is not node.items or _counts_each(node) for node in (asked, given)]
    if named[0] == named[1] or _are_numbered(asked) or _are_numbered(given):
        return False
    plain = given if named[0] else asked
    return plain.form != "or" and all(item.kind != "relation" for item in plain.items)


def _counts_each(node: Node) -> bool:
    """12 apples and 8 oranges: what is counted tells the values apart."""
    words = [word for item in node.items for word in {*item.unit.words}]
    return all(item.unit.words for item in node.items) and len({*words}) == len(words)


def _by_count(node: Node) -> Node:
    """The same as adults: 30, children: 70."""
    parts = [
        (tuple(f"\\text{{{word}}}" for word in item.unit.words), replace(item, unit=NO_UNIT)) for item in node.items
    ]
    items = (
        Node("relation", (*label, "=", *value.tokens), (Node("words", label), value), operators=("=",))
        for label, value in parts
    )
    return replace(node, items=tuple(items))


def _values(node: Node) -> Sequence[Node]:
    """The items, without their names where each is an assignment to a name of its own: x = 1, y = 2."""
    if all(item.kind == "relation" and item.operators == ("=",) for item in node.items):
        names = {item.items[0].tokens for item in node.items}
        if len(names) == len(node.items):
            # Whoever asks for a pair without names means (x, y), not (y, x), and as they stand for (x, a).
            in_a_row = "".join(sorted(name for names_of in names for name in names_of)) in ascii_lowercase
            in_turn = sorted(node.items, key=lambda item: item.items[0].tokens) if in_a_row else node.items
            return [item.items[1] for item in in_turn]
    return node.items


# --- choices ---


def _without_label(tokens: Tokens) -> Tokens:
    """Of "(C) 12" the 12."""
    is_labelled = (
        len(tokens) > 3
        and (tokens[0], tokens[2]) == ("(", ")")
        and (word_of(tokens[1]) or tokens[1]).upper() in "ABCDE"
        and (tokens[3][0].isdigit() or tokens[3] in ("-", "\\frac", "\\sqrt"))
        and not letters(tokens[3:])
    )
    return tokens[3:] if is_labelled else tokens


def _same_choice(reference: str, prediction: str) -> bool:
    """A reference that is one letter is a choice: the prediction may repeat the text of the option behind it."""
    asked = choice_letter(reference)
    is_short = len(reference) <= 20 or _without_label(tokens_of(reference)) != tokens_of(reference)
    if asked is None or not is_short:
        return False
    return (choice_letter(prediction) or _small_choice(prediction)) == asked


def _small_choice(text: str) -> str | None:
    """(b), b) and "option b", which nobody writes of a variable."""
    match = _SMALL_CHOICE.fullmatch(_FACE.sub("", text)) if len(text) < MAX_PHRASE else None
    return match[match.lastindex or 0].upper() if match else None
