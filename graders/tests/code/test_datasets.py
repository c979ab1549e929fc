"""Tests read from the shapes that data sets store them in (rows of our own in those shapes)."""

from __future__ import annotations

import base64
import bisect
import builtins
import collections
import copy
import heapq
import itertools
import json
import math
import operator
import os
import pickle
import random
import re
import string
import zlib

import pytest

from rlvr_graders.code import AssertionTests, Call, FunctionTests, Run, StdioTests, grade_code, parse_tests
from rlvr_graders.code.cases import dump_tests
from rlvr_graders.code.datasets import LEETCODE_PREAMBLE, evalplus_tests, livecodebench_tests

HUMANEVAL = {
    "task_id": "Own/0",
    "prompt": 'def half(x):\n    return x / 2\n\n\ndef quarter(x: float) -> float:\n    """ A quarter. """\n',
    "entry_point": "quarter",
    "canonical_solution": "    return half(half(x))\n",
    "test": "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate(8) == half(4)\n",
}


def test_humaneval():
    tests = parse_tests(HUMANEVAL)
    assert isinstance(tests, AssertionTests)
    prompt = HUMANEVAL["prompt"]
    assert grade_code(HUMANEVAL["canonical_solution"], tests, prompt=prompt).score == 1
    assert grade_code("    return half(x)\n", tests, prompt=prompt).reason == "wrong answer"
    # The tests' own helper is theirs: a candidate that redefines it changes nothing.
    cheat = "    return half(half(x))\n\ndef half(x):\n    return 0\n"
    assert grade_code(cheat, tests, prompt=prompt).score == 0


def test_mbpp():
    row = {"test_list": ["assert set(common((1, 2), (2, 3))) == {2}"], "test_setup_code": "", "challenge_test_list": []}
    tests = parse_tests(json.dumps(row))
    assert tests.entry_point == "common"
    assert grade_code("def common(a, b):\n    return tuple(set(a) & set(b))", tests).score == 1
    assert grade_code("def common(a, b):\n    return ()", tests).score == 0
    imported = {"test_list": ["assert math.isclose(area(1), math.pi)"], "test_imports": ["import math"]}
    assert grade_code("def area(r):\n    return 3.141592653589793", parse_tests(imported)).score == 1
    with pytest.raises(ValueError, match="call no function"):
        parse_tests({"test_list": ["assert len('a') == 1"]})


def test_evalplus():
    row = {
        "task_id": "Mbpp/2",
        "prompt": '"""\nShared elements.\n"""\n',
        "entry_point": "similar_elements",
        "canonical_solution": "\ndef similar_elements(a, b):\n  assert type(a) is tuple\n  return tuple(set(a) & set(b))\n",
        "base_input": [[[3, 4], [4, 5]]],
        "plus_input": [[[1, 2, 3], [3, 2]]],
        "atol": 0,
    }
    tests = evalplus_tests(row)
    assert tests.comparison == "set"
    assert tests.calls[1] == Call(((1, 2, 3), (3, 2)), (2, 3))
    assert grade_code("def similar_elements(a, b):\n    return [x for x in a if x in b]", tests).score == 1
    assert grade_code("def similar_elements(a, b):\n    return a", tests).score == 0
    floats = {**row, "task_id": "HumanEval/4", "entry_point": "third", "plus_input": [[2.0]], "base_input": [[1.0]]}
    floats["canonical_solution"] = "def third(x):\n    return x / 3\n"
    tests = evalplus_tests(floats)
    assert (tests.absolute_tolerance, tests.calls[0]) == (1e-6, Call((1.0,), 1 / 3))
    with pytest.raises(ValueError, match="reference solution of third fails: raised ZeroDivisionError"):
        evalplus_tests({**floats, "canonical_solution": "def third(x):\n    return x / 0\n"})


