"""Finding the program in a completion. The programs here are our own, so an ordinary interpreter runs what was found."""

from __future__ import annotations

import ast
import contextlib
import decimal
import gc
import gzip
import io
import json
import os
import re
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from code_completions import CODE, ECHO, NO_CODE, STYLES, WHOLE_PROGRAMS, WRONG
from rlvr_graders.code.extract import continue_prompt, extract_code
from rlvr_graders.code.syntax import parse


def filled(style, code=CODE):
    return style.replace("INDENTED", textwrap.indent(code, "    ")).replace("CODE", code).replace("WRONG", WRONG)


def run(program, text=""):
    """(names, what it printed) of a program that reads `text`."""
    names, printed, given = {"__name__": "__main__"}, io.StringIO(), sys.stdin
    sys.stdin = io.StringIO(text)
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(program, "found.py", "exec", dont_inherit=True), names)
    finally:
        sys.stdin = given
    return names, printed.getvalue()


@pytest.mark.parametrize("name", STYLES)
def test_a_function_is_found(name):
    program = extract_code(filled(STYLES[name]), "vowels")
    names, _ = run(program)
    function = names.get("vowels") or names["Solution"]().vowels
    assert [function(text) for text in ("hello", "xyz", "AEIOU")] == [2, 0, 5]


@pytest.mark.parametrize("name", STYLES)
def test_windows_line_ends_make_no_difference(name):
    style = filled(STYLES[name])
    assert extract_code(style.replace("\n", "\r\n"), "vowels") == extract_code(style, "vowels")


@pytest.mark.parametrize("name", NO_CODE)
def test_where_there_is_no_code(name):
    assert (extract_code(filled(NO_CODE[name]), "vowels") or "").strip() == ""
    assert (extract_code(filled(NO_CODE[name])) or "").strip() == ""


@pytest.mark.parametrize("name", WHOLE_PROGRAMS)
def test_a_whole_program_is_found(name):
    program = extract_code(filled(WHOLE_PROGRAMS[name], ECHO))
    assert run(program, "3\n")[1] == "6\n"


def test_the_last_right_name_wins_even_where_it_is_wrong():
    assert extract_code(f"```python\n{CODE}```\nBetter:\n```python\n{WRONG}```", "vowels") == WRONG
    assert extract_code("```python\ndef other(s):\n    return 1\n```", "vowels") == "def other(s):\n    return 1\n"


def test_code_that_does_not_parse_is_still_the_answer():
    assert extract_code("```python\ndef vowels(s)\n    return 0\n```", "vowels") == "def vowels(s)\n    return 0\n"


