"""Finding the program in a completion, and comparing what it gave: no sandbox involved."""

from __future__ import annotations

import pytest

from delta_rlvr.rewards.code import Call, FunctionTests, Run, StdioTests
from delta_rlvr.rewards.code.compare import answer_matches, output_matches, values_match
from delta_rlvr.rewards.code.extract import continue_prompt, extract_code
from delta_rlvr.rewards.code.sandbox.wire import encode


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("a\n```python\nx = 1\n```\nb\n```py\nx = 2\n```\nc", "x = 2\n"),
        ("```python\nx = 1\n```\nIt prints\n```\n1\n```", "x = 1\n"),  # unlabelled output after the program
        ("```python\nx = 1\n```\n```bash\npython x.py\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```Python3 title\nx = 1\n```", "x = 1\n"),
        ("~~~python\nx = '```'\n~~~", "x = '```'\n"),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
        ("```python\nx = 1", "x = 1"),  # cut off: the program is what there is
        ("1. Do:\n   ```python\n   def f():\n       return 1\n   ```", "def f():\n    return 1\n"),
        ("```python\nx = 0\n```\n</think>\n```python\nx = 1\n```", "x = 1\n"),
        ("<think>```python\nx = 0\n```</think>I cannot.", None),
        ("def f():\n    return 1\n", "def f():\n    return 1\n"),
        ("print(1)", "print(1)"),
        ("hello", None),
        ("42", None),
        ("The answer is 42.", None),
        ("```json\n{}\n```", None),
        ("```python\n```", None),
        ("", None),
    ],
)
def test_extract(completion, program):
    assert extract_code(completion) == program


def test_continuation():
    prompt = "import math\n\ndef f(x):\n    '''Doc.'''\n"
    assert continue_prompt(prompt, "    return x\n", "f") == prompt + "    return x\n"
    assert continue_prompt(prompt, "```python\nreturn x\n```", "f") == prompt + "    return x\n"
    whole = continue_prompt(prompt, "```python\ndef f(x):\n    return 2\n```", "f")
    names: dict = {}
    exec(whole, names)
    assert names["f"](1) == 2
    assert names["math"].pi > 3


NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "wanted", "options", "equal"),
    [
        (1, 1.0, {}, True),
        (True, 1, {}, True),  # as Python has it
        ("1", 1, {}, False),
        ([1, 2], (1, 2), {}, False),
        ([(1, 2)], [[1, 2]], {"tuples_as_lists": True}, True),
        (NAN, NAN, {}, True),
        ([NAN], [1.0], {"absolute": 1e9}, False),
        (0.3, 0.1 + 0.2, {}, False),
        (0.3, 0.1 + 0.2, {"absolute": 1e-9}, True),
        ([1.0, 2.1], [1.0, 2.0], {"relative": 0.06}, True),
        ([1.0, 2.1], [1.0, 2.0], {"relative": 0.04}, False),
        ({"a": 1.0000001}, {"a": 1}, {"absolute": 1e-6}, True),
        ({"a": 1, "b": 2}, {"a": 1}, {}, False),
        ({1, 2}, {2, 1}, {}, True),
        (1 + 1e-9j, 1 + 0j, {"absolute": 1e-6}, True),
        (float("inf"), 1e308, {"absolute": 1e308}, False),
        (10**400, 1.0, {"absolute": 1e-6}, False),
        (None, False, {}, False),
        ([], None, {}, False),
    ],
)
def test_values(value, wanted, options, equal):
    assert values_match(value, wanted, **options) is equal


def test_comparisons():
    def check(comparison, value, expected):
        tests = FunctionTests("f", (Call((), expected),), comparison=comparison)
        return answer_matches(encode(value), tests.calls[0], tests)

    assert check("set", [2, 1, 1], (1, 2))
    assert not check("set", [2, 1, 3], (1, 2))
    assert not check("set", 7, (1, 2))
    assert not check("set", [[1]], (1, 2))  # a list has no hash
    assert check("not_none", "x", True)
    assert check("not_none", object(), True)
    assert check("not_none", None, False)
    assert not check("not_none", None, True)
    assert not check("not_none", False, True)
    assert not check("equal", "x" * 100_000, "x")
    tests = FunctionTests("f", (Call((), [3], alternatives=(3,)),))
    assert answer_matches(encode(3), tests.calls[0], tests)
    assert answer_matches(encode([3]), tests.calls[0], tests)
    assert not answer_matches(encode(4), tests.calls[0], tests)
    assert not answer_matches(b"garbage", tests.calls[0], tests)


@pytest.mark.parametrize(
    ("output", "wanted", "equal"),
    [
        ("1 2\n", "1 2", True),
        ("\n1  2 \n\n", "1 2\n", True),
        ("1\n2", "1 2", False),  # lines are lines
        ("1 2 3", "1 2", False),
        ("YES", "yes", False),
        ("1.0", "1", True),
        ("1.50 x", "1.5 x", True),
        ("100000000000000001", "100000000000000000", False),
        ("nan", "1", False),
        ("inf", "1e999", False),
        ("0.333333", "0.3333333333", False),
        ("", "", True),
        ("1" * 500, "1" * 500, True),
        ("1" * 500, "1" * 499 + "2", False),
    ],
)
def test_outputs(output, wanted, equal):
    assert output_matches(output, wanted, StdioTests((Run("", wanted),))) is equal


def test_outputs_within_a_tolerance():
    tests = StdioTests((Run("", ""),), absolute_tolerance=1e-4)
    assert output_matches("0.33333", "0.3333333333", tests)
    assert not output_matches("0.334", "0.3333333333", tests)
    assert not output_matches(
        "3", "4", StdioTests((Run("", ""),), absolute_tolerance=10)
    )  # whole numbers are exact
