"""The encoding between grader and sandbox: exact for plain values, harmless for everything else."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_graders.code.sandbox.wire import Opaque, WireError, decode, encode

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text() | st.just("\ud800 alone"),
    st.binary(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.dates(),
    st.times(),
    st.datetimes(),
    st.timedeltas(),
)
hashable = st.recursive(scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3))
values = st.recursive(
    hashable,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(st.integers(), min_size=9, max_size=20),
        st.tuples(inner, inner),
        st.sets(hashable, max_size=4),
        st.dictionaries(hashable, inner, max_size=4),
    ),
    max_leaves=12,
)


def same(left, right):
    """Equal, and of equal types all the way down (True is not 1 here, nor -0.0 0.0)."""
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return math.copysign(1, left) == math.copysign(1, right) and left == right
    return left == right


@settings(max_examples=120, deadline=None)
@given(values)
def test_plain_values_come_back(value):
    assert same(decode(encode(value)), value)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=60) | st.lists(st.sampled_from(b"NTFiflsbcItSzdmrqxkgoD0123456789:;,-a"), max_size=40).map(bytes)
)
def test_any_other_bytes_are_refused_or_plain(data):
    plain = (int, float, complex, str, bytes, list, tuple, dict, set, frozenset, bool, type(None), range, Opaque)
    rare = (decimal.Decimal, fractions.Fraction, collections.deque, type({}.keys()), type(iter([])))
    dates = (datetime.date, datetime.time, datetime.datetime, datetime.timedelta)
    try:
        value = decode(data)
    except WireError:
        return
    assert type(value) in plain + rare + dates


def test_values_by_hand():
    assert encode([1, "a", None]) == b"l3:i1;s1:aN"
    assert encode({-255: (True, 0.5)}) == b"d1:i-ff;t2:Tf0.5;"
    assert encode(list(range(10))) == b"I19:0,1,2,3,4,5,6,7,8,9"
    assert math.isnan(decode(b"fnan;"))
    assert decode(encode([math.inf, -math.inf])) == [math.inf, -math.inf]
    assert decode(encode(10**5000)) == 10**5000  # beyond what Python turns into decimal digits


def test_subclasses_become_their_builtins():
    class Colour(enum.IntEnum):
        RED = 3

    class Liar(str):
        __eq__ = lambda *_: True  # noqa: E731
        __hash__ = str.__hash__

    point = collections.namedtuple("point", "x y")(1, 2)
    for value, plain in [
        (Colour.RED, 3),
        (Liar("no"), "no"),
        (point, (1, 2)),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (bytearray(b"x"), b"x"),
    ]:
        assert same(decode(encode(value)), plain)
    numpy = pytest.importorskip("numpy")
    assert same(decode(encode([numpy.float64(0.5), numpy.int32(7), numpy.bool_(True)])), [0.5, 7, True])
    assert same(decode(encode(numpy.arange(4).reshape(2, 2))), [[0, 1], [2, 3]])


def test_what_has_no_plain_form_is_equal_to_nothing():
    class Equal:
        __eq__ = lambda *_: True  # noqa: E731
        __hash__ = object.__hash__
        __class__ = str  # type: ignore[assignment]

    value = decode(encode([Equal()]))[0]
    assert type(value) is Opaque
    assert repr(value).endswith("Equal>")
    assert value != 1
    assert value != decode(encode([Equal()]))[0]
    import re

    assert decode(encode(re.match("a", "a")))  # a match is true, as tests of such functions expect
    assert decode(encode(range(3))) == range(3)
    assert list(decode(encode(x for x in "ab"))) == ["a", "b"]
    assert decode(encode(x for x in "ab")) != ["a", "b"]
    assert decode(encode({1: 2}.keys())) == {1}


MALFORMED = [
    b"",
    b"NN",
    b"i5",
    b"l2:N",
    b"l-1:",
    b"l99999999999:N",
    b"s5:ab",
    b"s-1:",
    b"S1:l0:",
    b"d1:l0:N",
    b"?",
    b"fx;",
]
MALFORMED += [
    b"l1:" * 400 + b"N",
    b"o" + encode((1, 2)),
    b"r" + encode((1, 2, 0)),
    b"x" + encode((1, 0)),
    b"r" + encode("ab"),
]
MALFORMED += [
    b"m4:sNaN",
    b"m11:1e200000000",
    b"f" + b"1" * 100 + b";",
    b"I30:" + b"1" * 30,
    b"I3:1, ",
    b"xt2:T" + encode(2),
    b"x" + encode((1 << 300_000, 3)),
    b"S40:" + b"".join(b"i%x;" % (number * (2**61 - 1)) for number in range(40)),
    b"D" + encode(("date", 2024, 2, 30)),
    b"D" + encode(("date", 2024, 2)),
    b"D" + encode(("timezone", 1)),
    b"qt0:",
]
MALFORMED += [b"m3:abc", b"I3:1,x", b"I9999:1", b"q" + encode(3), b"g" + encode(3), b"k" + encode([[]])]


@pytest.mark.parametrize("data", MALFORMED)
def test_malformed_bytes(data):
    with pytest.raises(WireError):
        decode(data)


def test_items_are_counted():
    assert decode(encode([[1], {2: 3}]), most_items=5) == [[1], {2: 3}]  # 2 + 1 + 2
    for value in ([[1], {2: 3}], list(range(10)), [None] * 5, {1: 2, 3: 4, 5: 6}):
        with pytest.raises(WireError, match="too many items"):
            decode(encode(value), most_items=4)


def test_depth_is_bounded_on_the_way_out_too():
    deep: list = []
    for _ in range(201):
        deep = [deep]
    with pytest.raises(WireError, match="nested more than 200 deep"):
        encode(deep)
    assert decode(encode(deep[0])) == deep[0]