def test_evalplus_accepts_any_root():
    prompt = "def poly(xs, x):\n    return sum(c * x**i for i, c in enumerate(xs))\n\n\ndef find_zero(xs):\n    '''A root.'''\n"
    row = {"task_id": "HumanEval/32", "prompt": prompt, "entry_point": "find_zero", "atol": 1e-4}
    tests = evalplus_tests({**row, "canonical_solution": "", "base_input": [[[-4, 0, 1]]], "plus_input": [[[1, 2]]]})
    right = "    return -0.5 if xs == [1, 2] else SIGN\n"
    for sign, score in (("2.0", 1), ("-2.0", 1), ("2.1", 0)):
        assert grade_code(right.replace("SIGN", sign), tests, prompt=prompt).score == score


CASES = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}, {"input": "4 5", "output": "9", "testtype": "stdin"}]


def archive(value):
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def test_livecodebench_standard_input():
    row = {
        "public_test_cases": json.dumps(CASES[:1]),
        "private_test_cases": archive(json.dumps(CASES[1:])),
        "metadata": "{}",
    }
    tests = parse_tests(row)
    assert tests == StdioTests((Run("1 2\n", "3\n"), Run("4 5", "9")))
    assert parse_tests(CASES) == tests
    assert parse_tests({**row, "private_test_cases": archive(CASES[1:])}) == tests
    assert grade_code("print(sum(map(int, input().split())))", tests).score == 1


def test_livecodebench_function():
    case = {"input": '[3, 1]\n"up"', "output": "[1, 3]", "testtype": "functional"}
    row = {"public_test_cases": [case], "private_test_cases": "[]", "metadata": json.dumps({"func_name": "order"})}
    tests = livecodebench_tests(row)
    assert tests.calls == (Call(([3, 1], "up"), [1, 3]),)
    right = "class Solution:\n    def order(self, x: List[int], way: str) -> Tuple[int, ...]:\n        return tuple(sorted(x))"
    assert grade_code(right, tests).score == 1
    assert grade_code(right.replace("sorted", "list"), tests).score == 0
    with pytest.raises(ValueError, match="metadata"):
        livecodebench_tests({**row, "metadata": "{}"})
    with pytest.raises(ValueError, match="all 'stdin' or all 'functional'"):
        livecodebench_tests({**row, "public_test_cases": [case, CASES[0]]})


def test_leetcodes_names_are_there_and_hide_nothing():
    """Every name that is built in, every module under its own name, and the classes of collections, not of typing."""
    names: dict = {}
    exec(LEETCODE_PREAMBLE, names)
    shadowed = [
        name for name in dir(builtins) if not name.startswith("__") and names[name] is not getattr(builtins, name)
    ]
    assert shadowed == []
    for module in (bisect, collections, copy, heapq, itertools, math, operator, random, re, string):
        assert names[module.__name__] is module
    assert names["Counter"] is collections.Counter
    assert names["OrderedDict"] is collections.OrderedDict
    for name in ("List", "gcd", "inf", "bisect_left", "heappush", "lru_cache", "accumulate", "deepcopy", "reduce"):
        assert name in names
    case = {"inputs": [[2, 10, 1000]], "outputs": [24], "fn_name": "power"}
    program = "class Solution:\n    def power(self, a: int, b: int, m: int) -> int:\n        return pow(a, b, m)"
    assert grade_code(program, parse_tests(case)).reason == "correct"


class Evil:
    def __reduce__(self):
        return (os.system, ("touch /tmp/delta-rlvr-evil",))


def test_an_archive_cannot_run_code():
    row = {"public_test_cases": "[]", "private_test_cases": archive([Evil()])}
    with pytest.raises(ValueError, match=r"the archive names posix\.system"):
        livecodebench_tests(row)
    assert not os.path.exists("/tmp/delta-rlvr-evil")
    with pytest.raises(ValueError, match="neither JSON nor a base64 archive"):
        livecodebench_tests({**row, "private_test_cases": "?!"})
    with pytest.raises(ValueError, match="must be a list, not dict"):
        livecodebench_tests({**row, "private_test_cases": archive({"input": ""})})


