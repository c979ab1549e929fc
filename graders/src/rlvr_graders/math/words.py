"""Answers in words: which of them say the same."""

from __future__ import annotations

import re
from dataclasses import replace

from .measures import CASED
from .moments import MONTHS
from .structure import ALL_WORDS, EMPTY_WORDS, Node, plain_words
from .tokens import Tokens, is_word, listed, word_of

SAME_WORDS = {
    phrase: phrases[0]
    for phrases in (
        ("doesnotexist", "dne", "doesn'texist", "limitdoesnotexist", "nolimit",
         "undefined", "notdefined", "limitdne", "doesntexist", "nonexistent"),
        ("\\emptyset", "\\{\\}", *sorted(EMPTY_WORDS)),
        ("\\infty", "infinitelymany", "infinitelymanysolutions", "infinite", "infinity", "positiveinfinity", "plusinfinity"),
        ("-\\infty", "negativeinfinity", "minusinfinity"),
        ("divergent", "diverges", "seriesdiverges", "integraldiverges", "sequencediverges"),
        ("convergent", "converges", "seriesconverges", "integralconverges", "sequenceconverges"),
        ("absolutelyconvergent", "convergesabsolutely", "seriesconvergesabsolutely"),
        ("conditionallyconvergent", "convergesconditionally", "seriesconvergesconditionally"),
        ("\\mathbbn", "\\mathbbz^+", "allpositiveintegers", "positiveintegers", "anypositiveinteger", "everypositiveinteger",
          "allnaturalnumbers", "naturalnumbers"),
        ("yes", "true", "correct"),
        ("perfectsquares", "allperfectsquares", "everyperfectsquare", "anyperfectsquare", "perfectsquare", "squarenumbers"),
        *((way, f"monotonically{way}", f"monotone{way}", f"monotonic{way}") for way in ("increasing", "decreasing")),
        ("primes", "allprimes", "primenumbers", "everyprime", "anyprime"),
        ("impossible", "notpossible", "cannotbedone"),
        ("neither", "neitherevennorodd", "neitheroddnoreven"),
        ("cannotbedetermined", "can'tbedetermined", "notenoughinformation", "insufficientinformation"),
        ("noneofabove", "noneofthese"),
        ("notinvertible", "singular", "noninvertible", "non-invertible"),
        ("invertible", "nonsingular", "non-singular", "notsingular"),
        ("bijective", "bijection", "one-to-oneandonto", "injectiveandsurjective", "surjectiveandinjective"),
        ("notcontinuous", "discontinuous"),
        ("notbounded", "unbounded"),
        ("notindependent", "dependent"),
        ("uncountable", "uncountablyinfinite", "notcountable"),
        *((f"local{end}", f"relative{end}") for end in ("maximum", "minimum")),
        *((f"{sign}lyskewed", f"skewed{side}", f"skewedto{side}", f"{side}-skewed", f"{side}skewed", f"{sign}skew", f"{side}skew")
          for sign, side in (("positive", "right"), ("negative", "left"))),
        ("notfair", "unfair"),
        ("notrational", "irrational"),
        ("linearlydependent", "notlinearlyindependent"),
        *((often, f"{often}true", f"{often}holds") for often in ("always", "never", "sometimes")),
        *((f"{verb}s", verb, f"will{verb}", f"would{verb}") for verb in ("increase", "decrease")),
        ("unchanged", "doesnotchange", "doesn'tchange", "nochange", "remainssame", "stayssame", "remainsunchanged", "constant",
         "staysconstant"),
        ("rejectnullhypothesis", "rejecth_0", "rejecth0"),
        ("failtorejectnullhypothesis", "donotrejectnullhypothesis", "failtorejecth_0", "donotrejecth_0", "failtorejecth0"),
        ("left", "toleft", "leftward", "leftwards"),
        ("upward", "upwards", "up"),
        ("downward", "downwards", "down"),
        ("injective", "one-to-one", "one-one"),
        ("surjective", "onto"),
        ("right", "toright", "rightward", "rightwards", "right-angled", "rightangled", "right-angledtriangle"),
        ("\\mathbbq", "rationalnumbers", "rationals", "allrationals"),
        ("\\mathbbc", "complexnumbers", "allcomplex"),
        *((f"{start}{end}", f"{start}-{end}", start[0] + end[0]) for start in ("north", "south") for end in ("east", "west")),
        *((f"{day}day", day[:3], day[:4]) for day in ("mon", "tues", "wednes", "thurs", "fri", "satur", "sun")),
        *((month, month[:3], month[:4]) for month in MONTHS),
        ("no", "false", "incorrect"),
        ("\\mathbbz", "allintegers", "integers", "everyinteger"),
        ("\\mathbb{R}", *sorted(ALL_WORDS)),
        *(
            (name, *(f"{every}{sign}real{noun}" for every in ("", "all", "any", "every") for sign in signs.split()
                     for noun in ("s", "number", "numbers", "x", "value", "values")))
            for name, signs in (("\\mathbb{R}^{+}", "positive"), ("\\mathbb{R}^{-}", "negative"),
                                ("\\mathbb{R}^{*}", "nonzero non-zero"),
                                ("\\mathbb{R}_{\\ge0}", "nonnegative non-negative"))
        ),
    )
    for phrase in phrases
}  # fmt: skip
_TO_INFINITY = re.compile(
    r"^(?:(?:series|integral|sequence|limit)?(?:diverges|tends|goes|approaches)(?:to)?\+?(?=-?(?:\\infty|.*infinity)$)|\+(?=\\infty$))"
)
_OPPOSED = {
    word: (group, side)
    for group, sides in enumerate(
        line.split(" / ")
        for line in """minimum minimal minima least smallest / maximum maximal maxima greatest largest / saddle / inflection
increasing increases / decreasing decreases
older / younger
later / earlier
taller longer higher / shorter lower
faster / slower
local relative / global absolute
horizontal / vertical
convex / concave
clockwise / counterclockwise anticlockwise counter-clockwise
stable / unstable
single simple / double / triple
against / favor favour
parallel / perpendicular
odd / even
equal repeated coincident / distinct different unequal
north northern / south southern / east eastern / west western
left leftward leftwards / right rightward rightwards
up upward upwards / down downward downwards
above / below
inside inscribed / outside circumscribed
gain profit / loss
gmt utc / est / cst / mst / pst / cet / bst / ist / jst
sine / cosine / tangent
mean / median / mode
radius / diameter / circumference
area / perimeter / volume""".splitlines()
    )
    for side, names in enumerate(sides)
    for word in names.split()
}
"""Words that cannot both be said of one answer: the group, and the side in it."""
_COMPASS = listed("north south east west")
_BY_TEST = re.compile(r"(?<=.)by(?:the)?[a-z-]*(?:test|theorem|criterion|rule)$")
_FILLERS = listed("straight the a an it is are answer there they we on")
_GENOTYPE = re.compile(r"(?:([a-z])\1)+", re.IGNORECASE)
_TIMES = listed("am pm")
_OPPOSITES = {"yes": "no", "no": "yes"}
_TRUTHS = {"yes": "t", "no": "f", "T": "t", "F": "f", "Y": "t", "N": "f"}
_NOUNS = listed(
    "condition line lines circles group number integer one angle triangle function series sequence matrix graph "
    "polynomial geometry correlation congruence criterion"
)
"""What an adjective may leave out: isosceles, an isosceles triangle."""
_DOUBTS = listed("not but or maybe perhaps unless except however")


