"""Units and other words beside a value: which of them are one, which contradict each other, and which make it another value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from .numerals import NUMBERS, PARTS, SCALES
from .tokens import CLOSERS, OPENERS, Tokens, is_word, listed, word_of

Measure = tuple[tuple[str, int], ...]


_TABLE = """
1 length: meter m meter meters metre metres
0.0254 length: inch in inch inches
0.3048 length: foot ft foot feet
0.9144 length: yard yd yds yard yards
1609.344 length: mile mi mile miles
1852 length: nauticalmile nmi
9460730472580800 length: lightyear ly lightyear lightyears light-year light-years
1 time: second s sec secs second seconds
60 time: minute min mins minute minutes
3600 time: hour h hr hrs hour hours
86400 time: day day days
604800 time: week wk wks week weeks fortnight
1 month: month mo month months
12 month: year yr yrs year years
120 month: decade decade decades
1200 month: century century centuries
1 mass: gram g gram grams gramme grammes
1000000 mass: tonne tonne tonnes
1 ton: ton ton tons
453.59237 mass: pound lb lbs pound pounds
28.349523125 mass: ounce oz ounce ounces
4046.8564224 length2: acre acre acres
10000 length2: hectare ha hectare hectares
0.001 length3: liter l liter liters litre litres
0.003785411784 length3: gallon gal gallon gallons
0.000946352946 length3: quart qt quart quarts
0.000473176473 length3: pint pt pint pints
0.0002365882365 length3: cup cup cups
0.00001478676478125 length3: tablespoon tbsp tablespoon tablespoons
0.00000492892159375 length3: teaspoon tsp teaspoon teaspoons
1000 mass length time-2: newton n newton newtons
1000 mass length2 time-2: joule j joule joules
4184 mass length2 time-2: calorie cal calorie calories
3600000 mass length2 time-2: watthour wh watthour watthours
1000 mass length2 time-3: watt w watt watts
1000 mass length-1 time-2: pascal pa pascal pascals
100000000 mass length-1 time-2: bar bar bars
1 time-1: hertz hz hertz
1 current: ampere a amp amps ampere amperes
1000 mass length2 time-3 current-1: volt v volt volts
1000 mass length2 time-3 current-2: ohm ohm ohms
1 current time: coulomb coulomb coulombs
1 electronvolt: electronvolt ev electronvolt electronvolts
1 amount: mole mol mole moles
1 information: bit bit bits
8 information: byte byte bytes
1 degree: degree deg degs degree degrees
1 radian: radian rad rads radian radians
1 celsius: celsius celsius centigrade
1 fahrenheit: fahrenheit fahrenheit
1 kelvin: kelvin kelvin kelvins
1 decibel: decibel db decibel decibels
1 turn: turn revolution revolutions rev revs turn turns
1 dollar: dollar dollar dollars usd $ buck bucks
0.01 dollar: cent cent cents ¢ penny pennies
0.05 dollar: nickel nickel nickels
0.1 dollar: dime dime dimes
1 euro: euro euro euros eur
1 sterling: sterling gbp
1 yen: yen yen jpy
1 yuan: yuan yuan rmb cny
1 rupee: rupee rupee rupees rs inr
1 unit: unit unit units
1 %: % % percent pct percentage percents
"""
"""Factor, base measure with powers: the unit's own name, then what it is written as."""
_PREFIXES = {
    "n": "nano",
    "u": "micro",
    "m": "milli",
    "c": "centi",
    "d": "deci",
    "k": "kilo",
    "M": "mega",
    "G": "giga",
    "T": "tera",
}
_FACTORS = {
    "nano": -9,
    "micro": -6,
    "milli": -3,
    "centi": -2,
    "deci": -1,
    "kilo": 3,
    "mega": 6,
    "giga": 9,
    "tera": 12,
}
_PREFIXED = {
    "meter": "m",
    "gram": "g",
    "second": "s",
    "liter": "L",
    "newton": "N",
    "joule": "J",
    "watt": "W",
    "pascal": "Pa",
    "volt": "V",
}
_PREFIXED |= {
    "hertz": "Hz",
    "ampere": "A",
    "mole": "mol",
    "byte": "B",
    "bit": "bit",
    "calorie": "cal",
    "electronvolt": "eV",
}
_PREFIXED |= {"watthour": "Wh", "ohm": "ohm"}
UNITS: dict[str, str] = {}
"""What a unit is written as, in small letters -> its own name."""
_CASED: dict[str, str] = {}
"""The same with the case that matters: mW and MW."""
_BASES: dict[str, tuple[Fraction, Measure]] = {}
"""A unit's own name -> its factor and base measure."""
for _line in _TABLE.strip().splitlines():
    _left, _, _names = _line.partition(": ")
    _name, *_spellings = _names.split()
    _factor, *_bases = _left.split()
    _powers = [re.fullmatch(r"(\D+?)(-?\d*)", base) for base in _bases]
    _BASES[_name] = Fraction(_factor), tuple(sorted((m[1], int(m[2] or 1)) for m in _powers if m))
    UNITS |= dict.fromkeys(_spellings, _name)
    for _letter, _prefix in _PREFIXES.items() if _name in _PREFIXED else ():
        _own = _prefix + _name
        _BASES[_own] = _BASES[_name][0] * Fraction(10) ** _FACTORS[_prefix], _BASES[_name][1]
        UNITS |= {
            _own: _own,
            _own + "s": _own,
            _own.replace("er", "re"): _own,
            _own.replace("er", "re") + "s": _own,
        }
        _CASED[_letter + _PREFIXED[_name]] = _own
