"""The table of units: how each is written, what it measures, and its factor; with the prefixes of SI."""

from __future__ import annotations

import re
from fractions import Fraction

from .tokens import listed

Measure = tuple[tuple[str, int], ...]

_TABLE = """
1 length: meter m meter meters metre metres
0.0254 length: inch in inch inches
0.3048 length: foot ft foot feet
0.9144 length: yard yd yds yard yards
1609.344 length: mile mi mile miles
1852 length: nauticalmile nmi nauticalmile nauticalmiles
9460730472580800 length: lightyear ly lightyear lightyears
149597870700 length: astronomicalunit astronomicalunit astronomicalunits
1/10000000000 length: angstrom angstrom angstroms å
1/1000000 length: micron micron microns
1.8288 length: fathom fathom fathoms
201.168 length: furlong furlong furlongs
20.1168 length: chain chain chains
5.0292 length: rod rod rods
4828.032 length: league league leagues
1 time: second s sec secs second seconds
60 time: minute min mins minute minutes
3600 time: hour h hr hrs hour hours
86400 time: day day days
604800 time: week wk wks week weeks
1209600 time: fortnight fortnight fortnights
1 month: month mo month months
12 month: year yr yrs year years annum
120 month: decade decade decades
1200 month: century century centuries
12000 month: millennium millennium millennia millenniums
1 mass: gram g gram grams gramme grammes
1000000 mass: tonne t tonne tonnes metricton metrictons
1 ton: ton ton tons
453.59237 mass: pound lb lbs pound pounds
28.349523125 mass: ounce oz ounce ounces
6350.29318 mass: stone stone stones
0.06479891 mass: grain grain grains
0.2 mass: carat carat carats
4046.8564224 length2: acre acre acres
10000 length2: hectare ha hectare hectares
0.001 length3: liter l liter liters litre litres
0.158987294928 length3: barrel barrel barrels bbl
0.03523907016688 length3: bushel bushel bushels
0.00880976754172 length3: peck peck pecks
0.003785411784 length3: gallon gal gallon gallons
0.000946352946 length3: quart qt quart quarts
0.000473176473 length3: pint pt pint pints
0.0000295735295625 length3: fluidounce floz fluidounce fluidounces
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
101325000 mass length-1 time-2: atmosphere atm atmosphere atmospheres
2533125/19 mass length-1 time-2: torr torr mmhg
6894757.293168 mass length-1 time-2: psi psi
0.01 mass length time-2: dyne dyne dynes dyn
0.0001 mass length2 time-2: erg erg ergs
745699.87158227022 mass length2 time-3: horsepower hp horsepower
1 time-1: hertz hz hertz
1 becquerel: becquerel bq becquerel becquerels
1 current: ampere a amp amps ampere amperes
1000 mass length2 time-3 current-1: volt v volt volts
1000 mass length2 time-3 current-2: ohm ohm ohms
1 current time: coulomb coulomb coulombs
1/1000 current2 time4 mass-1 length-2: farad farad farads
1000 mass length2 time-2 current-2: henry henry henries henrys
1000 mass time-2 current-1: tesla tesla teslas
0.1 mass time-2 current-1: gauss gauss
1000 mass length2 time-2 current-1: weber wb weber webers
1/1000 current2 time3 mass-1 length-2: siemens siemens
1 candela: candela cd candela candelas
1 lumen: lumen lm lumen lumens
1 lumen length-2: lux lx lux
1 electronvolt: electronvolt ev electronvolt electronvolts
1 amount: mole mol mole moles
1000 amount length-3: molar molar
1 information: bit bit bits
8 information: byte byte bytes
8192 information: kibibyte kib kibibyte kibibytes
8388608 information: mebibyte mib mebibyte mebibytes
8589934592 information: gibibyte gib gibibyte gibibytes
1 degree: degree deg degs degree degrees
1/60 degree: arcminute arcminute arcminutes arcmin
1/3600 degree: arcsecond arcsecond arcseconds arcsec
1 radian: radian rad rads radian radians
1 kelvin: celsius celsius centigrade
5/9 kelvin: fahrenheit fahrenheit
1 kelvin: kelvin kelvin kelvins
1 decibel: decibel db decibel decibels
360 degree: turn revolution revolutions rev revs turn turns
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
1/100 %: basispoint basispoint basispoints bps
"""
"""Factor, base measure with powers: the unit's own name, then what it is written as."""
OFFSETS = {"celsius": Fraction("273.15"), "fahrenheit": Fraction("459.67")}
"""What a temperature needs before its factor: 25 °C is 298.15 K."""
_FACTORS = {
    "atto": -18, "femto": -15, "pico": -12, "nano": -9, "micro": -6, "milli": -3, "centi": -2, "deci": -1,
    "hecto": 2, "kilo": 3, "mega": 6, "giga": 9, "tera": 12, "peta": 15, "exa": 18,
}  # fmt: skip
PREFIXES = frozenset(_FACTORS)
_LETTERS = dict(zip("afpnumcdhkMGTPE", _FACTORS, strict=True))
_ANY_CASE, _OWN_CASE = frozenset("numcdkMGT"), frozenset("FCHTSKM")
"""Prefixes that are also read where the case is wrong (KM, and not AS), and units that are not (mC, and not mc)."""
_PREFIXED = {
    "meter": "m", "gram": "g", "second": "s", "liter": "L", "newton": "N", "joule": "J", "watt": "W", "pascal": "Pa",
    "volt": "V", "hertz": "Hz", "ampere": "A", "mole": "mol", "molar": "M", "byte": "B", "bit": "bit", "calorie": "cal",
    "electronvolt": "eV", "watthour": "Wh", "ohm": "ohm", "farad": "F", "coulomb": "C", "henry": "H", "tesla": "T",
    "siemens": "S", "weber": "Wb", "becquerel": "Bq", "kelvin": "K", "bar": "bar",
}  # fmt: skip
UNITS: dict[str, str] = {}
"""What a unit is written as, in small letters -> its own name."""
CASED: dict[str, str] = {}
"""The same with the case that matters: mW and MW."""
BASES: dict[str, tuple[Fraction, Measure]] = {}
"""A unit's own name -> its factor and base measure."""
for _line in _TABLE.strip().splitlines():
    _left, _, _names = _line.partition(": ")
    _name, *_spellings = _names.split()
    _factor, *_bases = _left.split()
    _powers = [re.fullmatch(r"(\D+?)(-?\d*)", base) for base in _bases]
    BASES[_name] = Fraction(_factor), tuple(sorted((m[1], int(m[2] or 1)) for m in _powers if m))
    UNITS |= dict.fromkeys(_spellings, _name)
    for _letter, _prefix in _LETTERS.items() if _name in _PREFIXED else ():
        _own = _prefix + _name
        BASES[_own] = BASES[_name][0] * Fraction(10) ** _FACTORS[_prefix], BASES[_name][1]
        UNITS |= {_own: _own, _own + "s": _own, _own.replace("er", "re"): _own, _own.replace("er", "re") + "s": _own}
        CASED[_letter + _PREFIXED[_name]] = _own