# Programs with lines that are expressions or that bind names in a way of their own: what `answer` returns says whether all are kept.
LINES = {
    "comprehension": "seen = []\n[seen.append(x * y) for x in (1, 2) for y in (3, 4)]",
    "set and dict comprehensions": "seen = []\n{k: seen.append(k) for k in 'ab'}\n{seen.append(i) for i in range(2)}",
    "generator": "seen = []\nany(seen.append(x) for x in range(3))",
    "lambda": "seen = []\n(lambda a, *b, c=1, **d: seen.append((a, b, c)))(5, 6)",
    "lambda in map": "seen = []\nlist(map(lambda v: seen.append(v + 1), [1, 2]))",
    "star import": "from math import *\nseen = []\nseen.append(floor(pi * gcd(12, 18)))",
    "star import of another's function": "from itertools import *\nseen = []\nseen.extend(islice(count(3), 2))",
    "global": "def begin():\n    global seen\n    seen = [1]\nbegin()\nseen.append(2)",
    "global import": "def begin():\n    global mm\n    import math as mm\nbegin()\nseen = []\nseen.append(mm.sqrt(4))",
    "walrus": "(seen := []).append(1)\nseen.append((two := 2))\nseen.append(two)",
    "walrus in a comprehension": "seen = []\n[last := x for x in range(4)]\nseen.append(last)",
    "match": "seen = []\nmatch {'k': [1, 2, 3]}:\n    case {'k': [first, *rest], **more}: pass\nseen.append((first, rest, more))",
    "except as": "seen = []\ntry:\n    1 / 0\nexcept ZeroDivisionError as error:\n    seen.append(str(error))",
    "with as": "import io\nseen = []\nwith io.StringIO('ab') as file, io.StringIO('c') as (other):\n    pass\nseen.append(file.closed)",
    "for and its end": "seen = []\nfor i, (j, *k) in [(1, 'xyz')]: pass\nseen.append((i, j, k))",
    "augmented": "seen = [1]\nseen += [2]\nseen[0] += 5\nseen.append(seen[0])",
    "unpacking": "first, *seen = 0, 1, 2\nseen.append(first)",
    "del": "seen = [1, 2]\ndel seen[0]\nseen.append(3)",
    "class": "class Box:\n    held = []\nseen = Box.held\nBox.held.append(1)\nsetattr(Box, 'extra', 2)\nseen.append(Box.extra)",
    "decorator": "seen = []\ndef note(f):\n    seen.append(f.__name__)\n    return f\n@note\ndef helper(): pass",
    "globals()": "globals()['seen'] = [1]\nseen.append(2)",
    "exec": "exec('seen = [1]')\nseen.append(2)",
    "annotated": "seen: list = []\ncount: int\ncount = 3\nseen.append(count)",
    "first line in brackets": "(a, b) = 1, 2\nseen = []\nseen.append(a + b)",
    "first line an annotation": "seen: 'list' = []\nseen.append(1)",
    "several on a line": "seen = []; seen.append(1); seen.append(2)",
    "texts with typographic characters": "seen = []\nseen.append('\u2019 \u2013 &lt; &amp;')",
    "a text of several lines": "seen = []\nseen.append('''one\n    \n  two\n''')",
    "doctest in a docstring": "seen = []\ndef helper(x):\n    '''Say x.\n\n    >>> helper(1)\n    1\n    '''\n"
    "    return x\nseen.append(helper(3))",
    "async": "seen = []\nasync def go():\n    seen.append(1)\ntry:\n    go().send(None)\nexcept StopIteration:\n    pass",
    "conditional expression": "seen = []\nseen.append(1) if not seen else seen.clear()",
    "subscript call": "table = {'add': lambda v: seen.append(v)}\nseen = []\ntable['add'](7)",
}
PROSE = (
    "CODE",
    "Here is my solution:\n\nCODE\n\nIt's simple (see above) and fast.",
    "Sure, I'd do:\nCODE\nTime: O(n)\nSpace: O(1)\nDone",
    "CODE\nComplexity = O(n)\nO(n * m)\nInput: n = 5\n- simple\n- fast",
    "The code \u2013 it\u2019s short:\n\nINDENTED\n\nThat\u2019s all &amp; done.",
)


@pytest.mark.parametrize("name", LINES)
def test_a_bare_program_keeps_every_line(name):
    program = f"{LINES[name]}\n\ndef answer():\n    return seen\n"
    expected = run(program)[0]["answer"]()
    for prose in PROSE:
        names, _ = run(extract_code(filled(prose, program), "answer"))
        # moving code to the margin moves the inside of its texts too
        assert str(names["answer"]()).replace(" ", "") == str(expected).replace(" ", "")


@pytest.mark.parametrize(
    "line",
    [
        "helper(answer)",
        "answer.cache(table)",
        "[print(x) for x in missing]",
        "print(answer(n))",
        "seen += more",
        "x: List[int]\nx = []",
        "memo: Dict[int, int] = {}",
    ],
)
def test_a_bare_program_keeps_the_line_it_fails_by(line):
    for prose in PROSE:
        program = extract_code(filled(prose, f"def answer():\n    return 1\n\n{line}\n"), "answer")
        with pytest.raises((NameError, AttributeError)):
            run(program)


@pytest.mark.skipif("DELTA_RLVR_DATA" not in os.environ, reason="DELTA_RLVR_DATA names no folder of data sets")
def test_bare_solutions_of_humaneval_and_mbpp_are_found_whole():
    folder = Path(os.environ["DELTA_RLVR_DATA"], "code")
    with gzip.open(folder / "HumanEval.jsonl.gz", "rt") as lines:
        rows = [(row["prompt"] + row["canonical_solution"], row["entry_point"]) for row in map(json.loads, lines)]
    for row in map(json.loads, (folder / "mbpp_plus.jsonl").read_text().splitlines()):
        rows += [(row["canonical_solution"], row["entry_point"])]
        rows += [(f"{row['canonical_solution']}\n\n{row['assertion']}\n", row["entry_point"])]
    lost = [entry for program, entry in rows for prose in PROSE if said(filled(prose, program), entry) != said(program)]
    assert lost == []