_CASED |= {
    "µm": "micrometer",
    "ml": "milliliter",
    "Kb": "kilobit",
    "KB": "kilobyte",
    "C": "coulomb",
    "F": "farad",
}
UNITS |= {
    name.lower(): own for name, own in reversed(_CASED.items()) if name.lower() not in UNITS and len(name) > 1
}
UNITS |= {"cms": "centimeter", "kms": "kilometer", "kgs": "kilogram"}
_COMPOUND: dict[str, Measure] = {
    "mph": (("hour", -1), ("mile", 1)),
    **dict.fromkeys(("kph", "kmh", "kmph"), (("hour", -1), ("kilometer", 1))),
    "mps": (("meter", 1), ("second", -1)),
    "fps": (("foot", 1), ("second", -1)),
    "rpm": (("minute", -1), ("turn", 1)),
    "knots": (("hour", -1), ("nauticalmile", 1)),
    "knot": (("hour", -1), ("nauticalmile", 1)),
    "cc": (("centimeter", 3),),
    "sqft": (("foot", 2),),
}
_NOT_BARE = listed("rs pa ha wh nm pm um cd ms ns us ly mo qt pt rev bar turn bit cup tt dm")
BARE_UNITS = {name for name in {*UNITS, *_COMPOUND} if len(name) > 1 and name.isalpha()} - _NOT_BARE
BARE_UNITS |= listed("sq cu nm ms dm cup bit")
"""Unit names that are units behind a number even without ``\\text``; a single letter there is a variable: 3m is not 3."""
SIGNS = {name: name.strip("\\") for name in ("%", "\\degree", "\\euro", "\\yen", "\\rupee")}
SIGNS |= {"\\$": "dollar", "\\pounds": "sterling"}
CURRENCIES = frozenset({*SIGNS.values(), "rupee", "yuan", "cent"}) - {"%", "degree"}
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
ORDINALS = listed("st nd rd th")
# Words that turn a value's meaning: two answers that differ in one of these are two answers.
_DIRECTIONS = listed(
    "north south east west left right up down above below before after am pm increase decrease more less fewer gain loss profit "
    "positive negative clockwise counterclockwise inside outside even odd "
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
    "excluded omitted impossible negated reciprocal inverse inverses opposite halved doubled tripled missing off short "
    "repeating recurring exclusive unknown unless rather reduced increased decreased mille"
)
# Words that may stand behind a value although they name nothing that is counted.
_HARMLESS = listed(
    "total altogether all in left remaining each only people children men women sheep fish deer mice geese teeth dice cattle old tall "
    "long wide high deep thick away ahead apart approximately approx exactly about answer o'clock gon sided per of the a an overall "
    "today daily weekly monthly annually yearly later ago more less fewer th even odd north south east west up down above below right "
    "before after am pm gain loss profit increase decrease positive negative clockwise counterclockwise inside outside"
)
_TRIGONOMETRY = frozenset({"\\sin", "\\cos", "\\tan", "\\cot", "\\sec", "\\csc", "\\cis"})
_OPERATORS = frozenset({"/", "+", "-", "\\cdot", "^", "_", "(", "[", "|"})
MAX_WORDS = 8


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

    def in_bases(self) -> tuple[Fraction, Measure]:
        """The factor and the base measures that the unit stands for: (1000/3600, length over time) for km/h."""
        factor, powers = Fraction(1), dict[str, int]()
        for name, power in self.measure:
            size, bases = _BASES.get(name, (Fraction(1), ((name, 1),)))
            factor *= size**power
            for base, times in bases:
                powers[base] = powers.get(base, 0) + power * times
        return factor, tuple(sorted((base, power) for base, power in powers.items() if power))


