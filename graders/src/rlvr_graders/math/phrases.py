r"""What is said around an answer: before it ("the answer is"), behind it ("is the answer", "for all x"), and in between.

Everything here takes words off that say nothing about the value. A word that might ("not", "or", "at least") stays, and the answer
with it is then another one.
"""

from __future__ import annotations

import re
from itertools import pairwise

from .measures import UNITS
from .numerals import NUMBERS, in_digits
from .sayings import as_formula
from .tokens import MAX_ITEMS, Tokens, bare, filled, is_word, last_bracket, listed, split, word_of
from .units import DIRECTIONS

_LEADING_SIGNS = frozenset({"+", "\\approx", "\\Rightarrow", "=", ":"})
_LABELS = listed("answer result solution")
_EMPTY_WORDS = _LABELS | listed(
    "the a an is are about approximately approx roughly final exactly total of only each so thus hence therefore we get have obtain "
    "unique "
    "exact value equals equal correct it ans our my for when if ratio odds"
)
_VERBS = listed(
    "is are equals was be at on has have had takes took costs cost needs needed gets got makes made earns earned sold bought gives "
    "pay pays paid spend spends spent save saves saved weighs lasts lasted receive receives received owes owe eats ate reads read runs "
    "ran "
    "walks walked drives drove travels traveled remains contains holds produces charges collects collected"
)
_BECOMES = listed("converges tends approaches sums simplifies reduces evaluates amounts comes adds equal")
_NOUNS = listed(
    "point interval set line pair vector matrix function equation number value probability vertex center slope range domain "
    "focus foci vertices eigenvalue eigenvalues"
)
_DENIALS = listed(
    "not isn't aren't never no neither nor or either maybe perhaps possibly probably likely unlikely if unless except than between "
    "cannot wrong incorrect false depends depending undefined half twice"
)
_SO = listed("so thus hence therefore")
_REASONS = frozenset({"\\text{since}", "\\text{because}"})
_VERDICTS = listed("yes true because since")
"""What follows them is a reason."""
_SUCH = listed("such that with where satisfying for which")
_VICTORIES = tuple(
    tuple(end.split())
    for end in (
        "always wins",
        "wins",
        "wins the game",
        "will win",
        "will always win",
        "won",
        "has a winning strategy",
        "is the winner",
    )
)
COMPARED = {
    tuple(said.split()): sign
    for sign, phrases in (
        ("\\ge", ("greater than or equal to", "at least", "no less than", "not less than", "no fewer than")),
        (
            "\\le",
            (
                "less than or equal to",
                "at most",
                "no more than",
                "not more than",
                "no greater than",
                "not greater than",
            ),
        ),
        (">", ("greater than", "more than", "strictly greater than", "strictly more than")),
        ("<", ("less than", "strictly less than", "fewer than")),
    )
    for said in phrases
}
_LONGEST_COMPARISON = 6
_DIRECTIONS = re.compile(
    r"(increase|decrease|profit|loss|gain)[sd]?|(up|down|rise|drop|fall|decline|growth|reduction)s?"
)
_LOSING = {
    **dict.fromkeys(("lose", "loses", "lost"), "\\text{loss}"),
    **dict.fromkeys(("gain", "gains", "gained"), "\\text{gain}"),
}
_NUMBERS_OF_ALL = listed("real reals number numbers values")
_ALL_REALS = _NUMBERS_OF_ALL | listed("all the any every that are which is")
_BOUNDING = frozenset({"\\ne", "<", ">", "\\le", "\\ge"})
_ORDER = (("<",), (">",), ("\\le",), ("\\ge",))
_YEAR = listed("in the year")
_STATEMENTS = listed("statements statement options choices parts both only")
_ADJECTIVES = listed(
    "the a an maximum minimum max min local absolute global greatest least largest smallest "
    "open closed half-open ordered unique only required desired straight"
)
_NOTES = listed(
    "since because approximately approx rounded reject rejecting discard discarding ignoring excluding as attained achieved "
    "reached double triple repeated multiplicity"
)
_REJECTED = listed(
    "rejected reject discarded discard extraneous invalid excluded ignored not cannot doesn't isn't can't"
)
_TIMES = {"single": 1, "one": 1, "double": 2, "twice": 2, "two": 2, "triple": 3, "three": 3}
_MULTIPLICITY = frozenset(f"\\text{{{word}}}" for word in ("multiplicity", "double", "triple", "twice"))
_OF_MULTIPLICITY = frozenset(_TIMES) | listed("( ) with of algebraic multiplicity root eigenvalue a")
_MOST_TIMES, _LONGEST_LIST = 64, 60
_NOT = listed("not cannot doesn't isn't can't")
_KEPT = listed("accepted accept valid kept keep ok")
_OTHERWISE = _DENIALS | listed(
    "if when where for only assuming provided given with mod base plus minus times more less fewer short true right added taken and "
    "also but "
    "this that it which what or"
)
"""Words that a mere reason in brackets has not."""
_AGAIN = listed("or i e ie that is which equals equivalently equivalent to namely meaning")
_ROUNDED = listed("approximately approx about roughly")
_NEXT_STEPS = frozenset({"\\Rightarrow", "\\iff", "\\Leftrightarrow"})
_CONDITIONS = frozenset(
    {"\\forall", *(f"\\text{{{word}}}" for word in ("where", "for", "with", "when", "if", "given"))}
)
# A condition in these words alone says nothing that the answer itself does not: "for all real x", "where k is an integer".
_QUANTIFIERS = {
    **dict.fromkeys(listed("where for with all any every each some is are be an a the and"), ""),
    **dict.fromkeys(listed("arbitrary constant constants fixed number numbers"), ""),
    **dict.fromkeys(listed("integer integers"), "Z"),
    **dict.fromkeys(listed("real reals"), "R"),
    **dict.fromkeys(listed("nonnegative non-negative"), "N0"),
    "natural": "N",
    "positive": "N1",
    "complex": "C",
}

