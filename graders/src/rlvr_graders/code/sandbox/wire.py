"""Values as bytes, for the pipe between the grader and a program that nobody trusts.

A small closed language: only plain built-in values come out of `decode`, whatever bytes go in, and reading them takes
time and memory in proportion to the bytes and items that the reader allows. An object with its own `__eq__` cannot
cross. What has no plain form (an instance, a function, a regular expression's match) arrives as an `Opaque`, which
keeps its type's name and its truth value and is equal to nothing but itself.

This file also runs inside the sandbox, where every import costs start-up time: it imports nothing at the top (json
alone would add 10 ms to a 10 ms start).
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant, without the milliseconds that importing typing takes
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEEPEST = 200
LONGEST_STREAM = 1_000_000
MOST_ITEMS = 1 << 24
MOST_ALIKE = 32  # keys with one hash: a set of n of them takes n * n steps to build
LONGEST_DECIMAL = 10_000  # characters, and the largest exponent: 1e200000000 as a fraction fills the memory
LONGEST_FRACTION = 200_000  # bits of numerator and denominator, whose common divisor takes quadratic time
LONGEST_FLOAT = 32
CONSTANTS = {b"N": None, b"T": True, b"F": False}
DATE, TIME = ("year", "month", "day"), ("hour", "minute", "second", "microsecond")
DATES = {"date": DATE, "time": TIME, "datetime": DATE + TIME}  # the integers that make one
DATES["timedelta"] = ("days", "seconds", "microseconds")


class WireError(ValueError):
    """The bytes are not an encoded value, or the value cannot be encoded."""


class Opaque:
    """A value that has no plain form: equal to nothing but itself."""

    __slots__ = ("truth", "type_name")

    def __init__(self, type_name: str, truth: bool) -> None:
        self.type_name = type_name
        self.truth = truth

    def __bool__(self) -> bool:
        return self.truth

    def __repr__(self) -> str:
        return "<" + self.type_name + ">"


def encode(value: object) -> bytes:
    """The bytes of `value`; subclasses of built-in types are sent as the built-in."""
    pieces: list[bytes] = []
    _encode(value, pieces.append, 0)
    return b"".join(pieces)


def _counted(tag: bytes, payload: bytes) -> bytes:
    return tag + str(len(payload)).encode() + b":" + payload


def _encode(value: Any, put: Callable[[bytes], None], depth: int) -> None:
    if depth > DEEPEST:
        raise WireError(f"nested more than {DEEPEST} deep")
    kind = type(value)  # not isinstance, which believes what an object says of its class
    if value is None:
        put(b"N")
    elif value is True:
        put(b"T")
    elif value is False:
        put(b"F")
    elif issubclass(kind, int):
        put(b"i%x;" % value if value >= 0 else b"i-%x;" % -value)
    elif issubclass(kind, float):
        put(b"f" + float.__repr__(value).encode() + b";")
    elif issubclass(kind, str):
        put(_counted(b"s", str.encode(value, "utf-8", "surrogatepass")))
    elif issubclass(kind, list):
        _encode_list(value, put, depth)
    elif issubclass(kind, tuple):
        _encode_many(b"t", value, put, depth)
    elif issubclass(kind, dict):
        put(b"d%d:" % dict.__len__(value))
        for key, item in dict.items(value):
            _encode(key, put, depth + 1)
            _encode(item, put, depth + 1)
    elif issubclass(kind, frozenset):
        _encode_many(b"z", value, put, depth)
    elif issubclass(kind, set):
        _encode_many(b"S", value, put, depth)
    elif issubclass(kind, (bytes, bytearray)):
        put(_counted(b"b", bytes(value)))
    elif issubclass(kind, complex):
        put(b"c" + repr(value.real).encode() + b"," + repr(value.imag).encode() + b";")
    else:
        _encode_rare(value, put, depth)


def _encode_many(tag: bytes, values: Any, put: Callable[[bytes], None], depth: int) -> None:
    put(tag + b"%d:" % len(values))
    for item in values:
        _encode(item, put, depth + 1)


def _encode_list(values: list[Any], put: Callable[[bytes], None], depth: int) -> None:
    # Long lists of small integers are common in programming problems: one join and one map instead of a walk.
    if len(values) > 8 and set(map(type, values)) == {int} and max(values) < 2**63 and min(values) > -(2**63):
        put(_counted(b"I", ",".join(map(str, values)).encode()))
    else:
        _encode_many(b"l", values, put, depth)


def _encode_rare(value: Any, put: Callable[[bytes], None], depth: int) -> None:
    module, name = type(value).__module__, type(value).__qualname__
    if module == "decimal" and name == "Decimal":
        put(_counted(b"m", str(value).encode()))
        return
    tag: bytes
    inner: Any
    if isinstance(value, range):
        tag, inner = b"r", (value.start, value.stop, value.step)
    elif module == "collections" and name == "deque":
        tag, inner = b"q", list(value)
    elif module == "fractions" and name == "Fraction":
        tag, inner = b"x", (value.numerator, value.denominator)
    elif module == "datetime" and name in DATES and getattr(value, "tzinfo", None) is None:
        tag, inner = b"D", (name, *(getattr(value, part) for part in DATES[name]))
    elif module == "builtins" and name in ("dict_keys", "odict_keys"):
        tag, inner = b"k", list(value)
    elif module.split(".")[0] == "numpy" and hasattr(value, "tolist"):
        tag, inner = b"", value.tolist()  # arrays and scalars alike; an object array may still hold anything
        if type(inner) is type(value):
            raise WireError("a numpy value without a plain form: " + name)
    elif hasattr(type(value), "__next__") or (module == "builtins" and name in ("dict_values", "dict_items")):
        items = []
        for item in value:
            items.append(item)
            if len(items) > LONGEST_STREAM:
                raise WireError(f"an iterator with more than {LONGEST_STREAM} items")
        tag, inner = b"g", items
    else:
        tag, inner = b"o", (name[:200], bool(value))
    put(tag)
    _encode(inner, put, depth + 1)


def decode(data: bytes, most_items: int = MOST_ITEMS) -> Any:
    """The value that `data` encodes; WireError for anything else, and for more items than `most_items`."""
    reader = _Reader(data, most_items)
    try:
        value = reader.read(0)
    except WireError:
        raise
    except (ValueError, IndexError, TypeError, OverflowError, ArithmeticError, RecursionError) as error:
        raise WireError(f"not an encoded value: {type(error).__name__}") from None
    if reader.at != len(data):
        raise WireError("bytes after the value")
    return value


def distinct(items: list[Any]) -> frozenset[Any]:
    """The items as a set, unless they were made to collide in it."""
    if len(set(map(hash, items))) < len(items):
        alike: dict[int, list[Any]] = {}
        for item in items:
            same = alike.setdefault(hash(item), [])
            if item not in same:
                same.append(item)
            if len(same) > MOST_ALIKE:
                raise WireError(f"more than {MOST_ALIKE} items with the same hash")
    return frozenset(items)


class _Reader:
    """Where reading stands: `at` in the bytes, with `left` items still allowed."""

    __slots__ = ("at", "data", "left")

    def __init__(self, data: bytes, left: int) -> None:
        self.data, self.at, self.left = data, 0, left

    def until(self, stop: bytes, longest: int | None = None) -> bytes:
        end = self.data.index(stop, self.at, None if longest is None else self.at + longest)
        text, self.at = self.data[self.at : end], end + 1
        return text

    def payload(self) -> bytes:
        size = int(self.until(b":", 20))
        start = self.at
        if size < 0 or start + size > len(self.data):
            raise WireError("cut short")
        self.at = start + size
        return self.data[start : self.at]

    def count(self, number: int) -> None:
        self.left -= number
        if number < 0 or self.left < 0:
            raise WireError("too many items")

    def read(self, depth: int) -> Any:
        if depth > DEEPEST + 2:
            raise WireError("nested too deep")
        tag = self.data[self.at : self.at + 1]
        self.at += 1
        if tag in CONSTANTS:
            return CONSTANTS[tag]
        if tag == b"i":
            return int(self.until(b";"), 16)  # in a base that is a power of two this takes linear time
        if tag == b"f":
            return float(self.until(b";", LONGEST_FLOAT))
        if tag == b"s":
            return self.payload().decode("utf-8", "surrogatepass")
        if tag == b"b":
            return self.payload()
        if tag == b"I":
            return self.integers()
        if tag == b"c":
            return complex(float(self.until(b",", LONGEST_FLOAT)), float(self.until(b";", LONGEST_FLOAT)))
        if tag in (b"l", b"t", b"S", b"z", b"d"):
            return self.many(tag, depth)
        return self.rare(tag, depth)

    def integers(self) -> list[int]:
        raw = self.payload()
        self.count(raw.count(b",") + 1)
        pieces = raw.split(b",")
        if max(map(len, pieces)) > 20:
            raise WireError("not a short integer")
        return list(map(int, pieces))

    def many(self, tag: bytes, depth: int) -> Any:
        number = int(self.until(b":", 20)) * (2 if tag == b"d" else 1)
        self.count(number)
        items = [self.read(depth + 1) for _ in range(number)]
        if tag == b"l":
            return items
        if tag == b"t":
            return tuple(items)
        if tag == b"d":
            distinct(items[::2])
            return dict(zip(items[::2], items[1::2], strict=True))
        return set(distinct(items)) if tag == b"S" else distinct(items)

    def rare(self, tag: bytes, depth: int) -> Any:
        if tag == b"m":
            return _decimal(self.payload())
        if tag not in (b"r", b"q", b"x", b"k", b"g", b"o", b"D"):
            raise WireError("unknown tag")
        inner = self.read(depth + 1)
        if tag == b"r":
            return range(*inner)
        if tag == b"x":
            return _fraction(*inner)
        if tag == b"D":
            return _date(*inner)
        if tag == b"o":
            name, truth = inner
            if type(name) is not str or type(truth) is not bool:
                raise WireError("malformed opaque value")
            return Opaque(name, truth)
        if type(inner) is not list:
            raise WireError("not a list of items")
        if tag == b"q":
            from collections import deque

            return deque(inner)
        if tag == b"k":
            distinct(inner)
            return dict.fromkeys(inner).keys()
        return iter(inner)


def _decimal(text: bytes) -> Any:
    from decimal import Decimal

    if len(text) > LONGEST_DECIMAL:
        raise WireError("a decimal with too many digits")
    number = Decimal(text.decode())
    if number.is_snan():  # comparing it with anything is an error
        raise WireError("a signalling not-a-number")
    if number.is_finite() and abs(number.adjusted()) > LONGEST_DECIMAL:
        raise WireError("a decimal beyond all measure")
    return number


def _fraction(numerator: int, denominator: int) -> Any:
    from fractions import Fraction

    for number in (numerator, denominator):
        if type(number) is not int or number.bit_length() > LONGEST_FRACTION:
            raise WireError("a fraction with too many digits")
    return Fraction(numerator, denominator)


def _date(name: str, *numbers: int) -> Any:
    import datetime

    if name not in DATES or [type(number) for number in numbers] != [int] * len(DATES[name]):
        raise WireError("malformed date")
    return getattr(datetime, name)(*numbers)