def phrase(node: Node) -> str:
    words = [token for token in (node.whole or node.tokens) if word_of(token) not in _FILLERS]
    words[-1:] = [re.sub(r"'s?\}$", "}", word) for word in words[-1:]]  # Evelyn's
    plain = plain_words(replace(node, tokens=tuple(words), whole=()))
    plain = (
        re.sub(r"(?<=.)exists?$", "", _BY_TEST.sub("", _TO_INFINITY.sub("", plain)))
        if plain not in SAME_WORDS
        else plain
    )
    if plain not in SAME_WORDS and plain.endswith(("integers", "numbers")):
        plain = plain.removeprefix("all")
    return SAME_WORDS.get(plain, plain)


def _plain(token: str) -> str:
    return SAME_WORDS.get(word_of(token), word_of(token))


def contradict(asked: Tokens, given: Tokens) -> bool:
    """Whether one says of its value what excludes what the other says: a minimum at 1, a maximum at 1; north of west, west of north."""
    words = [[word_of(token) for token in tokens if token[:2] == "\\t"] for tokens in (asked, given)]
    if not any(words[0]) or not any(words[1]):
        return False
    sides = [{_OPPOSED[word] for word in said if word in _OPPOSED} for said in words]
    groups = {group for group, _ in sides[0]} & {group for group, _ in sides[1]}
    ways = [[word for word in said if word in _COMPASS] for said in words]
    return any(not {side for side in sides[0] & sides[1] if side[0] == group} for group in groups) or (
        len(ways[0]) == 2 and ways[0] == ways[1][::-1]
    )