_COUNTED = {"N0": "0,1,2,3,4,5", "N1": "1,2,3,4,5,6", "Z": "0,\\pm1,\\pm2,\\pm3"}
_NUMBERS = {
    "\\mathbb{Z}^{+}": "N1", "\\mathbb{Z}_{>0}": "N1", "\\mathbb{N}^{+}": "N1", "\\mathbb{N}^{*}": "N1", "\\mathbb{Z}_{\\ge0}": "N0",
    "\\mathbb{N}_{0}": "N0", "\\mathbb{Z}_{\\ge1}": "N1",
}  # fmt: skip

Ranges = tuple[tuple[str, str], ...]
"""The number set that each parameter runs through: (("k", "Z"),)."""


_BETWEEN = frozenset({",", ";", "\\text{and}", "\\text{or}"})
_SAYING_NOTHING = _EMPTY_WORDS | _VERBS | _BECOMES | _DENIALS | _QUANTIFIERS.keys()
_SAYING_NOTHING |= _NOUNS - listed("slope range domain vertex center focus foci vertices")
_SAYING_NOTHING |= _ADJECTIVES - listed("maximum minimum max min")
_SAYING_NOTHING |= {word for said in COMPARED for word in said}
_SAYING_NOTHING |= _LOSING.keys() | listed("loss gain profit")
_SAYING_NOTHING |= listed("he she it they we there to by in now then will must diverges")
_FULL = {"max": "maximum", "min": "minimum"}
_SPEAKING = frozenset({"\\dots", "\\nmid", "\\mid", "\\approx", "\\in", "\\to", "\\ne", *_NEXT_STEPS, *_CONDITIONS})


def subject(tokens: Tokens) -> frozenset[str]:
    """What is said of a value before it, in the singular: {slope} of "the slope is 2"; nothing of a list or where it is part of it."""
    end = next((at for at, token in enumerate(tokens) if not is_word(token)), len(tokens))
    if not 0 < end < len(tokens) or not _BETWEEN.isdisjoint(tokens) or as_formula(tokens) != tokens:
        return frozenset()
    words = {word_of(token) for token in tokens[:end]}
    return frozenset(_FULL.get(word, word.removesuffix("s")) for word in words - _SAYING_NOTHING)


def speaks(tokens: Tokens) -> bool:
    """Whether anything may be said around the answer: most answers are a formula alone."""
    return (
        tokens[0] in _LEADING_SIGNS
        or not _SPEAKING.isdisjoint(tokens)
        or (tokens[-1] == ")" and "=" in tokens)
        or any(token.startswith("\\text{") for token in tokens)
    )


def plain_statement(tokens: Tokens) -> Tokens:
    """The answer without what is said before and behind it."""
    for reading in (_directed, _compared, _without_signature, _of_choices, _approximation, _last_step):
        tokens = reading(tokens)
    return _without_note(_without_tail(_without_lead(tokens)))


