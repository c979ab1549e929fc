"""Tests from the shapes that data sets store them in."""

from __future__ import annotations

import ast
import base64
import binascii
import builtins
import io
import json
import math
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlvr_graders.code.cases import (
    AssertionTests,
    Call,
    CodeTests,
    Comparison,
    FunctionTests,
    Run,
    StdioTests,
    load_tests,
)
from rlvr_graders.code.sandbox.errors import ProgramFailure
from rlvr_graders.code.sandbox.runner import Runner
from rlvr_graders.code.sandbox.wire import decode
from rlvr_graders.code.settings import CodeSettings

LARGEST_ARCHIVE = 1 << 30
# LeetCode's editor imports these for its users, and LiveCodeBench's own harness does too. The order matters: a module
# wins over its namesake (bisect.bisect, random.random), and what is built in over everything (pow, compile, open).
LEETCODE_PREAMBLE = """\
from typing import *
from operator import *
from string import *
from re import *
from io import *
from sys import *
from copy import *
from random import *
from math import *
from bisect import *
from heapq import *
from collections import *
from itertools import *
from functools import *
import bisect, collections, copy, functools, heapq, io, itertools, math, operator, random, re, string, sys
from builtins import *
sys.setrecursionlimit(50000)
"""
# EvalPlus compares these answers as sets, or only for being there (a match object has no plain form).
AS_SETS = {
    *("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum"),
    *("intersection_array", "find_dissimilar", "Diff"),
}
FOR_PRESENCE = {"check_str", "text_match_three", "text_starta_endb"}


def parse_tests(value: Any) -> CodeTests:
    """Tests from a record, or from JSON (text or parsed) in any shape that this module knows."""
    if isinstance(value, (FunctionTests, AssertionTests, StdioTests)):
        return value
    if isinstance(value, (str, bytes)):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"tests are a text that is not JSON: {error}") from None
    if isinstance(value, Mapping):
        try:
            for mark, read in SHAPES.items():
                if mark <= value.keys():
                    return read(value)
        except KeyError as error:
            raise ValueError(f"tests with the fields {sorted(value)} lack {error}") from None
        raise ValueError(f"no known shape of tests has the fields {sorted(value)}")
    if isinstance(value, Sequence) and value and all(isinstance(row, Mapping) for row in value):
        return _livecodebench_cases(list(value), None)
    raise ValueError(f"tests must be a record or JSON, not {type(value).__name__}")


def humaneval_tests(row: Mapping[str, Any]) -> AssertionTests:
    """HumanEval: `test` defines check(candidate); the prompt's helpers are there for it as in the original harness."""
    entry = row["entry_point"]
    return AssertionTests(entry, source=f"{row['test']}\n\ncheck({entry})\n", setup=row["prompt"])


def mbpp_tests(row: Mapping[str, Any]) -> AssertionTests:
    """MBPP: a list of assert statements that call the function by its name."""
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports") or ())
    source = "\n".join([*row["test_list"], *(row.get("challenge_test_list") or ())])
    return AssertionTests(_called_name(source, setup), source=source, setup=setup)


