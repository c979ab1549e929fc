"""Who has more than whom, and by how much: "Mia has 3 more stamps than Leo", "Leo has 3 fewer stamps than Mia"."""

from __future__ import annotations

from typing import NamedTuple

from .leaves import Judge
from .structure import read
from .tokens import Tokens, listed, word_of

_WORDS = {
    word: (words[0], sign)
    for words in (
        line.split()
        for line in """more / fewer less
older / younger
taller longer higher / shorter lower
heavier / lighter
faster quicker / slower
larger bigger / smaller
expensive dearer / cheaper
richer / poorer
warmer hotter / colder cooler
later after / earlier before
wider / narrower
deeper / shallower
farther further / closer nearer
ahead / behind
above / below""".splitlines()
    )
    for sign, side in ((1, words[: words.index("/")]), (-1, words[words.index("/") + 1 :]))
    for word in side
}
"""What is said of the larger one and of the smaller one."""
_VERBS = listed("is are was were has have had costs cost weighs weighed earns earned runs ran pays paid gets got")
_ARTICLES = listed("the an it does did")
_PARTS = listed("times half twice third quarter percent as")
_SIGNS = frozenset({"\\text{than}", "\\text{by}", "\\text{before}", "\\text{after}"})
"""One of them stands in every comparison."""
_LONGEST = 30


class _Comparison(NamedTuple):
    who: tuple[str, ...]
    whom: tuple[str, ...]
    quality: str
    sign: int
    amount: Tokens
    noun: tuple[str, ...]


def same_comparison(asked: Tokens, given: Tokens, by: Judge) -> bool | None:
    """Whether both compare the same two with the same result; None where they are no comparisons."""
    if _SIGNS.isdisjoint(asked) and _SIGNS.isdisjoint(given):
        return None
    one, other = _comparison(asked), _comparison(given)
    if one is None or other is None:
        return None
    if (
        one.quality != other.quality
        or (one.noun and other.noun and one.noun != other.noun)
        or bool(one.amount) != bool(other.amount)
    ):
        return False
    if one.sign == other.sign:
        is_same = one.who == other.who and (one.whom == other.whom or () in (one.whom, other.whom))
    else:  # 20 % more is not 20 % less the other way round
        is_same = one.whom == other.who != () != one.who == other.whom and "%" not in one.amount
        is_same = is_same and _PARTS.isdisjoint(map(word_of, one.amount + other.amount))
    return is_same and (not one.amount or by.same(read(one.amount), read(other.amount)))


def _comparison(tokens: Tokens) -> _Comparison | None:
    words = [word_of(token) for token in tokens]
    at = next((at for at, word in enumerate(words) if word in _WORDS), -1)
    if at < 0 or len(words) > _LONGEST or "not" in words:
        return None
    if words[at] in ("before", "after"):  # 15 minutes before Leo
        return _apart(tokens, words, at)
    than, by = (words.index(word, at) if word in words[at:] else len(words) for word in ("than", "by"))
    verb = next((n for n, word in enumerate(words[:at]) if word in _VERBS), -1)
    quality, sign = _WORDS[words[at]]
    before, noun = tokens[verb + 1 : at], words[at + 1 : min(by, than)]
    if words[at] in ("more", "less") and noun == ["expensive"]:
        quality, noun = "expensive", []
    amount = before or tokens[by + 1 : than if than > by else len(tokens)]
    who, whom = words[: max(verb, 0)], words[than + 1 : by if by > than else len(words)]
    is_alone = than == by == len(words) and verb < 0 and not before
    if is_alone or not all(who + whom + noun) or (before and by < len(words)):
        return None
    if whom and whom[-1] in _VERBS:  # than Leo has
        whom.pop()
    if noun and whom and not who:  # 12 more boys than girls
        who, noun = noun, []
    one, other = _names(who), _names(whom)
    return _Comparison(one, other, quality, sign, amount, tuple(noun))


def _apart(tokens: Tokens, words: list[str], at: int) -> _Comparison | None:
    """Train A arrives 15 minutes before train B."""
    start = next((n for n, word in enumerate(words[:at]) if not word), 0)
    who, whom = words[:start], words[at + 1 :]
    quality, sign = _WORDS[words[at]]
    return _Comparison(_names(who), _names(whom), quality, sign, tokens[start:at], ()) if who and all(whom) else None


def _names(words: list[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in _ARTICLES)