for _word in ("am", "pm", "as", "dB", "ha"):  # words, decibels and hectares
    CASED.pop(_word, None)
CASED |= {symbol: name for name, symbol in _PREFIXED.items() if len(symbol) == 1 and symbol.isupper()}
CASED |= {"µm": "micrometer", "ml": "milliliter", "Kb": "kilobit", "KB": "kilobyte", "AU": "astronomicalunit"}
_OWN_SPELLINGS = frozenset({*UNITS, *CASED})
UNITS |= {
    name.lower(): own
    for name, own in reversed(CASED.items())
    if name.lower() not in UNITS and len(name) > 1 and name[0] in _ANY_CASE and name[-1] not in _OWN_CASE
}
UNITS |= {"cms": "centimeter", "kms": "kilometer", "kgs": "kilogram"}
COMPOUND: dict[str, Measure] = {
    "mph": (("hour", -1), ("mile", 1)),
    **dict.fromkeys(("kph", "kmh", "kmph"), (("hour", -1), ("kilometer", 1))),
    "mps": (("meter", 1), ("second", -1)),
    "fps": (("foot", 1), ("second", -1)),
    "mpg": (("gallon", -1), ("mile", 1)),
    "rpm": (("minute", -1), ("turn", 1)),
    "knots": (("hour", -1), ("nauticalmile", 1)),
    "knot": (("hour", -1), ("nauticalmile", 1)),
    "Nm": (("meter", 1), ("newton", 1)),
    "cc": (("centimeter", 3),),
    "sqft": (("foot", 2),),
}
SPELLED = _OWN_SPELLINGS | COMPOUND.keys() | {*_PREFIXED.values()}
"""What units are written as, each in its own case."""
_NOT_BARE = listed("rs pa ha wh nm pm um cd ms ns us ly mo qt pt rev bar turn bit cup tt dm lm lx hp bq wb psi")
BARE_UNITS = {name for name in {*UNITS, *COMPOUND} if len(name) > 1 and name.isalpha()} - _NOT_BARE
BARE_UNITS |= listed("sq cu nm ms dm cup bit")
"""Unit names that are units behind a number even without ``\\text``; a single letter there is a variable: 3m is not 3."""
_NEVER_PRODUCTS = listed("cm mm km kg mg ml ft lb oz hr yd mi in wk yr cc hz")
PRODUCTS = frozenset(name for name in BARE_UNITS if len(name) == 2 and name.islower()) - _NEVER_PRODUCTS
"""Two small letters that are a unit behind a number and a space, and otherwise a product of variables: 6 nm and 6nm."""
BARE_UNITS -= PRODUCTS - SPELLED - listed("kb mb gb tb kw kj dl cl sq cu")
SIGNS = {name: name.strip("\\") for name in ("%", "\\degree", "\\euro", "\\yen", "\\rupee")}
SIGNS |= {"\\$": "dollar", "\\pounds": "sterling"}
CURRENCIES = frozenset({*SIGNS.values(), "rupee", "yuan", "cent"}) - {"%", "degree"}
