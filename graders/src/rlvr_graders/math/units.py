"""Units and other words beside a value: which of them are one, which contradict each other, and which make it another value."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from .measures import BASES, CASED, COMPOUND, CURRENCIES, OFFSETS, SIGNS, UNITS, Measure
from .numerals import NUMBERS, PARTS, SCALES, in_digits
from .tokens import CLOSERS, OPENERS, Tokens, is_word, listed, word_of

_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
ORDINALS = listed("st nd rd th")
# Words that turn a value's meaning: two answers that differ in one of these are two answers.
_DIRECTIONS = listed(
    "north south east west left right up down above below before after am pm increase decrease more less fewer gain loss profit "
    "positive negative clockwise counterclockwise inside outside even odd bc ad "
    "january february march april may june july august september october november december "
    "monday tuesday wednesday thursday friday saturday sunday"
)
# Words that make a phrase more than a name for what is counted: with one of them it is never dropped from beside a value.
_STATEMENTS = listed(
    "is are was were be been being isn't aren't wasn't will would could should may might must can cannot can't has have had do does "
    "did not no non none never neither nor without except but however although though unless if when whether maybe perhaps possibly "
    "probably likely unlikely either or and other another else instead than to from through until till between plus minus times over "
    "divided multiplied modulo mod base factorial root twice double triple wrong incorrect false untrue true correct right-hand first "
    "least most maximum minimum greater smaller larger bigger infinitely undefined rejected reject "
    "rejects extraneous invalid discarded "
    "excluded omitted impossible negated reciprocal inverse inverses opposite halved doubled tripled missing off short below "
    "repeating recurring exclusive unknown unless rather reduced increased decreased"
)
# Words that may stand behind a value although they name nothing that is counted.
_HARMLESS = listed(
    "total leftover over altogether together all in left remain remains needed required remaining each every only old tall "
    "long wide high deep thick away ahead apart approximately approx exactly about answer o'clock gon sided per of the a an overall "
    "place position bc ad respectively more "
    "today daily weekly monthly annually yearly later ago th even odd north south east west up down above right "
    "before after am pm gain loss profit increase decrease positive clockwise counterclockwise inside outside"
)
_GENERAL = listed(
    "people persons ways things items objects pieces numbers values times units possibilities solutions combinations"
)
"""What may be said of anything that is counted."""
_TEMPERATURES = {
    "c": "celsius",
    "f": "fahrenheit",
    **{name: name for name in ("celsius", "fahrenheit", "kelvin")},
    "centigrade": "celsius",
}
_PLURALS = listed("people children men women sheep fish deer mice geese teeth dice cattle")
_CHANGES = {
    **dict.fromkeys(("up", "higher", "rise", "growth", "more", "increased"), "increase"),
    **dict.fromkeys(
        ("down", "lower", "drop", "fall", "decline", "reduction", "less", "fewer", "decreased", "reduced"), "decrease"
    ),
    "gain": "profit",
}
"""What is said of a percentage: in which direction it changes."""
_CHANGED = frozenset({*_CHANGES.values(), "loss"})
_SYNONYMS = {"anticlockwise": "counterclockwise", "counter-clockwise": "counterclockwise", "bce": "bc", "ce": "ad"}
_SYNONYMS |= {f"{way}ward{end}": way for way in ("up", "down", "left", "right") for end in ("", "s")}
_EACH = listed("a an each every")
_TRIGONOMETRY = frozenset({"\\sin", "\\cos", "\\tan", "\\cot", "\\sec", "\\csc", "\\cis"})
_OPERATORS = frozenset({"/", "+", "-", "\\cdot", "^", "_", "(", "[", "|"})
MAX_WORDS = 8
_NOTHING = Fraction(0)
_MONEY = frozenset(sign for sign, name in SIGNS.items() if name in CURRENCIES)
_POUNDS: set[Measure] = {(("pound", 1),), (("sterling", 1),)}


@dataclass(frozen=True)
class Unit:
    """What stands beside a value."""

    measure: Measure = ()
    """Canonical names with their powers, sorted: (("meter", 1), ("second", -2))."""
    words: Tokens = ()
    """Other words, in lower case: eggs, in total."""

    @property
    def is_percent(self) -> bool:
        return self.measure == (("%", 1),)

    @property
    def offset(self) -> Fraction:
        """What a temperature on a scale of its own needs: 273.15 for degrees Celsius."""
        is_scale = len(self.measure) == 1 == self.measure[0][1]
        return OFFSETS.get(self.measure[0][0], _NOTHING) if is_scale else _NOTHING

    def in_bases(self) -> tuple[Fraction, Measure]:
        """The factor and the base measures that the unit stands for: (1000/3600, length over time) for km/h."""
        factor, powers = Fraction(1), dict[str, int]()
        for name, power in self.measure:
            size, bases = BASES.get(name, (Fraction(1), ((name, 1),)))
            factor *= size**power
            for base, times in bases:
                powers[base] = powers.get(base, 0) + power * times
        return factor, tuple(sorted((base, power) for base, power in powers.items() if power))


NO_UNIT = Unit()


_SIZES = listed("long wide high deep thick")


def units_conflict(one: Unit, other: Unit, *, counts_matter: bool = False) -> bool:
    """Whether the units are of different kinds (5 cm, 5 s, 5 eggs), or words that turn the meaning differ (20 % more, 20 % less).

    What is said beside (in total) conflicts only where it tells the parts of a list apart (`counts_matter`), and a unit that one
    side leaves out never does.
    """
    if NO_UNIT in (one, other) or one == other:
        return False
    if one.is_percent and not one.words and other.is_percent and _CHANGED.issuperset(other.words):
        return False  # 20 % is asked, by which a price has changed
    if _DIRECTIONS & (set(one.words) ^ set(other.words)):
        return True
    if one.is_percent != other.is_percent and any(_counts(unit) for unit in (one, other) if not unit.measure):
        return True  # 60 people are not 60 %
    sizes = [{word.replace("tall", "high") for word in unit.words} & _SIZES for unit in (one, other)]
    if all(sizes) and sizes[0] != sizes[1]:
        return True  # 8 cm long, 8 cm wide
    if one.measure and other.measure:
        names = {name for name, _ in one.measure + other.measure}
        if {one.measure, other.measure} == _POUNDS:
            return False
        if "%" in {*dict(one.measure)} & {*dict(other.measure)} and (one.is_percent or other.is_percent):
            return False  # 5 % per year
        if "unit" in names:  # square units are not cubic ones; plain units are said of all of them
            powers = {sum(power for _, power in unit.measure) for unit in (one, other)}
            return len(powers) > 1 and 1 not in powers
        return one.in_bases()[1] != other.in_bases()[1]
    if counts_matter and one.words and other.words:
        return not set(one.words) & set(other.words)
    if _counts(one) and _counts(other):
        is_general = not (one.measure or other.measure or _GENERAL.isdisjoint(one.words + other.words))
        return not is_general and _nouns(one).isdisjoint(_nouns(other))
    return False


def _counts(unit: Unit) -> bool:
    return bool(unit.measure) or not _HARMLESS.issuperset(unit.words)


def _nouns(unit: Unit) -> set[str]:
    """What is measured or counted, in the singular."""
    names = {word.removesuffix("s") for word in unit.words if word not in _HARMLESS}
    return names | {name for name, _ in unit.measure}


def take_unit(tokens: Tokens) -> tuple[Tokens, Unit]:
    r"""Takes the unit off: ``5\text{ cm}^2``, ``50\%``, ``90^\circ``, ``\$18``, ``18\text{ eggs}``, ``2\text{ million}``."""
    currency: Measure = ()
    plain = tuple(token for token in tokens if token != "\\degree")
    if 0 < len(plain) < len(tokens) and not _TRIGONOMETRY.intersection(tokens) and not any(map(is_word, tokens)):
        return plain, Unit((("degree", 1),))  # 60^\circ, 180^\circ/3
    sign, rest = (tokens[:1], tokens[1:]) if tokens[0] == "-" else ((), tokens)
    if len(rest) > 1:
        money = SIGNS.get(rest[0]) or UNITS.get(word_of(rest[0]), "")
        if money in CURRENCIES:
            currency, tokens = ((money, 1),), (*sign, *rest[1:])
    if not _MONEY.isdisjoint(tokens) and len(tokens) > 3:
        tokens, currency = _of_money(tokens, currency)
    start = _tail(tokens)
    value, tail = tokens[:start], tokens[start:]
    if value[-1] == "\\cdot" and len(value) > 1:
        value = value[:-1]
    reading = _Reading(tail)
    if tail and "." in value[-1] and value[-1][-1].isdigit() and tail[0][6:-1] in ("repeating", "recurring"):
        return _repeated(value, tail)
    if not tail or value[-1] in _OPERATORS or not reading.is_unit(value):
        return tokens, Unit(currency)
    if reading.factor != 1:
        top, bottom = map(str, reading.factor.as_integer_ratio())
        value = ("\\frac", "{", "(", *value, ")", "\\cdot", top, "}", "{", bottom, "}")
    measure = {*currency, *((name, power) for name, power in reading.powers.items() if power)}
    return value, Unit(tuple(sorted(measure)), tuple(reading.words))


def _of_money(tokens: Tokens, currency: Measure) -> tuple[Tokens, Measure]:
    r"""Sums and multiples of money, \$400 + \$60 and 3 \cdot \$20, without the signs; a ratio of two amounts stays as it is."""
    signs = _MONEY.intersection(tokens)
    names = {*dict(currency), *(SIGNS[sign] for sign in signs)}
    many = len(currency) + sum(token in signs for token in tokens) > 1
    operators = {"\\cdot", "/", "\\frac", "^", "+", "-"}.intersection(tokens)
    if (
        len(names) == 1
        and many
        and operators in ({"/"}, {"\\frac"})
        and len(currency) + len([t for t in tokens if t in signs]) == 2
    ):
        return tuple(token for token in tokens if token not in signs), ()  # \$20 / \$40
    if len(names) > 1 or (many and not {"\\cdot", "/", "\\frac", "^"}.isdisjoint(tokens)):
        return tokens, currency
    return tuple(token for token in tokens if token not in signs), ((names.pop(), 1),)


def _repeated(value: Tokens, tail: Tokens) -> tuple[Tokens, Unit]:
    """0.3 repeating: the last digit where it stands there twice, otherwise all places."""
    whole, _, places = value[-1].partition(".")
    period = places[-1] if len(places) > 1 and places[-1] == places[-2] else places
    head = places[: len(places) - len(period)]
    repeated = (*value[:-1], f"{whole}.{head}", "\\overline", "{", period, "}")
    return take_unit((*repeated, *tail[1:])) if len(tail) > 1 else (repeated, NO_UNIT)


def compound(tokens: Tokens) -> tuple[Tokens, Unit] | None:
    """5 feet 6 inches, 2 hours and 15 minutes: the sum in the first unit. None where this is anything else."""
    if len(tokens) < 4 or not tokens[0][0].isdigit():
        return None
    if tokens[1::2] == ("'", "'") and tokens[4:] == ("'",):  # 5' 6''
        tokens = (tokens[0], "\\text{ft}", tokens[2], "\\text{in}")
    plain = [token for token in tokens if word_of(token) != "and" and token not in (",", " ")]
    if plain[-2:] == ["'", "'"] and "\\degree" in plain:
        plain[-2:] = ["\\text{arcsecond}"]
    marks = {"\\degree": "degree", "'": "arcminute"}
    names = [marks.get(t) or UNITS.get(t if t in ("h", "m", "s") else word_of(t), "") for t in plain[1::2]]
    if names[:1] == ["hour"]:
        names = ["minute" if name == "meter" else name for name in names]  # 2 h 15 m
    if len(plain) < 4 or len(plain) % 2 or not all(names) or not all(token[0].isdigit() for token in plain[::2]):
        return None
    units = [Unit(((name, 1),)) for name in names]
    factors = [unit.in_bases()[0] for unit in units]
    if len({unit.in_bases()[1] for unit in units}) > 1 or sorted(set(factors), reverse=True) != factors:
        return None
    total = sum((Fraction(n) * f for n, f in zip(plain[::2], factors, strict=True)), Fraction(0)) / factors[0]
    top, bottom = map(str, total.as_integer_ratio())
    return ("\\frac", "{", top, "}", "{", bottom, "}"), units[0]


def _tail(tokens: Tokens) -> int:
    """Where the words and signs at the end begin."""
    if tokens[-1] in SIGNS and len(tokens) > 1:
        return len(tokens) if tokens[-1] == "\\degree" else len(tokens) - 1
    depth = 0
    for index, token in enumerate(tokens):
        if token in OPENERS:
            depth += 1
        elif token in CLOSERS:
            depth -= 1
        elif index and (is_word(token) or (token in SIGNS and token != "%")):
            if depth == 1 and tokens[index - 1] == "(" and tokens[-1] == ")":  # 5 (approximately)
                depth, index = 0, index - 1
            while index > 1 and (
                tokens[index - 1] in SIGNS or (tokens[index - 1] == "/" and tokens[index - 2][0].isdigit())
            ):
                index -= 1  # 18/day
            return index if depth == 0 and index else len(tokens)
    return len(tokens)


class _Reading:
    """Reads the tokens behind a value as a unit: names with powers, a factor, and words that are none of these."""

    def __init__(self, tail: Tokens) -> None:
        self.tail = tail
        self.at = 0
        self.factor = Fraction(1)
        self.powers: dict[str, int] = {}
        self.words: list[str] = []
        self.last = ""
        """The name that a power behind it belongs to."""
        self.sign = self.power = self.group = 1
        """What waits for the next name: -1 behind "per", 2 behind "square"; and what holds for all names of a bracket."""

    def is_unit(self, value: Tokens) -> bool:
        """Whether the tokens name a unit or what is counted; not where they say anything else."""
        while self.at < len(self.tail):
            token = self.tail[self.at]
            self.at += 1
            if token == "^":
                known = self.exponent()
            elif token == "/":
                known, self.sign = True, -1
            elif token in ("(", ")"):
                known, self.group = True, self.sign if token == "(" else 1
                self.sign = self.group
            elif token in ("\\cdot", "."):
                known = True
            else:
                known = self.word(SIGNS.get(token) or (token[6:-1] if is_word(token) else ""))
            if not known:
                return False
        if "%" in self.powers:
            self.words = [_CHANGES.get(word, word) for word in self.words]
        return len(self.words) <= MAX_WORDS and self.are_known(value)

    def are_known(self, value: Tokens) -> bool:
        """Whether the words name what is counted (a plural, or anything for a part of one), or the value: 17 (seventeen)."""
        unknown = [word for word in self.words if word not in _HARMLESS | _PLURALS]
        if not unknown or (
            {part for word in unknown for part in word.split("-")} <= NUMBERS
            and in_digits(tuple(f"\\text{{{word}}}" for word in self.words)) == value
        ):
            return True
        plural = [n for n, word in enumerate(unknown) if word[-1:] == "s" and word[-2:] not in ("ss", "us", "is")]
        is_part = value == ("1",) or "\\frac" in value or "/" in value or any("." in token for token in value)
        behind = unknown[plural[-1] + 1 :] if plural else unknown
        said = any(len(word) > 5 and word.endswith(("ed", "ing", "ly", "less", "ive", "able")) for word in behind)
        return not said and (bool(plural) or bool(self.powers) or is_part)

    def exponent(self) -> bool:
        end = self.tail.index("}", self.at) if "}" in self.tail[self.at :] else self.at
        exponent = "".join(self.tail[self.at + 1 : end])
        self.at = end + 1
        return exponent.lstrip("-").isdigit() and len(exponent) <= 2 and self.raise_last(int(exponent))

    def raise_last(self, power: int) -> bool:
        if not self.last:
            return False
        self.powers[self.last] *= power
        return abs(self.powers[self.last]) < 100  # cm^2^2^2...: its factor has no end of digits

    def word(self, word: str) -> bool:
        lowered = _SYNONYMS.get(word.lower(), word.lower())
        following = self.tail[self.at] if self.at < len(self.tail) else ""
        if self.powers.keys() == {"%"} and not following:
            lowered = _CHANGES.get(lowered, lowered)  # 8 % reduced
        if following or "-" in lowered:  # light-years, nautical miles
            first, second = lowered.replace("-", ""), word_of(following)
            is_product = bool(second) and len(first) == 1  # g mol^{-1}
            if first + second in UNITS and len(first + second) > 3 and not is_product:
                self.at, lowered = self.at + bool(second), first + second
        if lowered in ("is", "are") and word_of(following) in ("left", "remaining", "needed", "required"):
            return True  # 15 are left
        if not word or (
            lowered in _STATEMENTS
            and (lowered, following) != ("times", "")
            and (self.words[-1:], lowered) != (["left"], "over")
        ):
            return False
        following = self.tail[self.at] if self.at < len(self.tail) else ""
        is_rate = lowered in _EACH and bool(self.words or self.powers) and word_of(following) in UNITS
        if word == "ms" and self.tail[self.at : self.at + 3] == ("^", "{", "-"):  # 9.8 ms^{-2}
            self.powers, self.last = {"meter": self.sign, "second": self.sign}, "second"
            return True
        if lowered == "per" or is_rate:
            self.sign = -1
            if word_of(following) == "cent":
                self.at, self.sign, self.powers["%"] = self.at + 1, 1, 1
            elif len(word_of(following)) > 2 and word_of(following) not in UNITS:
                self.words.append(f"{word_of(following).removesuffix('s')}s")  # per child
                self.at += 1
        elif self.last == "degree" and lowered in _TEMPERATURES:
            self.powers[_TEMPERATURES[lowered]] = self.powers.pop("degree")
            self.last = _TEMPERATURES[lowered]
        elif lowered in SCALES and word not in CASED:
            self.factor *= SCALES[lowered]
            return not self.words and not self.powers and self.factor <= 10**15
        elif lowered in PARTS and self.at == 1:  # 5 eighths
            self.factor /= PARTS[lowered]
        elif lowered in ORDINALS and self.at == 1:
            self.words.append("th")
        elif lowered in ("squared", "cubed"):
            return self.raise_last(_POWERS[lowered])
        elif lowered in _POWERS:
            self.power = _POWERS[lowered]
        elif measure := COMPOUND.get(word, COMPOUND.get(lowered)):
            for name, power in measure:
                self.powers[name] = self.powers.get(name, 0) + self.sign * power
            self.last = ""
        elif (word in CASED or lowered in UNITS) and not (
            word in ("in", "a") and is_word(following)
        ):  # 5 in, but 5 in total
            self.last = CASED.get(word) or UNITS[lowered]
            self.powers[self.last] = self.powers.get(self.last, 0) + self.sign * self.power
            self.sign, self.power = self.group, 1
        elif lowered not in ("of", "the", "a", "an", "each"):
            self.words.append(lowered)
        return True
