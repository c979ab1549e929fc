r"""Whether a prediction answers as the reference does: shape by shape, with the expressions at the leaves left to `Algebra`.

The decisions taken here are listed in docs/rewards.md. The reference always comes first: it says what is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from string import ascii_lowercase

from ..extract import choice_letter
from ..verdict import CORRECT, UNREADABLE_REFERENCE, WRONG
from .characters import has_thousands
from .exact import QUICK_BITS, TooLarge, exact_value
from .expression import parse, symbols
from .latex import tokens_of
from .leaves import Algebra, Sides, UnreadableReference, is_rounding, reference_expression, same_leaf
from .structure import ALL_WORDS, EMPTY_WORDS, FLIPPED, ORDER, Node, is_name, letters, plain_words, read
from .tokens import Tokens, UnreadableAnswer, commands, listed, word_of

# A prediction that only restates the task (\int_0^1 x dx where 1/2 is asked) is not an answer, although it equals one.
_TASKS = commands("int iint iiint oint sum prod lim limsup liminf max min sup inf det gcd lcm bmod")
_SAME_WORDS = {
    phrase: phrases[0]
    for phrases in (
        ("doesnotexist", "dne", "doesn'texist", "limitdoesnotexist", "nolimit"),
        ("\\emptyset", "\\{\\}", *sorted(EMPTY_WORDS)),
        ("\\infty", "infinitelymany", "infinitelymanysolutions", "infinite", "infinity"),
        ("divergent", "diverges", "seriesdiverges"),
        ("convergent", "converges", "seriesconverges"),
        ("\\mathbb{R}", *sorted(ALL_WORDS)),
    )
    for phrase in phrases
}  # fmt: skip
_SAME_NAMES = {"f(x)": "y", "f'(x)": "y'", "\\frac{dy}{dx}": "y'", "f''(x)": "y''"}
_VECTORS = frozenset({"\\begin{matrix}", "(", "\\langle"})
_FILLERS = listed("the a an it is are answer there they")
_OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}
_DOUBTS = listed("not but or maybe perhaps unless except however")


def judge(reference: str, prediction: str, algebra: Algebra) -> str:
    """Why the prediction is right ("correct") or not, in words."""
    try:
        reading = tokens_of(prediction)
    except UnreadableAnswer as error:
        return f"unparsable answer: {error}"
    try:
        expected = tokens_of(reference)
        if "\\bmod" in expected:
            # A reference 7 \bmod 12 names a residue; in a prediction it is still to be worked out.
            expected, reading = _as_residue(expected), _as_residue(reading)
        asked = read(expected)
    except UnreadableAnswer as error:
        return f"{UNREADABLE_REFERENCE}: {error}"
    if expected == reading or _same_choice(reference, prediction):
        return CORRECT
    try:
        given = read(_without_label(reading, expected))
        unworked = _TASKS.intersection(given.tokens) - _TASKS.intersection(expected)
        if unworked and given.kind != "relation":
            return f"not worked out: {sorted(unworked)[0]} is left in the answer"
        if _same(asked, given, algebra):
            return CORRECT
        # "100,200" may be one number or a list of two: the list is tried where the number did not match.
        if has_thousands(reference) or has_thousands(prediction):
            lists = [read(tokens_of(text, thousands=False)) for text in (reference, prediction)]
            if _same(lists[0], lists[1], algebra):
                return CORRECT
    except UnreadableReference as error:
        return f"{UNREADABLE_REFERENCE}: {error}"
    except UnreadableAnswer as error:
        return f"unparsable answer: {error}"
    except TooLarge:
        return "unparsable answer: its value is too large to work out"
    except RecursionError:
        return "unparsable answer: nested too deeply"
    if given.kind == "list" and asked.kind not in ("list", "tuple", "set", "union", "matrix"):
        return "wrong answer: several answers where one is asked"
    return WRONG


def _same(asked: Node, given: Node, algebra: Algebra, *, in_list: bool = False) -> bool:
    if asked == given:
        return True
    if asked.ranges or given.ranges:
        return _same_families(asked, given, algebra)
    if asked.kind == given.kind == "leaf":
        return same_leaf(asked, given, algebra, in_list=in_list)
    if "words" in (asked.kind, given.kind) or {_phrase(asked), _phrase(given)} <= _SAME_WORDS.keys():
        return _same_words(asked, given) or _same_sets(asked, given, algebra)
    if "residue" in (asked.kind, given.kind):
        return _same_residues(asked, given, algebra)
    if "relation" in (asked.kind, given.kind):
        return _same_relation(asked, given, algebra)
    if asked.kind == "leaf" and given.kind == "list" and given.form != ",":
        return all(_same(asked, item, algebra) for item in given.items)  # 1/2 or 0.5 is one answer
    return _same_shape(_plain(asked), _plain(given), algebra)


def _same_shape(asked: Node, given: Node, algebra: Algebra) -> bool:
    kinds = {asked.kind, given.kind}
    if kinds == {"list"} and _in_order(asked, given):
        return _same_in_order(_values(asked), _values(given), algebra)
    if (kinds <= {"list", "set"} or kinds == {"union"}) and _same_unordered(asked, given, algebra):
        return True
    if kinds == {"tuple"}:
        return _same_brackets(asked, given) and _same_in_order(asked.items, given.items, algebra)
    if kinds == {"list", "tuple"} and not _describes_set(asked if asked.kind == "list" else given):
        # Brackets forgotten on one side: then the order is all that tells a tuple. [1, 2] alone is an interval.
        form = asked.form if asked.kind == "tuple" else given.form
        is_point = form == "()" or (form == "[]" and len(asked.items) > 2)
        return is_point and _same_in_order(_values(asked), _values(given), algebra)
    if kinds == {"matrix"}:
        return asked.form == given.form and _same_in_order(asked.items, given.items, algebra)
    if kinds == {"matrix", "tuple"} and "tuple" in {item.kind for item in asked.items + given.items}:
        asked, given = _as_matrix(asked), _as_matrix(given)  # [[1, 2], [3, 4]]
        return asked.form == given.form and _same_in_order(asked.items, given.items, algebra)
    if kinds == {"matrix", "tuple"}:  # a vector as a column, a row or in brackets
        table, vector = (asked, given) if asked.kind == "matrix" else (given, asked)
        is_vector = table.form in ("1", str(len(table.items)))
        return is_vector and vector.form in ("()", "[]") and _same_in_order(asked.items, given.items, algebra)
    if kinds == {"cases"}:
        return _same_unordered(asked, given, algebra)
    if kinds in ({"conditional"}, {"described"}):
        return _same_in_order(asked.items, given.items, algebra)
    if _describes_set(asked) and _describes_set(given):
        return _same_sets(asked, given, algebra)
    if (
        kinds <= {"matrix", "tuple", "leaf"}
        and "leaf" in kinds
        and _VECTORS.intersection(asked.tokens + given.tokens)
    ):
        return algebra.equal(reference_expression(asked.tokens), parse(given.tokens))
    asked, given = _quotient(asked), _quotient(given)
    return asked.kind == given.kind == "leaf" and same_leaf(asked, given, algebra)


def _plain(node: Node) -> Node:
    """A set or list of one value is that value."""
    is_one = len(node.items) == 1 and (
        node.kind in ("set", "list") or (node.kind == "tuple" and not letters(node.tokens))
    )
    return node.items[0] if is_one and not _describes_set(node.items[0]) else node


def _as_matrix(node: Node) -> Node:
    if node.kind == "matrix" or len({(row.kind, len(row.items)) for row in node.items}) != 1:
        return node
    cells = tuple(cell for row in node.items for cell in row.items)
    return Node("matrix", node.tokens, cells, form=str(len(node.items[0].items)))


def _quotient(node: Node) -> Node:
    """A ratio 3:4 as the fraction 3/4, for where a number stands on the other side. Two ratios (or times) are compared as they are."""
    if node.kind != "tuple" or node.form != ":" or len(node.items) != 2:
        return node
    top, bottom = node.items
    return Node("leaf", ("\\frac", "{", *top.tokens, "}", "{", *bottom.tokens, "}"))


def _same_brackets(asked: Node, given: Node) -> bool:
    """Round and square brackets are the same around a vector of three or more, but not around an interval or a point."""
    return asked.form == given.form or (len(asked.items) > 2 and {asked.form, given.form} == {"()", "[]"})


def _describes_set(node: Node) -> bool:
    if node.kind in ("union", "intersection", "difference", "set") or (
        node.kind == "tuple" and node.form != ":"
    ):
        return True
    if node.kind == "relation":
        return not {*ORDER, "\\ne", "\\in", "\\notin"}.isdisjoint(node.operators)
    if node.kind == "list":
        return any(map(_describes_set, node.items))
    return _phrase(node) in ("\\mathbb{R}", "\\emptyset") or node.tokens[0] == "\\mathbb{R}"


def _same_sets(asked: Node, given: Node, algebra: Algebra) -> bool:
    """Whether both describe one set, of the same variable where both name one."""
    names, others = _variables(asked), _variables(given)
    if len(names) > 1 or len(others) > 1 or (names and others and names != others):
        return False
    return _describes_set(asked) and _describes_set(given) and algebra.sets(asked, given)


def _variables(node: Node) -> set[Tokens]:
    if node.kind == "list":
        return set().union(*map(_variables, node.items))
    name = _variable(node) if node.kind == "relation" else None
    return {name} if name is not None else set()


# --- parts and their order ---


def _same_in_order(asked: Sequence[Node], given: Sequence[Node], algebra: Algebra) -> bool:
    return len(asked) == len(given) and all(
        _same(a, g, algebra, in_list=True) for a, g in zip(asked, given, strict=True)
    )


def _same_unordered(asked: Node, given: Node, algebra: Algebra) -> bool:
    """Every item has its own partner; in a set, any partner. Equality is transitive, so taking the first partner is safe."""
    left = list(given.items)
    if asked.kind == given.kind == "set":
        return all(any(_same(a, g, algebra) for g in given.items) for a in asked.items) and all(
            any(_same(a, g, algebra) for a in asked.items) for g in given.items
        )
    # An answer that is listed twice is no other answer.
    if len(left) > len(asked.items) > 1 and not _repeats(asked, algebra):
        left = [
            item
            for at, item in enumerate(left)
            if not any(_same(item, other, algebra) for other in left[:at])
        ]
    if len(asked.items) != len(left):
        return False
    for item in asked.items:
        partner = next((i for i, other in enumerate(left) if _same(item, other, algebra, in_list=True)), None)
        if partner is None:
            return False
        del left[partner]
    return True


def _repeats(node: Node, algebra: Algebra) -> bool:
    return any(_same(item, other, algebra) for at, item in enumerate(node.items) for other in node.items[:at])


def _in_order(asked: Node, given: Node) -> bool:
    """Whether one list names its values (x = 1, y = 2) and the other does not: then the order tells which is which."""
    return (_values(asked) is asked.items) != (_values(given) is given.items) and all(
        item.kind != "relation"
        for node in (asked, given)
        if _values(node) is node.items
        for item in node.items
    )


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


# --- words, residues, families ---


def _phrase(node: Node) -> str:
    words = [token for token in (node.whole or node.tokens) if word_of(token) not in _FILLERS]
    plain = plain_words(replace(node, tokens=tuple(words), whole=()))
    return _SAME_WORDS.get(plain, plain)


def _same_words(asked: Node, given: Node) -> bool:
    one, other = _phrase(asked), _phrase(given)
    if one in _OPPOSITES and given.tokens[1:2] == (",",):  # "Yes, it converges"
        words = [word_of(token) for token in given.tokens]
        return words[0] == one and not {_OPPOSITES[one], *_DOUBTS}.intersection(words[1:])
    return one == other != "" or plain_words(asked) == plain_words(given) != ""


def _as_residue(tokens: Tokens) -> Tokens:
    return tuple("\\mod" if token == "\\bmod" else token for token in tokens)


def _same_residues(asked: Node, given: Node, algebra: Algebra) -> bool:
    r"""5 \pmod 7: the modulus may be left out; where both have it, 12 \pmod 7 is the same."""
    if asked.kind != given.kind:
        value, other = (asked.items[0], given) if asked.kind == "residue" else (asked, given.items[0])
        return _same(_last(value), _last(other), algebra)
    (one, modulus), (other, modulus_given) = asked.items, given.items
    named = one.kind == other.kind == "relation"
    if not _same(modulus, modulus_given, algebra) or (named and not _same_name(one.items[0], other.items[0])):
        return False
    leaves = [_last(node) for node in (one, other)]
    values = [exact_value(parse(x.tokens), QUICK_BITS) if x.kind == "leaf" else None for x in leaves]
    divisor = exact_value(parse(modulus.tokens), QUICK_BITS) if modulus.kind == "leaf" else None
    if divisor and values[0] is not None and values[1] is not None:
        return (values[0] - values[1]) % divisor == 0
    return _same(_last(one), _last(other), algebra)


def _last(node: Node) -> Node:
    return node.items[-1] if node.kind == "relation" else node


def _same_families(asked: Node, given: Node, algebra: Algebra) -> bool:
    r"""\frac{\pi}{4} + k\pi, k \in \mathbb{Z}: the parameter may have any name, and the clause may be left out."""
    one, other = asked.ranges, given.ranges
    if one and other and [s for _, s in one] != [s for _, s in other]:
        return False
    if len(one) == len(other) == 1 and one != other:
        ours, theirs = one[0][0], other[0][0]
        given = read(tuple(ours if token == theirs else token for token in given.tokens))
    asked, given = replace(asked, ranges=()), replace(given, ranges=())
    if _same(asked, given, algebra):
        return True
    if not one or one[0][1] != "Z" or len(one) > 1:
        return False
    listed_items = [node.items if node.kind in ("list", "set") else [node] for node in (asked, given)]
    members = [[_last(item) for item in items] for items in listed_items]
    if any(item.kind != "leaf" for part in members for item in part):
        return False
    left, right = ([parse(item.tokens) for item in part] for part in members)
    return algebra.families(left, right, one[0][0])


# --- relations ---


def _same_relation(asked: Node, given: Node, algebra: Algebra) -> bool:
    if asked.kind == "relation" and given.kind == "relation":
        return _same_relations(asked, given, algebra)
    span = _interval(given if given.kind == "relation" else asked)
    if span is not None:
        return _same(asked, span, algebra) if given.kind == "relation" else _same(span, given, algebra)
    if _describes_set(asked) and _describes_set(given):
        return _same_sets(asked, given, algebra)
    if given.kind == "relation":
        return _answers_with_name(asked, given, algebra)
    if asked.operators[-1] == "\\approx":  # the reference states a value and its rounding
        return any(_same(side, given, algebra) for side in asked.items if not is_name(side))
    # "x = 5" is asked and "5" is given: the name may be left out. Only a name, or a quantity whose value is the answer (AB + CD = 5);
    # 2x + z = 1 is an equation, and 1 does not answer it.
    if set(asked.operators) == {"="} or asked.operators == ("\\in",):
        left, right = asked.items[0], asked.items[-1]
        is_quantity = letters(left.tokens) and not letters(right.tokens) and not re.search(r"\d", left.text)
        return (is_name(left) or is_quantity) and _same(right, given, algebra)
    return False


def _answers_with_name(asked: Node, given: Node, algebra: Algebra) -> bool:
    r"""x = 5, x = 2 + 3 = 5, 2 + 3 = 5, \frac{1}{3} \approx 0.33 where a value is asked."""
    sides = list(given.items)
    if set(given.operators) <= {"=", "\\equiv"}:
        if is_name(sides[0]) or _TASKS.intersection(sides[0].tokens) or _is_quantity(sides[0], asked):
            sides = sides[1:]
        elif is_name(sides[-1]):  # 5 = x
            sides.pop()
        # Every side that is left must be the value: "x = 3 = 5" is not an answer.
        return (
            bool(sides)
            and not _TASKS.intersection(sides[-1].tokens)
            and all(_same(asked, side, algebra) for side in sides)
        )
    if given.operators[-1] == "\\approx" and set(given.operators[:-1]) <= {"="}:
        rounded = sides.pop()
        exact = [side for side in sides if not is_name(side)]
        if not exact:  # x \approx 3.14
            return _same(asked, rounded, algebra)
        # Both may be given, but they must be one value: "3 \approx 4" is two answers.
        if not all(is_rounding(side, rounded, algebra) for side in exact):
            return False
        return all(_same(asked, side, algebra) for side in exact) or _same(asked, rounded, algebra)
    return False


def _is_quantity(side: Node, asked: Node) -> bool:
    r"""Whether an equation's left side may be what is asked for: a + b, AB^2, \sin x. Not 2x or x + 1: there x is still unknown."""
    try:
        expression = parse(side.tokens) if side.kind == "leaf" else ()
    except UnreadableAnswer:  # \dim V, |\{1, 2\}|
        return True
    if not letters(side.tokens) or letters(asked.tokens):
        return False
    is_linear = expression[:1] in (("*",), ("+",), ("/",)) and len(symbols(expression)) == 1
    return not (is_linear and all(part[0] in ("number", "symbol", "-") for part in expression[1:]))