NO_UNIT = Unit()


def units_conflict(one: Unit, other: Unit, *, counts_matter: bool = False) -> bool:
    """Whether both name a measure and not of the same kind (5 cm, 5 s), or words that turn the meaning differ (20 % more, 20 % less).

    What is counted (18 eggs) or said (in total) conflicts only where it tells the parts of a list apart (`counts_matter`), and a
    unit that one side leaves out never does.
    """
    if NO_UNIT in (one, other) or one == other:
        return False
    if _DIRECTIONS & (set(one.words) ^ set(other.words)):
        return True
    if one.measure and other.measure:
        names = {name for name, _ in one.measure + other.measure}
        return one.in_bases()[1] != other.in_bases()[1] and "unit" not in names
    return counts_matter and bool(one.words and other.words) and not set(one.words) & set(other.words)


def take_unit(tokens: Tokens) -> tuple[Tokens, Unit]:
    r"""Takes the unit off: ``5\text{ cm}^2``, ``50\%``, ``90^\circ``, ``\$18``, ``18\text{ eggs}``, ``2\text{ million}``."""
    currency: Measure = ()
    plain = tuple(token for token in tokens if token != "\\degree")
    if (
        0 < len(plain) < len(tokens)
        and not _TRIGONOMETRY.intersection(tokens)
        and not any(map(is_word, tokens))
    ):
        return plain, Unit((("degree", 1),))  # 60^\circ, 180^\circ/3
    sign, rest = (tokens[:1], tokens[1:]) if tokens[0] == "-" else ((), tokens)
    if len(rest) > 1:
        money = SIGNS.get(rest[0]) or UNITS.get(word_of(rest[0]), "")
        if money in CURRENCIES:
            currency, tokens = ((money, 1),), (*sign, *rest[1:])
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


def _repeated(value: Tokens, tail: Tokens) -> tuple[Tokens, Unit]:
    """0.3 repeating: the last digit where it stands there twice, otherwise all places."""
    whole, _, places = value[-1].partition(".")
    period = places[-1] if len(places) > 1 and places[-1] == places[-2] else places
    head = places[: len(places) - len(period)]
    repeated = (*value[:-1], f"{whole}.{head}", "\\overline", "{", period, "}")
    return take_unit((*repeated, *tail[1:])) if len(tail) > 1 else (repeated, NO_UNIT)