def test_eurus():
    tests = parse_tests('{"inputs": ["1\\n", ["2", "3"]], "outputs": ["0.333333", ["5"]]}')
    assert tests.runs == (Run("1\n", "0.333333"), Run("2\n3", "5"))
    tests = parse_tests({"inputs": [[[1, 2]], [[3]]], "outputs": [[3], [3]], "fn_name": "total"})
    assert grade_code("def total(x):\n    return sum(x)", tests).score == 1
    assert grade_code("def total(x):\n    return [sum(x)]", tests).score == 1
    assert grade_code("def total(x):\n    return len(x)", tests).score == 0
    with pytest.raises(ValueError, match="2 inputs and 1 outputs"):
        parse_tests({"inputs": ["", ""], "outputs": [""]})


def test_records_as_json():
    for tests in (
        FunctionTests("f", (Call(([1], "a"), {"k": None}, (2,)),), 1e-3, comparison="set", preamble="import math\n"),
        AssertionTests("f", "assert f(1) == 1", setup="x = 1", in_place=True),
        StdioTests((Run("a", "b"),), relative_tolerance=0.1),
    ):
        assert parse_tests(dump_tests(tests)) == tests
    for value in ((1, 2), {1: 2}, {1}, [b""], 1j):
        with pytest.raises(ValueError, match="call 0 of f holds"):
            dump_tests(FunctionTests("f", (Call((value,), 1),)))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{", "not JSON"),
        (7, "not int"),
        ([], "not list"),
        ({"a": 1}, r"fields \['a'\]"),
        ({"kind": "docker"}, "kind of tests must be one of"),
        ({"kind": "stdio", "runs": []}, "check nothing"),
        ({"kind": "stdio", "runs": [{"input": "", "output": ""}], "x": 1}, "a field too many"),
        ({"kind": "function", "entry_point": "f", "calls": []}, "check nothing"),
        ({"kind": "assertions", "entry_point": "f", "source": " "}, "check nothing"),
        ({"kind": "assertions", "entry_point": "f", "source": "assert ("}, "source of the tests of f is not Python"),
        ({"kind": "assertions", "entry_point": "f(1)", "source": "1"}, "must be a function's name"),
        (
            {"kind": "function", "entry_point": "f", "calls": [{"arguments": [], "expected": 1}], "comparison": "x"},
            "comparison",
        ),
    ],
)
def test_bad_tests_are_named(value, words):
    with pytest.raises(ValueError, match=words):
        parse_tests(value)


def test_a_name_that_leetcode_imports_is_no_answer():
    """`search` is a function of `re` there, and the method of many a problem."""
    tests = parse_tests({"inputs": [[[1, 3, 5], 3], [[1], 2]], "outputs": [1, -1], "fn_name": "search"})
    method = """
class Solution:
    def search(self, nums: List[int], target: int) -> int:
        return nums.index(target) if search("[0-9]", str(target)) and target in nums else -1
"""
    assert grade_code(f"```python\n{method}\n```", tests).score == 1.0
    plain = "import operator\nadd = operator.add"
    sums = parse_tests({"inputs": [[1, 2]], "outputs": [3], "fn_name": "add"})
    assert grade_code(f"```python\n{plain}\n```", sums).score == 1.0
    verdict = grade_code("```python\ndef plus(a, b):\n    return a + b\n```", sums)
    assert verdict.reason.endswith("the program defines no function add")


def test_answers_are_wrapped_in_lists_only_where_all_of_them_are():
    """ "outputs": [[3], [1, 2]] are lists: a bare 3 is another answer than [3]."""
    one, two = ({"fn_name": "f", "inputs": [[1], [2]], "outputs": outputs} for outputs in ([[3], [4]], [[3], [1, 2]]))
    assert [call.alternatives for call in parse_tests(one).calls] == [(3,), (4,)]
    assert [call.alternatives for call in parse_tests(two).calls] == [(), ()]


def test_a_field_that_is_missing_is_named():
    with pytest.raises(ValueError, match="'prompt'"):
        parse_tests({"test": "def check(f): pass", "entry_point": "f"})
