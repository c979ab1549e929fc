"""Values as bytes, for the pipe between the grader and a program that nobody trusts.

Only plain built-in values come out of `decode`, whatever bytes go in: an object with its own `__eq__` cannot cross.
What has no plain form (an instance, a function, a regular expression's match) arrives as an `Opaque`, which keeps
its type's name and its truth value and is equal to nothing but itself.

This file also runs inside the sandbox, where every import costs start-up time: it imports nothing at the top (json
alone would add 10 ms to a 10 ms start), and keeps to syntax that an old remote interpreter understands.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant, without the milliseconds that importing typing takes
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEEPEST = 300
LONGEST_STREAM = 1_000_000


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
    if isinstance(value, range):
        put(b"r")
        _encode((value.start, value.stop, value.step), put, depth + 1)
    elif module == "collections" and name == "deque":
        put(b"q")
        _encode(list(value), put, depth + 1)
    elif module == "decimal" and name == "Decimal":
        put(_counted(b"m", str(value).encode()))
    elif module == "fractions" and name == "Fraction":
        put(b"x")
        _encode((value.numerator, value.denominator), put, depth + 1)
    elif module == "builtins" and name in ("dict_keys", "odict_keys"):
        put(b"k")
        _encode(list(value), put, depth + 1)
    elif module.split(".")[0] == "numpy" and hasattr(value, "tolist"):
        plain = value.tolist()  # arrays and scalars alike; an object array may still hold anything
        if type(plain) is type(value):
            raise WireError("a numpy value without a plain form: " + name)
        _encode(plain, put, depth + 1)
    elif hasattr(type(value), "__next__") or (module == "builtins" and name in ("dict_values", "dict_items")):
        items = []
        for item in value:
            items.append(item)
            if len(items) > LONGEST_STREAM:
                raise WireError(f"an iterator with more than {LONGEST_STREAM} items")
        put(b"g")
        _encode(items, put, depth + 1)
    else:
        put(b"o")
        _encode((name[:200], bool(value)), put, depth + 1)


def decode(data: bytes) -> Any:
    """The value that `data` encodes; WireError for anything else."""
    try:
        value, end = _decode(data, 0, 0)
    except WireError:
        raise
    except (ValueError, IndexError, TypeError, OverflowError, ArithmeticError, RecursionError) as error:
        raise WireError(f"not an encoded value: {type(error).__name__}") from None
    if end != len(data):
        raise WireError("bytes after the value")
    return value


def _number(data: bytes, at: int, stop: bytes) -> tuple[bytes, int]:
    end = data.index(stop, at)
    return data[at:end], end + 1


def _payload(data: bytes, at: int) -> tuple[bytes, int]:
    digits, start = _number(data, at, b":")
    size = int(digits)
    if size < 0 or start + size > len(data):
        raise WireError("cut short")
    return data[start : start + size], start + size


def _decode(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > DEEPEST + 2:
        raise WireError("nested too deep")
    tag = data[at : at + 1]
    at += 1
    if tag == b"N":
        return None, at
    if tag == b"T":
        return True, at
    if tag == b"F":
        return False, at
    if tag == b"i":
        digits, at = _number(data, at, b";")
        return int(digits, 16), at
    if tag == b"f":
        digits, at = _number(data, at, b";")
        return float(digits), at
    if tag == b"s":
        raw, at = _payload(data, at)
        return raw.decode("utf-8", "surrogatepass"), at
    if tag == b"b":
        return _payload(data, at)
    if tag == b"I":
        raw, at = _payload(data, at)
        return list(map(int, raw.split(b","))), at
    if tag == b"c":
        real, at = _number(data, at, b",")
        imaginary, at = _number(data, at, b";")
        return complex(float(real), float(imaginary)), at
    if tag in (b"l", b"t", b"S", b"z", b"d"):
        return _decode_many(tag, data, at, depth)
    return _decode_rare(tag, data, at, depth)


def _decode_many(tag: bytes, data: bytes, at: int, depth: int) -> tuple[Any, int]:
    digits, at = _number(data, at, b":")
    count = int(digits) * (2 if tag == b"d" else 1)
    if count < 0 or count > len(data) - at:  # each item takes a byte at least
        raise WireError("cut short")
    items = []
    for _ in range(count):
        item, at = _decode(data, at, depth + 1)
        items.append(item)
    if tag == b"l":
        return items, at
    if tag == b"t":
        return tuple(items), at
    if tag == b"d":
        return dict(zip(items[::2], items[1::2])), at  # noqa: B905 - an old interpreter may run this
    return (set(items) if tag == b"S" else frozenset(items)), at


def _decode_rare(tag: bytes, data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if tag == b"m":
        from decimal import Decimal

        raw, at = _payload(data, at)
        return Decimal(raw.decode()), at
    if tag not in (b"r", b"q", b"x", b"k", b"g", b"o"):
        raise WireError("unknown tag")
    inner, at = _decode(data, at, depth + 1)
    if tag == b"r":
        return range(*inner), at
    if tag == b"x":
        from fractions import Fraction

        return Fraction(*inner), at
    if tag == b"q":
        from collections import deque

        return deque(inner), at
    if tag == b"k":
        return dict.fromkeys(inner).keys(), at
    if tag == b"g":
        return iter(list(inner)), at
    name, truth = inner
    if type(name) is not str or type(truth) is not bool:
        raise WireError("malformed opaque value")
    return Opaque(name, truth), at
