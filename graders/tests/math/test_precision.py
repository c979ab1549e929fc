"""Numbers that agree in all digits anyone would print: each pair differs, and no threshold may hide it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_graders.math.algebra import ValueAlgebra
from rlvr_graders.math.compare import judge
from rlvr_graders.math.latex import tokens_of
from rlvr_graders.math.sets import real_set
from rlvr_graders.math.structure import read
from rlvr_graders.verdict import CORRECT

ALGEBRA = ValueAlgebra()


def same(reference: str, prediction: str) -> bool:
    return judge(reference, prediction, ALGEBRA) == CORRECT


@pytest.mark.parametrize(
    ("reference", "prediction"),
    [
        ("2^{2024}", "2^{2024}-1"),
        ("2^{300000}", "2^{300000}+1"),
        ("50!", "50!+1"),
        (r"\binom{1000}{500}", r"\binom{1000}{500}-1"),
        (r"1-\frac{1}{2^{100}}", "1"),
        ("e^{-101}", "e^{-100}"),
        ("0", "e^{-5000}"),
        ("1", "1-e^{-5000}"),
        (r"\pi", r"\pi+10^{-300}"),
        ("10^{200}", r"\sqrt{10^{400}+1}"),
        (r"\tanh(100)", "1"),
        (r"\operatorname{erf}(14)", "1"),
        (r"\zeta(900)", "1"),
        (r"\cosh(300)", r"\frac{e^{300}}{2}"),
        (r"e^{\pi\sqrt{163}}", "640320^3+744"),
        (r"x+10^{-80}", "x"),
        (r"\frac{x}{1+e^{-200}}", "x"),
        (r"(0, \sqrt{2})", r"(0, \sqrt{2}+10^{-90})"),
        (r"\begin{pmatrix} 1 \\ \pi \end{pmatrix}", r"\begin{pmatrix} 1 \\ \pi+10^{-90} \end{pmatrix}"),
    ],
)
def test_a_difference_of_any_size_counts(reference: str, prediction: str) -> None:
    assert not same(reference, prediction)
    assert not same(prediction, reference)
    assert same(reference, reference + "+0") or reference[0] in r"(\b"


@pytest.mark.parametrize(
    ("reference", "prediction"),
    [
        ("e^{-5000}", r"\left(e^{-2500}\right)^2"),
        (r"\sqrt{10^{400}+1}", r"\sqrt{(10^{200})^2+1}"),
        ("0", r"\sin(\pi)"),
        ("0", r"\sqrt{(\sqrt{2})^2-2}"),  # noise under the root: half of the digits are lost
        ("0", r"e^{i\pi}+1"),
        ("10^{10^{10}}", "10^{10000000000}"),
        (r"\sqrt[3]{2+\sqrt{5}}+\sqrt[3]{2-\sqrt{5}}", "1"),
        (r"4\arctan\frac15-\arctan\frac1{239}", r"\frac{\pi}{4}"),
    ],
)
def test_the_same_number_in_other_words(reference: str, prediction: str) -> None:
    assert same(reference, prediction)
    assert same(prediction, reference)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 3000))
def test_roots_and_tiny_steps(radicand: int, factor: int, places: int) -> None:
    r"""a\sqrt{b} is \sqrt{a^2 b}, and is not that plus 10^{-n} for any n."""
    reference = rf"{factor}\sqrt{{{radicand}}}"
    assert same(reference, rf"\sqrt{{{factor**2 * radicand}}}")
    assert not same(reference, rf"\sqrt{{{factor**2 * radicand}}}+10^{{-{places}}}")


small = st.integers(-4, 4)
interval = st.tuples(small, small, st.sampled_from(["()", "(]", "[)", "[]"])).filter(lambda i: i[0] < i[1])


def members(text: str) -> set[float]:
    """Which of the points -5, -4.5, ..., 5 lie in a union of intervals, as Python's own comparisons say."""
    found = set()
    for part in text.split(r"\cup"):
        low, high = (int(end) for end in part.strip()[1:-1].split(","))
        for step in range(-10, 11):
            point = step / 2
            above = point >= low if part.strip()[0] == "[" else point > low
            below = point <= high if part.strip()[-1] == "]" else point < high
            found |= {point} if above and below else set()
    return found


@given(st.lists(interval, min_size=1, max_size=4), st.lists(interval, min_size=1, max_size=4))
def test_sets_are_equal_where_their_points_are(one: list[tuple], other: list[tuple]) -> None:
    """All ends are whole numbers, so the points at halves tell two unions apart."""
    texts = [r" \cup ".join(f"{form[0]}{a},{b}{form[1]}" for a, b, form in parts) for parts in (one, other)]
    left, right = (real_set(read(tokens_of(text))) for text in texts)
    assert (left == right) == (members(texts[0]) == members(texts[1]))