def said(text, entry=None):
    """What a program does, as a tree: without texts and annotations that stand alone, and without blanks."""
    tree = ast.parse(text if entry is None else extract_code(text, entry))
    idle = (ast.Constant, ast.UnaryOp)
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, idle))
        and not (isinstance(node, ast.AnnAssign) and node.value is None)
    ]
    return re.sub(r"\\n|\s", "", ast.dump(tree))


APART = {
    "a table filled": ("table = {}\ntable[5] = 120", "return table[5]"),
    "the depth of recursion": (
        "import sys\nsys.setrecursionlimit(5000)",
        "g = lambda k: k and 1 + g(k - 1)\n    return 120 * (g(3000) == 3000)",
    ),
    "precision": (
        "from decimal import Decimal, getcontext\ngetcontext().prec = 50",
        "from decimal import Decimal\n    return 120 * (len(str(Decimal(1) / 7)) > 40)",
    ),
    "a star import": ("from math import *", "return factorial(5)"),
}


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize("fence", ["", "```python\n"])
def test_what_stands_in_another_part_is_borrowed(name, fence):
    close = "\n```" if fence else ""
    first, body = APART[name]
    text = f"First:\n\n{fence}{first}{close}\n\nThen we write it:\n\n{fence}def answer():\n    {body}\n{close}\n\nand that is it."
    recursion, precision = sys.getrecursionlimit(), decimal.getcontext().prec
    try:
        assert run(extract_code(text, "answer"))[0]["answer"]() == 120
    finally:
        sys.setrecursionlimit(recursion)
        decimal.getcontext().prec = precision


def test_a_table_in_another_part_is_borrowed_with_what_fills_it():
    text = "First a table:\n\nimport math\ntable = {}\nfor i in range(9):\n    table[i] = math.factorial(i)\n\nThen we look:\n\n"
    program = extract_code(text + "def answer():\n    return table[5]\n\nand that is it.", "answer")
    assert run(program)[0]["answer"]() == 120


PROMPT = 'from math import isqrt\n\n\ndef is_prime(n: int) -> bool:\n    """Whether n is prime."""\n'
BODY = "    if n < 2:\n        return False\n    return all(n % d for d in range(2, isqrt(n) + 1))\n"
FUNCTION = "def is_prime(n):\n" + BODY
CONTINUATIONS = {
    "body": BODY,
    "body after a blank line": "\n" + BODY,
    "more behind it": BODY + "\n\ndef other():\n    pass\n\nprint(is_prime(3))\n",
    "cut off in the next function": BODY + "\n\ndef check():\n    assert is_prime(",
    "closed fence and prose": BODY + "```\n\nThis tries all divisors.",
    "prose": BODY + "\nThis works since isqrt(n) is enough.",
    "first line lost its blanks": BODY.lstrip(),
    "at the margin": f"```python\n{textwrap.dedent(BODY)}```",
    "in a block": f"Here's the rest:\n\n```python\n{BODY}```\nHope it helps",
    "two blanks": BODY.replace("    ", "  "),
    "end token": BODY + "<|endoftext|>",
    "whole in a block": f"```python\n{FUNCTION}```",
    "whole with the prompt": f"Sure:\n```python\n{PROMPT}{BODY}```",
    "whole without a fence": f"The function:\n\n{FUNCTION}\nIt tries all divisors.",
    "whole with a future import": f"```python\nfrom __future__ import annotations\n{FUNCTION}```",
    "inner function": "    def divides(d):\n        return n % d == 0\n    return n > 1 and not any(map(divides, range(2, n)))\n",
}