def _called_name(source: str, setup: str) -> str:
    """The function under test: the first name called in an assert that is neither built in nor set up."""
    known = set(dir(builtins))
    for node in ast.walk(ast.parse(setup)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            known.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            known |= {name.asname or name.name for name in node.names}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in known:
            return node.func.id
    raise ValueError("the assertions call no function that a program could define")


def evalplus_tests(row: Mapping[str, Any], settings: CodeSettings | None = None) -> CodeTests:
    """HumanEval+ and MBPP+: inputs, and a reference solution whose answers (found in a sandbox) are the expectation."""
    entry, number = row["entry_point"], int(row["task_id"].split("/")[-1])
    mbpp = row["task_id"].lower().startswith("mbpp")
    inputs = [*row["base_input"], *row["plus_input"]]
    if entry == "find_zero":  # every root is right, so the polynomial is asked and not the reference
        source = f"for xs in {inputs!r}:\n    assert abs(poly(*xs, find_zero(*xs))) <= {row['atol']!r}\n"
        return AssertionTests(entry, source=source, setup=row["prompt"])
    if mbpp:
        inputs = [_mbpp_arguments(number, arguments) for arguments in inputs]
    arguments = [tuple(item) for item in inputs]
    expected = reference_answers(row["prompt"] + row["canonical_solution"], entry, arguments, settings)
    comparison: Comparison = "equal"
    if mbpp and entry in AS_SETS:
        comparison = "set"
    elif mbpp and entry in FOR_PRESENCE:
        comparison, expected = "not_none", [answer is not None for answer in expected]
    tolerance = float(row["atol"])
    if tolerance == 0 and any(map(_is_floats, expected)):
        tolerance = 1e-6
    calls = [
        Call(given, answer, _alternatives(entry, given) if mbpp else ())
        for given, answer in zip(arguments, expected, strict=True)
    ]
    return FunctionTests(entry, tuple(calls), tolerance, 1e-7 if tolerance else 0.0, comparison)


def reference_answers(
    program: str, entry: str, arguments: Sequence[tuple[Any, ...]], settings: CodeSettings | None = None
) -> list[Any]:
    """What a reference solution returns, run in a sandbox like any other program."""
    runner = Runner(settings or CodeSettings())
    try:
        calls = [(given, runner.settings.output_bytes) for given in arguments]
        return [decode(answer) for answer in runner.calls(program, entry, calls)]
    except ProgramFailure as failure:
        raise ValueError(f"the reference solution of {entry} fails: {failure}") from None


def _is_floats(value: Any) -> bool:
    items = value if isinstance(value, (list, tuple)) else [value]
    return bool(items) and all(isinstance(item, float) for item in items)


def _alternatives(entry: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Other readings of an ambiguous MBPP statement that EvalPlus accepts."""
    if entry == "sum_div":
        return (0,)
    if entry == "surface_Area":  # the height as the distance from base to apex
        base, height = arguments
        return (round(base**2 + 2 * base * math.sqrt((base / 2) ** 2 + height**2)),)
    if entry == "digit_distance_nums":  # digit by digit, padded to one length
        left, right = map(str, arguments)
        width = max(len(left), len(right))
        pairs = zip(left.zfill(width), right.zfill(width), strict=True)
        return (sum(abs(int(a) - int(b)) for a, b in pairs),)
    return ()


def _deep_tuples(value: Any) -> Any:
    return tuple(map(_deep_tuples, value)) if isinstance(value, list) else value


# MBPP+ is stored as JSON: these tasks' tuples, sets and complex numbers have to be put back, as EvalPlus does.
ARGUMENTS_ARE_TUPLES = {2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424}
ARGUMENTS_ARE_TUPLES |= {429, 470, 560, 579, 596, 616, 630, 726, 740, 744, 809}
LISTS_OF_TUPLES = {63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780}


def _mbpp_arguments(task: int, given: list[Any]) -> Sequence[Any]:
    if task in ARGUMENTS_ARE_TUPLES:
        return [tuple(item) for item in given]
    if task in LISTS_OF_TUPLES:
        return [[tuple(item) for item in argument] for argument in given]
    if task in {75, 413, 444, 753}:
        return [[tuple(item) for item in given[0]], given[1]]
    if task in {106, 750}:
        return [given[0], tuple(given[1])]
    if task == 115:
        return [[set(item) if isinstance(item, list) and item else {} for item in given[0]]]
    if task == 124:
        return [float(given[0]), complex(given[1])]
    if task in {250, 307, 405, 446, 617, 720, 763, 808}:
        return [tuple(given[0]), *given[1:]]
    if task in {259, 401, 445}:
        return [tuple(tuple(item) for item in argument) for argument in given]
    if task == 278:
        return [tuple(tuple(item) if isinstance(item, list) else item for item in given[0])]
    if task == 722:
        return [{key: tuple(value) for key, value in given[0].items()}, *given[1:]]
    if task == 252:
        return [complex(given[0])]
    if task in {580, 615, 791}:
        return _deep_tuples(given)  # type: ignore[no-any-return]
    return given


class _PlainUnpickler(pickle.Unpickler):
    """Unpickles strings, numbers and containers; anything that would name a class or a function is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"refused: the archive names {module}.{name}")


def livecodebench_tests(row: Mapping[str, Any]) -> CodeTests:
    """LiveCodeBench: public and private cases, all of standard input or all of a function."""
    public, private = row["public_test_cases"], row.get("private_test_cases") or "[]"
    cases = _livecodebench_list(public) + _livecodebench_list(private)
    metadata = row.get("metadata") or "{}"
    metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    return _livecodebench_cases(cases, metadata.get("func_name"))


def _livecodebench_list(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, str):
        return list(value)
    try:
        return list(json.loads(value))
    except ValueError:
        pass  # the archived form
    try:
        opener = zlib.decompressobj()
        data = opener.decompress(base64.b64decode(value, validate=True), LARGEST_ARCHIVE)
        if opener.unconsumed_tail:
            raise ValueError(f"it unpacks to more than {LARGEST_ARCHIVE} bytes")
        text = _PlainUnpickler(io.BytesIO(data)).load()
        cases = json.loads(text) if isinstance(text, str) else text
    except (ValueError, binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, IndexError) as error:
        raise ValueError(f"test cases are neither JSON nor a base64 archive of it: {error}") from None
    if not isinstance(cases, list):
        raise ValueError(f"test cases must be a list, not {type(cases).__name__}")
    return cases


def _livecodebench_cases(cases: list[Mapping[str, Any]], function: str | None) -> CodeTests:
    kinds = {case.get("testtype", "stdin") for case in cases}
    if kinds == {"functional"}:
        if not function:
            raise ValueError("functional test cases need the function's name: metadata['func_name']")
        calls = [
            Call(tuple(json.loads(line) for line in case["input"].split("\n")), json.loads(case["output"]))
            for case in cases
        ]
        return FunctionTests(function, tuple(calls), tuples_as_lists=True, preamble=LEETCODE_PREAMBLE)
    if kinds != {"stdin"}:
        raise ValueError(f"test cases must be all 'stdin' or all 'functional', not {sorted(kinds)}")
    return StdioTests(tuple(Run(case["input"], case["output"]) for case in cases))


def inputs_outputs_tests(row: Mapping[str, Any]) -> CodeTests:
    """APPS, TACO, Eurus-2-RL-Data: {"inputs": [...], "outputs": [...]}, with "fn_name" where a function is asked for."""
    inputs, outputs = row["inputs"], row["outputs"]
    if len(inputs) != len(outputs):
        raise ValueError(f"{len(inputs)} inputs and {len(outputs)} outputs: they must pair up")
    function = row.get("fn_name")
    if not function:
        runs = [Run(_text(given), _text(wanted)) for given, wanted in zip(inputs, outputs, strict=True)]
        return StdioTests(tuple(runs), absolute_tolerance=1e-8, relative_tolerance=1e-5)
    # Answers may be wrapped in lists. Nothing says so, but then all of them are.
    wrapped = all(isinstance(wanted, list) and len(wanted) == 1 for wanted in outputs)
    calls = []
    for given, wanted in zip(inputs, outputs, strict=True):
        if isinstance(given, str):  # LiveCodeBench's form: an argument a line, each in JSON
            given, wanted = [json.loads(line) for line in given.split("\n")], json.loads(wanted)
            calls.append(Call(tuple(given), wanted))
        else:
            calls.append(Call(tuple(given), wanted, (wanted[0],) if wrapped else ()))
    return FunctionTests(function, tuple(calls), 1e-8, 1e-5, tuples_as_lists=True, preamble=LEETCODE_PREAMBLE)


# The fields by which parse_tests knows them.
SHAPES: dict[frozenset[str], Callable[[Mapping[str, Any]], CodeTests]] = {
    frozenset({"kind"}): load_tests,
    frozenset({"inputs", "outputs"}): inputs_outputs_tests,
    frozenset({"public_test_cases"}): livecodebench_tests,
    frozenset({"test_list"}): mbpp_tests,
    frozenset({"test", "entry_point"}): humaneval_tests,
}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "\n".join(map(str, value))