def _same_relations(asked: Node, given: Node, algebra: Algebra) -> bool:
    spans = _interval(asked), _interval(given)
    if spans[0] is not None and spans[1] is not None:
        return _variable(asked) == _variable(given) and _same(spans[0], spans[1], algebra)
    if set(asked.operators) | set(given.operators) == {"="}:
        return _same_equations(asked, given, algebra)
    if asked.operators == given.operators and _same_in_order(asked.items, given.items, algebra):
        return True
    if len(asked.items) == len(given.items) == 2 and {*asked.operators, *given.operators} <= ORDER:
        left, right = _as_less(asked), _as_less(given)
        return left[1] == right[1] and algebra.inequalities(left[0], right[0])
    if asked.operators == given.operators == ("\\ne",):
        return algebra.equations(_sides(asked), _sides(given))
    if _describes_set(asked) and _describes_set(given):
        return _same_sets(asked, given, algebra)
    if given.operators[-1] == "\\approx" and asked.operators == ("=",):  # x = \sqrt{2} \approx 1.41
        same_name = given.items[0].tokens == asked.items[0].tokens
        return same_name and _answers_with_name(asked.items[1], given, algebra)
    return False


def _same_equations(asked: Node, given: Node, algebra: Algebra) -> bool:
    name, value = asked.items[0], asked.items[-1]
    if is_name(name):
        for side, others in ((given.items[0], given.items[1:]), (given.items[-1], given.items[:-1])):
            if _same_name(name, side):
                return all(_same(value, other, algebra) for other in others)
        if not letters(value.tokens):
            # "x = 5" is asked: an equation that still has to be solved (2x = 10) restates the task.
            return False
    if len(asked.items) != 2 or len(given.items) != 2:
        return _same_in_order(asked.items, given.items, algebra)
    if any(item.kind != "leaf" for item in asked.items + given.items):
        turned = given.items[::-1]
        return any(_same_in_order(asked.items, items, algebra) for items in (given.items, turned))
    return algebra.equations(_sides(asked), _sides(given))