def accepted(tokens: Tokens) -> Tokens:
    """Of "x = 5 or x = -2 (rejected)" what is not rejected."""
    if "(" not in tokens or _BETWEEN.isdisjoint(tokens) or _REJECTED.isdisjoint(map(word_of, tokens)):
        return tokens
    parts = filled(tokens, _BETWEEN)
    notes = [_note(part) for part in parts]
    kept = [
        part[: last_bracket(part)] if note <= _KEPT and note else part
        for part, note in zip(parts, notes, strict=True)
        if _REJECTED.isdisjoint(note) or (note & _NOT and note & (_REJECTED - _NOT))  # not rejected
    ]
    if not 0 < len(kept) < len(parts):
        return tokens
    return tuple(token for part in kept for token in (",", *part))[1:]


def each_repeated(tokens: Tokens) -> Tokens:
    """Of "2 (multiplicity 2), 5" each value as often as it counts: 2, 2, 5."""
    if _MULTIPLICITY.isdisjoint(tokens) or len(tokens) > _LONGEST_LIST:
        return tokens
    parts: list[Tokens] = []
    for part in filled(tokens, _BETWEEN):
        at = next((at for at, token in enumerate(part) if at and (token == "(" or is_word(token))), len(part))
        note = [word_of(token) or token for token in part[at:]]
        counts = [int(word) if word.isdigit() else _TIMES[word] for word in note if word.isdigit() or word in _TIMES]
        if note and (
            len(counts) != 1 or not 0 < counts[0] <= _MOST_TIMES or not {*note} <= _OF_MULTIPLICITY | {str(counts[0])}
        ):
            return tokens
        parts += [part[:at]] * (counts[0] if counts else 1)
    return tuple(token for part in parts for token in (",", *part))[1:] if len(parts) <= MAX_ITEMS else tokens


def _note(part: Tokens) -> set[str]:
    """The words of the bracket that a part ends with, where it holds nothing else."""
    start = last_bracket(part)
    words = {word_of(token) for token in part[start + 1 : -1]} if start else set()
    return set() if "" in words else words


def _directed(tokens: Tokens) -> Tokens:
    """A decrease of 20 % as 20 % decrease."""
    is_article = (
        len(tokens) > 2 and tokens[0] == "a" and tokens[1][0].isdigit() and is_word(tokens[-1])
    )  # a 15% decrease
    said = tokens[1:] if word_of(tokens[0]) in ("a", "an") or is_article else tokens
    tokens = said if is_article else tokens
    at = next((at for at, token in enumerate(said[:5]) if word_of(token) in ("of", "by")), 0)
    if at > 1 and all(map(is_word, said[:at])) and _DENIALS.isdisjoint(map(word_of, said[:at])):  # it decreases by 15%
        said = said[at - 1 :]
    if len(said) > 1 and said[-1] == "%" and said[1][0].isdigit() and word_of(said[0]) in ("up", "down"):
        return (*said[1:], said[0])
    if len(said) > 1 and word_of(said[0]) in _LOSING and not is_word(said[1]):  # loses \\$20
        return (*said[1:], _LOSING[word_of(said[0])])
    if len(said) < 3 or word_of(said[1]) not in ("of", "by"):
        return tokens
    direction = _DIRECTIONS.fullmatch(word_of(said[0]))
    is_change = direction and (direction.lastindex == 1 or "%" in said)
    return (*said[2:], f"\\text{{{direction[direction.lastindex or 0]}}}") if direction and is_change else tokens