@pytest.mark.parametrize("name", CONTINUATIONS)
def test_a_prompt_is_continued(name):
    names, _ = run(continue_prompt(PROMPT, CONTINUATIONS[name], "is_prime"))
    assert [n for n in range(12) if names["is_prime"](n)] == [2, 3, 5, 7, 11]


def test_what_continues_nothing():
    for completion in ("", "I do not know how to do that."):
        assert continue_prompt(PROMPT, completion, "is_prime").startswith(PROMPT)


SIZE = 60_000
HOSTILE = {
    "blanks": " " * SIZE,
    "backticks": "`" * SIZE + "!",
    "fences": "```\n" * (SIZE // 4),
    "long line before a fence": "a" * SIZE + "```",
    "long line behind a fence": "``` " + "a" * SIZE + "`",
    "closing tags": "</code>" * (SIZE // 7) + "x",
    "end tokens": "<|a|>" * (SIZE // 5),
    "quotation marks": ">" * SIZE,
    "open docstrings": "```\n'''\n" * (SIZE // 8),
    "statements that do not parse": "x = \n" * (SIZE // 5),
    "code and prose in turn": "x = 1\noops oops oops\n" * (SIZE // 22),
    "an error at the end": "def f(x):\n    return x\n" * (SIZE // 24) + "oops oops",
    "brackets": "```python\n" + "(" * SIZE,
    "a long sum": "```python\nx = " + "1+" * 25_000 + "1\n```",
    "a long comparison": "```python\nx = a" + "<a" * 25_000 + "\n```",
    "signs": "```python\nx = " + "-" * 50_000 + "1\n```",
    "NUL": "```python\n" + "\0" * 1000 + "\n```",
    "half of a surrogate pair": "```python\n" + "\ud800" * 1000 + "\n```",
    "a megabyte": "```python\n" + "x = 1\n" * 170_000 + "```",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_takes_long(name):
    """Seconds at most, of the grader's own processor time: nothing here is killable. Quadratic would be minutes."""
    start = time.process_time()
    extract_code(HOSTILE[name], "f")
    extract_code(HOSTILE[name])
    continue_prompt(PROMPT, HOSTILE[name], "is_prime")
    assert time.process_time() - start < 20


def test_long_expressions_are_no_obstacle():
    """Deeper than Python's recursion limit of 1000, and fine for its compiler."""
    program = "def f(x):\n    return " + "x + " * 1500 + "x\n"
    assert extract_code(f"```python\n{program}```", "f") == program


def test_completions_are_parsed_side_by_side():
    """Trees that two threads of Python 3.11 made at once failed with "AST constructor recursion depth mismatch"."""
    texts = [f"x = {'-' * depth}1\n" + "y = [1, 2, 3]\n" * 50 for depth in (5, 60)]

    def give_way(*_):
        time.sleep(1e-6)  # another thread's turn, in the middle of a tree

    threshold = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(5)
    try:
        with ThreadPoolExecutor(2) as threads:
            trees = list(threads.map(parse, texts * 200))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(give_way)
    assert {type(tree) for tree in trees} == {ast.Module}


@pytest.mark.parametrize("end", ["", "\nIt prints a fence.\n```text\nx\n```\n"])
def test_a_fence_in_a_program_that_parses_is_part_of_it(end):
    code = "def fenced(s):\n    return f'''```\n{s}\n```'''\n"
    assert extract_code(f"Here:\n\n```python\n{code}```\n{end}", "fenced").strip() == code.strip()


SHORT_LINES = (
    "y\n",
    "@a\n",
    "@a\n\n",
    "a<b\n@",
    "+x\n",
    "x;",
    "f(x)\n",
    "a[0]=1\n",
    "é\n",
    "```\n",
    "> ```\nx=1\n",
    "`x` ",
    "(print(x)\n",
)


@pytest.mark.parametrize("line", SHORT_LINES)
def test_a_thousand_short_lines_take_milliseconds(line):
    for text in (line * 2000, "```python\n" + line * 2000):
        start = time.thread_time()
        extract_code(text[:2000], "solve")
        extract_code(text[:2000])
        assert time.thread_time() - start < 0.1
        start = time.thread_time()
        continue_prompt("import a\n\ndef solve(n):\n", text[:2000], "solve")
        assert time.thread_time() - start < 0.05