def truths(node: Node) -> str:
    """Of "true, false, true" and TFT the letters, whose order counts; nothing for any other answer."""
    if node.kind == "list":
        letters = [SAME_WORDS.get(phrase(item), phrase(item)) for item in node.items]
        return "".join(_TRUTHS.get(letter, "?") for letter in letters) if _TRUTHS.keys() >= {*letters} else ""
    if node.tokens[0] not in ("T", "F") and not is_word(node.tokens[0]):
        return ""
    text = "".join(word_of(token).upper() or token for token in node.tokens)
    return text.lower() if len(text) > 1 and not text.strip("TF") else ""


def _differ_in_case(asked: Tokens, given: Tokens) -> bool:
    """Aa and AA, mg and Mg: where capitals tell the words apart."""
    one, other = asked[0][6:-1], given[0][6:-1]
    if len(asked) != 1 or len(given) != 1 or one == other or one.lower() != other.lower() or one.lower() in _TIMES:
        return False
    units = CASED.get(one), CASED.get(other)
    return _GENOTYPE.fullmatch(one) is not None or (None not in units and units[0] != units[1])


def same_words(asked: Node, given: Node) -> bool:
    if _differ_in_case(asked.tokens, given.tokens):
        return False
    one, other = phrase(asked), phrase(given)
    if one == "divergent" and other in ("\\infty", "-\\infty") and "diverges" in plain_words(given):
        return True
    if one in _TRUTHS and other in _TRUTHS:
        return _TRUTHS[one] == _TRUTHS[other]
    if one in _OPPOSITES and given.tokens[1:2] == (",",):  # "Yes, it converges"
        words = [_plain(token) for token in given.tokens]
        words = words[: next((n for n, word in enumerate(words) if word in ("because", "since")), len(words))]
        doubts = {_OPPOSITES[one], *(_DOUBTS - {"not"} if one == "no" else _DOUBTS)}
        return words[0] == one and not doubts.intersection(words[1:])
    if _plain(asked.tokens[0]) in _OPPOSITES and asked.tokens[1:2] == (",",):  # "No, it diverges" is asked
        rest = phrase(replace(asked, tokens=asked.tokens[2:]))
        given_rest = given.tokens[2:] if given.tokens[1:2] == (",",) else ()
        if other == _plain(asked.tokens[0]) or other == rest:
            return True
        same_start = _plain(given.tokens[0]) == _plain(asked.tokens[0])
        return same_start and bool(given_rest) and phrase(replace(given, tokens=given_rest)) == rest
    for word, node in ((one, given), (other, asked)):
        *words, noun = node.tokens
        if word_of(noun) in _NOUNS and words and phrase(replace(node, tokens=tuple(words))) == word:
            return True
    said, answered = ([word for t in n.tokens if (word := word_of(t)) not in _FILLERS] for n in (asked, given))
    if said and answered and said[-1] == answered[-1] and said[-1] in _NOUNS and sorted(said) == sorted(answered):
        return True  # isosceles right triangle, right isosceles triangle
    if len(said) == len(answered) == 2 and said == answered[::-1] and any(word.endswith("ly") for word in said):
        return True  # externally tangent, tangent externally
    if "-" in one + other:  # first-order, first order
        one, other = (re.sub(r"(?<=[a-z])-(?=[a-z])", "", said) for said in (one, other))
    return one == other != "" or plain_words(asked) == plain_words(given) != ""