def _compared(tokens: Tokens) -> Tokens:
    r"""x is at least 2 as x \ge 2, and at least 2 as \ge 2."""
    start = 2 if tokens[0].isalpha() and tokens[1:2] == ("\\text{is}",) else 0
    end = next((at for at, token in enumerate(tokens) if word_of(token) not in _ALL_REALS), 0)
    if _NUMBERS_OF_ALL.intersection(map(word_of, tokens[:end])) and _is_compared(tokens[end:]):
        tokens = tokens[end:]  # all real numbers at most 2
    words = tuple(word_of(token) for token in tokens[start : start + _LONGEST_COMPARISON])
    said = next((said for said in COMPARED if words[: len(said)] == said), ())
    return (*tokens[: start // 2], COMPARED[said], *tokens[start + len(said) :]) if said else tokens


def _is_compared(tokens: Tokens) -> bool:
    words = tuple(word_of(token) for token in tokens[:_LONGEST_COMPARISON])
    return tokens[0] in ("<", ">", "\\le", "\\ge") or any(words[: len(said)] == said for said in COMPARED)


def _without_signature(tokens: Tokens) -> Tokens:
    r"""f : \mathbb{R} \to \mathbb{R}, f(x) = 2x as f(x) = 2x."""
    if tokens[1:2] != (":",):
        return tokens
    head, *rest = split(tokens, {","})
    is_signature = "\\to" in head and len(rest) == 1 and "=" in rest[0]
    return bare(rest[0]) if is_signature else tokens


def without_victory(tokens: Tokens) -> Tokens:
    """Bob wins, Bob has a winning strategy, where Bob is asked for."""
    words = [word_of(token) for token in tokens]
    if not all(words):
        return tokens
    said = next((end for end in _VICTORIES if tuple(words[-len(end) :]) == end), ())
    return tokens[: len(tokens) - len(said)] or tokens


def _of_choices(tokens: Tokens) -> Tokens:
    """Of "Statements I and III only" I and III."""
    first, last = (word_of(tokens[at]) in _STATEMENTS for at in (0, -1))
    kept = tokens[first : len(tokens) - last]
    names = [word_of(token) or token.lower() for token in kept if token not in "(),."]
    is_list = names and all(name == "and" or (len(name) < 5 and not name.strip("ivxabcde")) for name in names)
    return kept if is_list else tokens


def _approximation(tokens: Tokens) -> Tokens:
    r"""x (\approx 0.83) and x \text{ or approximately } 0.83 as x \approx 0.83."""
    start = last_bracket(tokens)
    if start and tokens[start + 1] in ("\\approx", "=") and len(tokens) > start + 3:
        return (*tokens[:start], *tokens[start + 1 : -1])  # (= 0.375)
    if start and word_of(tokens[start + 1]) in _ROUNDED and tokens[start + 2][0].isdigit():
        return (*tokens[:start], "\\approx", *tokens[start + 2 : -1])
    for index in range(1, len(tokens) - 1):
        if word_of(tokens[index]) == "or" and word_of(tokens[index + 1]) in _ROUNDED:
            return (*tokens[:index], "\\approx", *tokens[index + 2 :])
    return tokens


def _last_step(tokens: Tokens) -> Tokens:
    r"""Of 2x = 10 \Rightarrow x = 5 the last statement: it is the answer."""
    value = bare(split(tokens, _REASONS)[0])
    if not all(map(is_word, value)) and len(split(value, _BETWEEN)) == 1:
        tokens = value  # 5, since x > 0
    words = [word_of(token) for token in tokens] if "\\text{answer}" in tokens else []
    for at in range(len(words) - 2, 0, -1):
        if words[at - 1 : at + 1] == ["answer", "is"] and not _DENIALS.intersection(words):
            return tokens[at + 1 :]  # f(2) = 5, so the answer is 5
    for at in range(len(tokens) - 2, 1, -1):
        if tokens[at - 1] == "," and word_of(tokens[at]) in _SO and _DENIALS.isdisjoint(map(word_of, tokens)):
            return tokens[at + 1 :]  # \\frac{100}{13}, so m + n = 113
    if _NEXT_STEPS.isdisjoint(tokens):
        return tokens
    steps = filled(tokens, _NEXT_STEPS)
    return steps[-1] if steps else tokens


def _without_lead(tokens: Tokens) -> Tokens:
    r"""Drops ``\text{The answer is}``, ``\text{The value of } x \text{ is}``, ``\approx`` and ``+`` from the front."""
    while len(tokens) > 1 and tokens[0] in _LEADING_SIGNS:
        tokens = bare(tokens[1:]) or tokens[-1:]
    words = [word_of(token) for token in tokens]
    if tokens[0] == "\\text{A}" and not words[1:2] > [""]:  # the choice, not the article
        return tokens
    said = 0
    for index, word in enumerate(words):
        becomes = word == "to" and index and words[index - 1] in _BECOMES
        if word in _VERBS or becomes or (tokens[index] == ":" and words[index - 1]):
            said = index + 1
    # x is 5; the value of x is 5
    named = (said == 2 and tokens[0].isalpha()) or (words[0] and tokens[0] not in _CONDITIONS)
    is_product = any(a[0].isdigit() and b.isalpha() for a, b in pairwise(tokens[:said]))  # 2x is 5
    is_placed = words[said - 1] == "at" and any(token[0].isdigit() for token in tokens[:said])  # maximum 5 at x = 1
    is_parity = 0 < said < len(tokens) and words[said] in ("even", "odd") and "function" not in words[:said]
    if (
        named
        and 0 < said < len(tokens)
        and not (is_parity or is_product or is_placed)
        and not set(words[:said]) & (_DENIALS | _VERDICTS)
    ):
        return _without_lead(bare(tokens[said:]) or tokens[-1:])
    end = next((index for index, word in enumerate(words) if not word or word in NUMBERS), len(tokens))
    is_label = end < len(tokens) and tokens[end] == "=" and words[end - 1] in _LABELS
    is_noun = bool(end) and words[end - 1] in _NOUNS and set(words[: end - 1]) <= _ADJECTIVES
    is_year = "year" in words[:end] or (end == 1 and len(tokens) == 2 and len(tokens[1]) == 4)
    is_noun |= is_year and set(words[:end]) <= _YEAR
    if 0 < end < len(tokens) and tokens[end] != "_" and (is_label or is_noun or set(words[:end]) <= _EMPTY_WORDS):
        return _without_lead(bare(tokens[end:]) or tokens[-1:])
    return tokens


def _without_tail(tokens: Tokens) -> Tokens:
    """Drops "is the answer" from the end."""
    end = len(tokens)
    while end > 1 and is_word(tokens[end - 1]):
        end -= 1
    words = [word_of(token) for token in tokens[end:]]
    is_said = words[:1] == ["is"] and _LABELS.intersection(words) and _EMPTY_WORDS.issuperset(words)
    return tokens[:end] if is_said else tokens


def _without_note(tokens: Tokens) -> Tokens:
    """Drops "(since x > 0)" and "(x = -2 is rejected)" from the end; "(160 minutes)" there says the value once more."""
    if (
        tokens[-2:-1] == (",",)
        and word_of(tokens[-1]) in DIRECTIONS
        and tokens.count(",") == 1
        and not is_word(tokens[0])
    ):
        return (*tokens[:-2], tokens[-1])  # 6 N, repulsive
    start = last_bracket(tokens)
    if not start or start == len(tokens) - 2:
        return tokens
    words = [word_of(token) for token in tokens[start + 1 : -1]]
    said = next(
        (at for at, word in enumerate(words) if word not in _AGAIN and tokens[start + 1 + at] != ","), len(words)
    )
    is_list = not _BETWEEN.isdisjoint(tokens[:start])  # a reason behind it may say in which order
    again = in_digits(tokens[start + 1 + said : -1])
    is_number = bool(again) and not is_word(again[0]) and all(not is_word(t) or word_of(t) in UNITS for t in again)
    if all(words[said:]) and not is_list and is_number:  # 12 (one dozen)
        return (*tokens[:start], "\\text{or}", "{", *again, "}")
    is_rejected = not all(words) and not words[0] and not _REJECTED.isdisjoint(words)
    is_reason = not is_list and len(words) > 2 and all(words) and _OTHERWISE.isdisjoint(words)
    if is_rejected or is_reason or words[0] in _NOTES:
        return tokens[:start]
    in_words = is_word(tokens[0]) and in_digits(tokens[:start])[0].isdigit()  # twelve (12)
    is_beside_unit = said or words[-1] or tokens[-2] in ("%", "\\degree")
    is_again = words[said:] and not words[said] and (is_beside_unit or in_words)
    return (*tokens[:start], "\\text{or}", "{", *tokens[start + 1 + said : -1], "}") if is_again else tokens


def take_conditions(tokens: Tokens) -> tuple[Tokens, Ranges, list[Tokens]]:
    r"""The answer without its conditions ("for k > 0", k \in \mathbb{Z}), the number sets of its parameters, its other conditions."""
    multiples = tokens[tokens[0] == "\\text{all}" :]
    if multiples[:2] == ("\\text{multiples}", "\\text{of}") and multiples[2:] and multiples[-1].isdigit():
        return (multiples[-1], "k"), (("k", "Z"),), []
    tokens = _counted(tokens)
    start = next((at for at, token in enumerate(tokens) if not is_word(token)), 0)
    sets = {_QUANTIFIERS.get(word_of(token), "?") for token in tokens[:start]} - {""} or {"R"}
    sets = sets if start else set()
    behind = next((at for at in range(start + 1, len(tokens)) if word_of(tokens[at]) not in _SUCH), start)
    is_ordered = tokens[start].isalpha() and tokens[start + 1 : start + 2] in _ORDER
    if 0 < start < behind - 1 and tokens[start].isalpha() and tokens[start] in tokens[behind:]:
        start, is_ordered = behind, True  # all real x such that x > 2
    if len(sets) == 1 and is_ordered and not sets & {"?", "N", "N0", "N1"}:  # all integers n > 2
        names = {token for token in tokens[start:] if token.isalpha()}
        return tokens[start:], ((names.pop(), sets.pop()),) if len(names) == 1 else (), []
    body, *others = split(tokens, _CONDITIONS)
    if not bare(body):
        return tokens, (), []
    clauses = [clause for other in others for clause in filled(other, {",", "\\text{and}"})]
    items = split(body, {","})
    while len(items) > 1 and _parameter(bare(items[-1])) is not None:
        clauses.append(bare(items.pop()))
        body = tuple(token for item in items for token in (",", *item))[1:]
    while clauses and len(items) > 1 and len(name := bare(items[-1])) == 1 and name[0] in items[0]:
        items.pop()  # a, b \in \mathbb{R}
        body = tuple(token for item in items for token in (",", *item))[1:]
    start = last_bracket(bare(body))
    inside = bare(body)[start + 1 : -1]
    is_equation = "=" in body and bare(body)[start - 1].islower()  # y = 8x (x > 0), but P(x > 0)
    is_said = is_equation or not bare(body)[start - 1].isalpha()
    is_domain = start and is_said and not _BOUNDING.isdisjoint(inside)  # \\frac{a}{b} (b \\ne 0)
    if start and (is_domain or _parameter(inside) is not None):  # (k \\in \\mathbb{Z})
        clauses.append(inside)
        body = bare(body)[:start]
    parameters: list[tuple[str, str] | None] = []
    for clause in clauses:
        before = parameters[-1] if parameters else None
        is_another = before and before[0] and len(clause) == 1 and clause[0].isalpha()  # real constants m, c
        parameters.append((clause[0], before[1]) if before and is_another else _parameter(clause))
    ranges = tuple(sorted({parameter for parameter in parameters if parameter and parameter[0]}))
    others = [clause for clause, parameter in zip(clauses, parameters, strict=True) if parameter is None]
    return bare(body), ranges, others


def same_ranges(one: Ranges, other: Ranges) -> bool:
    """Whether the parameters run through the same numbers; whether N begins with 0 is left open."""
    sets = [[numbers for _, numbers in ranges] for ranges in (one, other)]
    return len(one) == len(other) and all(
        a == b or {a, b} == {"", "R"} or (a[:1] == b[:1] and "N" in (a, b)) for a, b in zip(*sets, strict=True)
    )


def _counted(tokens: Tokens) -> Tokens:
    r"""k = 1, 2, 3, \dots as k \in \mathbb{N1}."""
    if tokens[-1] != "\\dots" or "=" not in tokens:
        return tokens
    at = len(tokens) - tokens[::-1].index("=")
    first = "".join(tokens[at:-1]).rstrip(",")
    numbers = next((name for name, start in _COUNTED.items() if len(first) > 1 and start.startswith(first)), "")
    return (*tokens[: at - 1], "\\in", f"\\mathbb{{{numbers}}}") if numbers and at > 2 else tokens


def _parameter(clause: Tokens) -> tuple[str, str] | None:
    r"""k \in \mathbb{Z}, "k is an integer", "all real x" as (name, set); the name is empty where none is said. None for the rest."""
    names = [token for token in clause if not is_word(token)]
    words = [word_of(token) for token in clause if is_word(token)]
    if any(word not in _QUANTIFIERS for word in words):
        return None
    sets = [_QUANTIFIERS[word] for word in words if _QUANTIFIERS[word]]
    if len(names) > 2 and names[1] == "\\in" and names[2].startswith("\\mathbb{") and names[0].isalpha():
        numbers = names[2][8:-1] if len(names) == 3 else _NUMBERS.get("".join(names[2:]), "")
        return None if sets or not numbers else (names[0], numbers)
    if not words or len(names) > 1 or any(len(name) != 1 or not name.isalpha() for name in names):
        return None
    return (names[0] if names else "", next((s for s in sets if s[0] == "N"), sets[-1] if sets else ""))