def _same_name(asked: Node, given: Node) -> bool:
    """Whether both name the same quantity; one solution of several may have a number: x_1 for x."""
    names = [_SAME_NAMES.get(node.text, node.text) for node in (asked, given)]
    if names[0] == names[1] or re.fullmatch(rf"{re.escape(names[0])}_\{{\d\}}", names[1]):
        return True
    try:
        return parse(asked.tokens) == parse(given.tokens)  # \Re(z) and \Re z
    except UnreadableAnswer:
        return False


def _sides(node: Node) -> Sides:
    return parse(node.items[0].tokens), parse(node.items[1].tokens)


def _as_less(node: Node) -> tuple[Sides, bool]:
    """The inequality as (smaller side, larger side) and whether it is strict."""
    left, right = _sides(node)
    operator = node.operators[0]
    return ((left, right) if operator in ("<", "\\le") else (right, left)), operator in ("<", ">")


def _variable(node: Node) -> Tokens | None:
    """What an inequality is about: x in 1 < x < 2 and in |x| < 3."""
    name = next((item.tokens for item in node.items if is_name(item)), None)
    return name[1:-1] if name and name[0] == name[-1] == "|" else name


def _interval(node: Node) -> Node | None:
    r"""x > 2, 1 < x \le 2 and x \in S as the interval or set they describe; None for any other relation."""
    if node.operators == ("\\in",) and is_name(node.items[0]):
        return node.items[1]
    if not set(node.operators) <= ORDER:
        return None
    items, operators = list(node.items), list(node.operators)
    named = [i for i, item in enumerate(items) if is_name(item)]
    if len(named) != 1 or any(letters(item.tokens) for i, item in enumerate(items) if i != named[0]):
        return None
    if items[named[0]].tokens[0] == "|":  # |x| < 3 is left to `sets`
        return None
    if operators[0] in (">", "\\ge"):  # turn it, so that it rises from left to right
        items.reverse()
        operators = [FLIPPED[operator] for operator in reversed(operators)]
    if not set(operators) <= {"<", "\\le"} or len(items) > 3:
        return None
    at = next(i for i, item in enumerate(items) if is_name(item))
    if len(items) == 3 and at != 1:
        return None
    low = items[at - 1] if at > 0 else read(("-", "\\infty"))
    high = items[at + 1] if at + 1 < len(items) else read(("\\infty",))
    opener = "[" if at > 0 and operators[at - 1] == "\\le" else "("
    closer = "]" if at < len(operators) and operators[at] == "\\le" else ")"
    tokens = (opener, *low.tokens, ",", *high.tokens, closer)
    return Node("tuple", tokens, (low, high), form=opener + closer)


# --- choices ---


def _without_label(given: Tokens, asked: Tokens) -> Tokens:
    """Of "(C) 12" the 12, where a number is asked for."""
    is_labelled = (
        len(given) > 3
        and (given[0], given[2]) == ("(", ")")
        and (word_of(given[1]) or given[1]).upper() in "ABCDE"
    )
    return given[3:] if is_labelled and given[3][0].isdigit() and not letters(asked) else given


def _same_choice(reference: str, prediction: str) -> bool:
    """A reference that is one letter is a choice: the prediction may repeat the text of the option behind it."""
    asked = choice_letter(reference)
    return asked is not None and len(reference) <= 20 and choice_letter(prediction) == asked
