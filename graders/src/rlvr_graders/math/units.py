"""Units and other words beside a value: which of them are one, which contradict each other, and which make it another value."""

from __future__ import annotations

from dataclasses import dataclass

from .tokens import CLOSERS, OPENERS, Tokens, is_word, listed, word_of

Measure = tuple[tuple[str, int], ...]


UNITS = {
    name: canonical
    for canonical, names in {
        "degree": "deg degs degree degrees",
        "radian": "rad rads radian radians",
        "celsius": "celsius",
        "fahrenheit": "fahrenheit",
        "kelvin": "kelvin kelvins",
        "cent": "cent cents ¢",
        "dollar": "dollar dollars usd $ buck bucks",
        "euro": "euro euros eur",
        "sterling": "gbp",
        "yen": "yen",
        "yuan": "yuan rmb cny",
        "rupee": "rupee rupees rs inr",
        "micrometer": "micrometer micrometers",
        "millimeter": "mm millimeter millimeters millimetre millimetres",
        "centimeter": "cm cms centimeter centimeters centimetre centimetres",
        "decimeter": "dm decimeter decimeters decimetre decimetres",
        "meter": "m meter meters metre metres",
        "kilometer": "km kms kilometer kilometers kilometre kilometres",
        "inch": "in inch inches",
        "foot": "ft foot feet",
        "yard": "yd yds yard yards",
        "mile": "mi mile miles",
        "acre": "acre acres",
        "hectare": "ha hectare hectares",
        "millisecond": "ms millisecond milliseconds",
        "second": "s sec secs second seconds",
        "minute": "min mins minute minutes",
        "hour": "h hr hrs hour hours",
        "day": "day days",
        "week": "week weeks",
        "month": "month months",
        "year": "yr yrs year years",
        "milligram": "mg milligram milligrams",
        "gram": "g gram grams",
        "kilogram": "kg kgs kilogram kilograms",
        "ton": "ton tons tonne tonnes",
        "pound": "lb lbs pound pounds",
        "ounce": "oz ounce ounces",
        "milliliter": "ml milliliter milliliters millilitre millilitres",
        "liter": "l liter liters litre litres",
        "gallon": "gal gallon gallons",
        "quart": "quart quarts",
        "pint": "pint pints",
        "newton": "n newton newtons",
        "joule": "j joule joules",
        "kilojoule": "kj kilojoule kilojoules",
        "watt": "w watt watts",
        "kilowatt": "kw kilowatt kilowatts",
        "volt": "v volt volts",
        "ampere": "amp amps ampere amperes",
        "ohm": "ohm ohms",
        "hertz": "hz hertz",
        "pascal": "pa pascal pascals",
        "mole": "mol mole moles",
        "unit": "unit units",
        "%": "% percent pct percentage percents",
    }.items()
    for name in names.split()
}
_COMPOUND: dict[str, Measure] = {
    "mph": (("hour", -1), ("mile", 1)),
    "kph": (("hour", -1), ("kilometer", 1)),
    "kmh": (("hour", -1), ("kilometer", 1)),
    "kmph": (("hour", -1), ("kilometer", 1)),
    "mps": (("meter", 1), ("second", -1)),
    "fps": (("foot", 1), ("second", -1)),
    "cc": (("centimeter", 3),),
    "sqft": (("foot", 2),),
}
BARE_UNITS = {name for name in {*UNITS, *_COMPOUND} if len(name) > 1 and name.isalpha()}
BARE_UNITS = BARE_UNITS - {"rs", "pa", "ha"} | {"sq", "cu"}
"""Unit names that are units behind a number even without ``\\text``; a single letter there is a variable: 3m is not 3."""
SIGNS = {name: name.strip("\\") for name in ("%", "\\degree", "\\euro", "\\yen", "\\rupee")}
SIGNS |= {"\\$": "dollar", "\\pounds": "sterling"}
CURRENCIES = frozenset({*SIGNS.values(), "rupee", "yuan", "cent"}) - {"%", "degree"}
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_SCALES = {"dozen": 12, "hundred": 10**2, "thousand": 10**3}
_SCALES |= {"million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALES |= {f"{name}s": factor for name, factor in _SCALES.items()}
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
    "divided multiplied modulo mod base factorial root half halves third thirds quarter quarters tenth tenths hundredth hundredths "
    "thousandth thousandths twice double triple wrong incorrect false untrue true correct right-hand first least most maximum minimum "
    "greater smaller larger bigger infinitely undefined zero one two three four five six seven eight nine ten"
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


NO_UNIT = Unit()


def units_conflict(one: Unit, other: Unit, *, counts_matter: bool = False) -> bool:
    """Whether both name a measure and not the same (5 cm, 5 m), or words that turn the meaning differ (20 % more, 20 % less).

    What is counted (18 eggs) or said (in total) conflicts only where it tells the parts of a list apart (`counts_matter`), and a
    unit that one side leaves out never does.
    """
    if NO_UNIT in (one, other) or one == other:
        return False
    if _DIRECTIONS & (set(one.words) ^ set(other.words)):
        return True
    if one.measure and other.measure:
        names = {name for name, _ in one.measure + other.measure}
        return one.measure != other.measure and "unit" not in names
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
    if not tail or value[-1] in _OPERATORS or not reading.is_unit():
        return tokens, Unit(currency)
    if reading.factor != 1:
        value = ("(", *value, ")", "\\cdot", str(reading.factor))
    measure = {*currency, *((name, power) for name, power in reading.powers.items() if power)}
    return value, Unit(tuple(sorted(measure)), tuple(reading.words))


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
        self.factor = 1
        self.powers: dict[str, int] = {}
        self.words: list[str] = []
        self.last = ""
        """The name that a power behind it belongs to."""
        self.sign = self.power = 1
        """What waits for the next name: -1 behind "per", 2 behind "square"."""

    def is_unit(self) -> bool:
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
        return len(self.words) <= MAX_WORDS

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
        elif lowered in _SCALES:
            self.factor *= _SCALES[lowered]
            return not self.words and not self.powers and self.factor <= 10**15
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
        elif lowered in UNITS and not (lowered == "in" and is_word(following)):  # 5 in, but 5 in total
            self.last = UNITS[lowered]
            self.powers[self.last] = self.powers.get(self.last, 0) + self.sign * self.power
            self.sign = self.power = 1
        elif lowered not in ("of", "the", "a", "an", "each"):
            self.words.append(lowered)
        return True