def compound(tokens: Tokens) -> tuple[Tokens, Unit] | None:
    """5 feet 6 inches, 2 hours and 15 minutes: the sum in the first unit. None where this is anything else."""
    if len(tokens) < 4:
        return None
    plain = [token for token in tokens if word_of(token) != "and" and token not in (",", " ")]
    marks = {"\\degree": "degree", "'": "arcminute"}
    names = [marks.get(t) or UNITS.get(t if t in ("h", "m", "s") else word_of(t), "") for t in plain[1::2]]
    if names[:1] == ["hour"]:
        names = ["minute" if name == "meter" else name for name in names]  # 2 h 15 m
    if (
        len(plain) < 4
        or len(plain) % 2
        or not all(names)
        or not all(token[0].isdigit() for token in plain[::2])
    ):
        return None
    units = [Unit((("degree", 1),)) if name == "arcminute" else Unit(((name, 1),)) for name in names]
    factors = [
        Fraction(1, 60) if name == "arcminute" else unit.in_bases()[0]
        for name, unit in zip(names, units, strict=True)
    ]
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
        self.sign = self.power = 1
        """What waits for the next name: -1 behind "per", 2 behind "square"."""

    def is_unit(self, value: Tokens) -> bool:
        """Whether the tokens name a unit or what is counted; not where they say anything else."""
        while self.at < len(self.tail):
            token = self.tail[self.at]
            self.at += 1
            if token == "^":
                known = self.exponent()
            elif token == "/":
                known, self.sign = True, -1
            elif token in ("\\cdot", "(", ")", "."):
                known = True
            else:
                known = self.word(SIGNS.get(token) or (token[6:-1] if is_word(token) else ""))
            if not known:
                return False
        return len(self.words) <= MAX_WORDS and self.are_known(value)

    def are_known(self, value: Tokens) -> bool:
        """Whether the words name what is counted: a plural, or anything for one and for parts of one. No other word is ignored."""
        unknown = [word for word in self.words if word not in _HARMLESS]
        if not unknown or (unknown == self.words and set(unknown) <= NUMBERS):  # 17 (seventeen)
            return True
        plural = [
            n for n, word in enumerate(unknown) if word[-1:] == "s" and word[-2:] not in ("ss", "us", "is")
        ]
        is_part = value == ("1",) or "\\frac" in value or "/" in value or any("." in token for token in value)
        behind = unknown[plural[-1] + 1 :] if plural else unknown
        said = any(
            len(word) > 5 and word.endswith(("ed", "ing", "ly", "less", "ive", "able")) for word in behind
        )
        return not said and (bool(plural) or bool(self.powers) or is_part)

    def exponent(self) -> bool:
        end = self.tail.index("}", self.at) if "}" in self.tail[self.at :] else self.at
        exponent = "".join(self.tail[self.at + 1 : end])
        self.at = end + 1
        return exponent.lstrip("-").isdigit() and len(exponent) <= 2 and self.raise_last(int(exponent))

    def raise_last(self, power: int) -> bool:
        if self.last:
            self.powers[self.last] *= power
        return bool(self.last)

    def word(self, word: str) -> bool:
        lowered = word.lower()
        if not word or lowered in _STATEMENTS:
            return False
        following = self.tail[self.at] if self.at < len(self.tail) else ""
        if lowered == "per":
            self.sign = -1
            if word_of(following) == "cent":
                self.at, self.sign, self.powers["%"] = self.at + 1, 1, 1
        elif word in ("C", "F") and self.last == "degree":
            self.last = "celsius" if word == "C" else "fahrenheit"
            self.powers = {self.last: 1}
        elif lowered in SCALES:
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
        elif lowered in _COMPOUND:
            for name, power in _COMPOUND[lowered]:
                self.powers[name] = self.powers.get(name, 0) + self.sign * power
            self.last = ""
        elif (word in _CASED or lowered in UNITS) and not (
            lowered == "in" and is_word(following)
        ):  # 5 in, but 5 in total
            self.last = _CASED.get(word) or UNITS[lowered]
            self.powers[self.last] = self.powers.get(self.last, 0) + self.sign * self.power
            self.sign = self.power = 1
        elif lowered not in ("of", "the", "a", "an", "each"):
            self.words.append(lowered)
        return True
