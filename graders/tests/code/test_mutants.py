"""The grader against an ordinary interpreter, on right programs and on mutants of them."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from code_mutants import mutants, plain_harness
from rlvr_graders.code import AssertionTests, CodeSettings, FunctionTests, grade_code_batch
from rlvr_graders.code.datasets import evalplus_tests, humaneval_tests

DATA = os.environ.get("DELTA_RLVR_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="DELTA_RLVR_DATA does not name the folder of data sets")

OWN = {
    "gcd": (
        "def gcd(a, b):\n    while b != 0:\n        a, b = b, a % b\n    return a\n",
        "assert gcd(12, 18) == 6\nassert gcd(7, 1) == 1\nassert gcd(0, 5) == 5\nassert gcd(9, 0) == 9\n",
    ),
    "caesar": (
        "def caesar(s, k):\n    out = ''\n    for c in s:\n        if 'a' <= c and c <= 'z':\n"
        "            out += chr((ord(c) - 97 + k) % 26 + 97)\n        else:\n            out += c\n    return out\n",
        "assert caesar('abz', 1) == 'bca'\nassert caesar('a-z', 25) == 'z-y'\nassert caesar('', 3) == ''\n",
    ),
    "intervals": (
        "def merge(xs):\n    out = []\n    for lo, hi in sorted(xs):\n        if out and lo <= out[-1][1]:\n"
        "            out[-1] = (out[-1][0], max(hi, out[-1][1]))\n        else:\n            out.append((lo, hi))\n"
        "    return out\n",
        "assert merge([(1, 3), (2, 6), (8, 10)]) == [(1, 6), (8, 10)]\nassert merge([(1, 4), (4, 5)]) == [(1, 5)]\n"
        "assert merge([]) == []\nassert merge([(1, 9), (2, 3)]) == [(1, 9)]\n",
    ),
}


def agree(programs, tests, sources, settings):
    """Verdicts of the grader, checked one by one against the plain interpreter: how many passed and failed."""
    verdicts = grade_code_batch(programs, tests, settings=settings)
    with ThreadPoolExecutor(2) as pool:
        plain = list(pool.map(plain_harness, sources))
    different = [
        (verdict.reason, source)
        for verdict, passed, source in zip(verdicts, plain, sources, strict=True)
        if bool(verdict.score) is not passed
    ]
    return different, Counter(plain)


def test_own_programs_and_their_mutants():
    programs, tests, sources = [], [], []
    for name, (right, source) in OWN.items():
        entry = right.split("(")[0].removeprefix("def ")
        for program in (right, *(text for _, text in mutants(right, 8, seed=len(name)))):
            programs.append(f"```python\n{program}\n```")
            tests.append(AssertionTests(entry, source))
            sources.append(f"{program}\n{source}")
    different, counts = agree(programs, tests, sources, CodeSettings(seconds_per_test=3.0))
    assert different == []
    assert counts[False] >= 18  # 24 mutants, a few of them equal to the original in what they do


def test_mutants_differ_from_their_source():
    right = OWN["gcd"][0]
    made = mutants(right, 100, seed=0)
    assert Counter(what for what, _ in made) == {
        "comparison": 1,
        "off by one": 1,
        "operator": 1,
        "operands": 1,
        "return None": 1,
    }
    assert len({text for _, text in made}) == 5


def rows(name):
    path = Path(DATA) / "code" / name
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return [json.loads(line) for line in lines]


SETTINGS = CodeSettings(seconds_per_test=20, seconds_total=60)


@needs_data
@pytest.mark.timeout(900)
def test_humaneval_canonical_solutions():
    problems = rows("HumanEval.jsonl.gz")
    verdicts = grade_code_batch(
        [row["canonical_solution"] for row in problems],
        [humaneval_tests(row) for row in problems],
        prompts=[row["prompt"] for row in problems],
        settings=SETTINGS,
    )
    assert {row["task_id"]: v.reason for row, v in zip(problems, verdicts, strict=True) if not v.score} == {}


# Its reference lists every multiset of colours: at the largest input more than the 2 GiB that a program may use.
TOO_LARGE = {"Mbpp/255"}
# Its reference adds up a hundred million numbers for each of sixteen inputs: minutes on busy processors.
TOO_SLOW = {"Mbpp/599"}


@needs_data
@pytest.mark.timeout(1800)
def test_mbpp_plus_canonical_solutions():
    problems = rows("mbpp_plus.jsonl")

    def prepare(row):
        try:
            return evalplus_tests(row, SETTINGS)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        tests = list(pool.map(prepare, problems))
    failed = {row["task_id"]: test for row, test in zip(problems, tests, strict=True) if isinstance(test, str)}
    usable = [(row, test) for row, test in zip(problems, tests, strict=True) if isinstance(test, FunctionTests)]
    verdicts = grade_code_batch(
        [f"```python\n{row['canonical_solution']}\n```" for row, _ in usable],
        [test for _, test in usable],
        settings=SETTINGS,
    )
    failed |= {row["task_id"]: v.reason for (row, _), v in zip(usable, verdicts, strict=True) if not v.score}
    assert failed.keys() <= TOO_LARGE | TOO_SLOW, failed
    assert len(failed) <= 0.01 * len(problems)


@needs_data
@pytest.mark.timeout(1800)
def test_humaneval_and_mbpp_mutants():
    """Mutants of real solutions: the grader says of each what an ordinary interpreter says."""
    programs, tests, sources = [], [], []
    for number, row in enumerate(rows("HumanEval.jsonl.gz")):
        for _, text in mutants(row["prompt"] + row["canonical_solution"], 2, seed=number):
            programs.append(f"```python\n{text}\n```")
            tests.append(humaneval_tests(row))
            # Names of its own for the mutant: the helpers that the tests use are the prompt's, unchanged.
            load = f"names = {{}}\nexec({text!r}, names)\ncandidate = names[{row['entry_point']!r}]\n"
            sources.append(f"{load}\n{row['prompt']}\n{row['test']}\ncheck(candidate)\n")
    for number, row in enumerate(rows("mbpp_plus.jsonl")):
        for _, text in mutants(row["canonical_solution"], 1, seed=number):
            programs.append(f"```python\n{text}\n```")
            tests.append(AssertionTests(row["entry_point"], row["assertion"]))
            sources.append(f"{text}\n{row['assertion']}")
    different, counts = agree(programs, tests, sources, CodeSettings(seconds_per_test=4))
    print(
        f"{len(programs)} mutants: {counts[False]} wrong, {counts[True]} that pass their tests; {len(different)} disagreements"
    )
    assert different == []
    assert counts[False] >= 200


@needs_data
@pytest.mark.timeout(1800)
def test_mbpp_mutants_by_their_values():
    """The same for inputs with expected outputs: what fails the assertions fails on the inputs that these hold."""
    settings = CodeSettings(seconds_per_test=4)
    programs, prepared, sources = [], [], []
    for number, row in enumerate(rows("mbpp_plus.jsonl")):
        for _, text in mutants(row["canonical_solution"], 1, seed=number + 1000):
            programs.append(f"```python\n{text}\n```")
            prepared.append({**row, "plus_input": []})
            sources.append(f"{text}\n{row['assertion']}")
    with ThreadPoolExecutor(2) as pool:
        tests = list(pool.map(evalplus_tests, prepared))
        plain = list(pool.map(plain_harness, sources))
    verdicts = grade_code_batch(programs, tests, settings=settings)
    wrong = [
        (row["task_id"], verdict) for row, verdict, passed in zip(prepared, verdicts, plain, strict=True) if not passed
    ]
    print(f"{len(programs)} mutants: {len(wrong)} wrong")
    assert [task for task, verdict in wrong if verdict.score] == []
    assert len(wrong) >= 200
