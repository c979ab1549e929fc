"""Every tolerance has a reason: it is computed from dtype, length and size (tests/rounding.py), or a comment gives another one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rounding import rounding

TESTS = Path(__file__).parent
TOLERANCES = {"abs", "rel", "atol", "rtol"}


def bare_tolerances(source: str) -> Iterator[int]:
    """Lines on which a tolerance is a plain number, and neither that call nor the line above it has a comment."""
    lines = source.splitlines()
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or getattr(call.func, "id", "") == "rounding":
            continue
        for keyword in call.keywords:
            if keyword.arg not in TOLERANCES or not isinstance(keyword.value, ast.Constant):
                continue
            where = lines[max(0, call.lineno - 2) : call.end_lineno]
            if keyword.value.value and not any("# " in line for line in where):
                yield keyword.value.lineno


def test_every_tolerance_has_a_reason():
    bare = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in bare_tolerances(path.read_text(encoding="utf-8"))
    ]
    assert bare == [], "use rounding(...), or say in a comment why it is this number"


def test_what_counts_as_a_reason():
    assert list(bare_tolerances("x == approx(1, abs=1e-6)")) == [1]
    assert list(bare_tolerances("y = 0\nassert_close(\n    a, b, atol=1e-6, rtol=0\n)")) == [3]
    assert not list(bare_tolerances("x == approx(1, abs=1e-6)  # six digits are printed"))
    assert not list(bare_tolerances("# six digits are printed\nx == approx(1, abs=1e-6)"))
    assert not list(bare_tolerances("x == approx(1, abs=rounding(10, size=2.0), rel=0)"))


def test_rounding_by_hand():
    # eps = 2^-23: 4 sqrt(2) 2^-24 for one rounding, ten times that for a sum of a hundred, three times for a size of 3.
    assert rounding() == pytest.approx(4 * 2**0.5 * 2**-24)
    assert rounding(100, size=3.0) == pytest.approx(30 * rounding())
    assert rounding(dtype=torch.float64) == pytest.approx(4 * 2**0.5 * 2**-53)


@pytest.mark.numeric
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("terms", [10, 1000, 100_000])
def test_sums_in_any_order_lie_within_it_and_mistakes_do_not(dtype, terms):
    values = torch.randn(terms, generator=torch.Generator().manual_seed(terms), dtype=torch.float64).to(dtype)
    size = values.abs().sum().item()
    sums = [
        values.sum().item(),
        values.flip(0).cumsum(0)[-1].item(),  # one after another
        (values[None] @ torch.ones(terms, 1, dtype=dtype)).item(),
        sum(part.sum().item() for part in values.split(7)),
    ]
    assert max(sums) - min(sums) < rounding(terms, size, dtype)
    # One term in a hundred counted twice would be seen.
    assert values[: max(1, terms // 100)].abs().sum().item() > rounding(terms, size, dtype)
